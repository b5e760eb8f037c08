"""Whether the post's claims are asked of a run at all: of servers that can answer them, and of no others.

Invariant: a simulated server answers no claim, and neither does one of which nobody declared what it is.
"""

from __future__ import annotations

from tandem.bench.request_table import RequestTable
from tandem.judge.claims.register import read_register
from tandem.judge.claims.variant_results import find_manifest_arm, list_differences


def explain_unasked(table: RequestTable) -> str | None:
    """Return the sentence that says why the post's claims are not asked of a run's servers; None where they are.

    Raises:
        BenchError: the register of claims is not as it must be.
    """
    obstacle = _find_obstacle(table)
    return None if obstacle is None else f"The post's claims are not asked of these servers: {obstacle}."


def _find_obstacle(table: RequestTable) -> str | None:
    """Return what keeps the claims from being asked.

    One variant with the post's draft and window is enough: claims about tuning compare others with it.
    """
    run, set_up = table.run, read_register().set_up
    if run.simulated:
        return "they are simulated"
    if run.simulated is None:
        return "whether they are simulated is not known"
    if run.environment is None or run.experiment is None:
        return "they were named by address, not by --env and --experiment"
    if run.instance_type != set_up.instance_type:
        return f"they run on {run.instance_type or 'an unknown instance type'}, not on {set_up.instance_type}"
    baseline, *variants = (find_manifest_arm(table, name) for name in (table.baseline, *table.variants))
    differences = [
        next(list_differences(set_up, baseline, variant, allow_tuning=False), None)
        for variant in variants
        if baseline is not None and variant is not None
    ]
    return None if None in differences else next(iter(differences), "the manifest does not know both arms")
