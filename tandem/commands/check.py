"""`tandem check`: hold every declared file against its schema and the rules."""

from __future__ import annotations

from tandem.commands.inputs import Selection, read
from tandem.commands.outcome import Exit, counted, print_faults, print_json, verdict


def check(chosen: Selection) -> Exit:
    """Print every fault and warning of the named environments and the experiments they host.

    Raises:
        SpecError: a folder or a named file does not exist.
    """
    inputs = read(chosen)
    code = verdict(inputs.faults, strict=chosen.strict)
    if chosen.as_json:
        print_json(
            {
                "environments": sorted(inputs.workspace.environments),
                "experiments": sorted(inputs.workspace.experiments),
                "faults": [fault.as_dict() for fault in inputs.faults],
                "exit_code": int(code),
            }
        )
        return code
    print_faults(inputs.faults)
    refusals = sum(fault.severity == "refusal" for fault in inputs.faults)
    print(
        f"{counted(len(inputs.workspace.environments), 'environment')}, "
        f"{counted(len(inputs.workspace.experiments), 'experiment')}: "
        f"{counted(refusals, 'error')}, {counted(len(inputs.faults) - refusals, 'warning')}"
    )
    return code
