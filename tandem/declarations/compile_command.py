"""The command of one compile: what makes the artifact that the server of the same variant loads.

Invariant: the settings that reach the compiler are those that the server's own loader would use,
field by field; both are made of the same declared values, and a setting without a flag is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment, Variant
from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.names import ARTIFACT_FOLDER, SERVER_PORT, WORK_MOUNT
from tandem.declarations.runtime import ProgramCompile, RuntimeSpelling
from tandem.declarations.server_command import (
    ServerCommand,
    build_server_command,
    lnc_variable,
    model_folder,
    neuron_settings,
)


@dataclass(frozen=True, kw_only=True)
class CompileCommand(ServerCommand):
    """What the runtime's container runs in order to compile.

    Args:
        health_url: URL that answers once everything is compiled, where the program is a server that
            never ends by itself; None where it ends.
        unproven: what of it no source shows, in sentences; stands in the artifact's manifest.
    """

    health_url: str | None
    unproven: tuple[str, ...]


def build_compile_command(
    experiment: Experiment, variant: Variant, catalogue: Catalogue
) -> CompileCommand:
    """Spell the compile of a variant's artifact for its runtime, where the experiment runs it.

    The experiment must have passed the rules: its runtime is rendered and its models are known.
    """
    runtime = catalogue.runtimes[experiment.runtime]
    assert runtime.spelling is not None  # a rule refuses runtimes that are not rendered
    spelling = runtime.spelling.compile
    is_cpu = experiment.compile.where == "cpu"
    # the variables of the compile alone; none of them changes what is compiled
    folders = {name: f"{WORK_MOUNT}/{folder}" for name, folder in spelling.work_variables.items()}
    environment = {**spelling.environment, **folders}
    if is_cpu:
        environment |= {
            **spelling.cpu.environment,
            spelling.cpu.platform_variable: runtime.platform_target,
        }
    notes = (spelling.unproven.value, spelling.cpu.unproven.value if is_cpu else None)
    unproven = tuple(sentence for sentence in notes if sentence)
    health_url = None
    if isinstance(spelling, ProgramCompile):
        command = spelling.command
        variables = lnc_variable(experiment, runtime.spelling)
        arguments = tuple(
            _yield_program_arguments(experiment, variant, catalogue, runtime.spelling, spelling)
        )
    else:
        server = build_server_command(experiment, variant, catalogue)
        command = server.command
        arguments = server.arguments
        health_url = f"http://127.0.0.1:{SERVER_PORT}{spelling.health_path}"
        variables = {
            name: text
            for name, text in server.environment.items()
            if name not in spelling.dropped_variables
        }
    environment = {**variables, **environment}
    return CompileCommand(
        command=command,
        arguments=arguments,
        environment=environment,
        health_url=health_url,
        unproven=unproven,
    )


def loader_settings(
    experiment: Experiment, variant: Variant, spelling: RuntimeSpelling, program: ProgramCompile
) -> dict[str, Any]:
    """Return each Neuron setting that the loader compiles with: its own, overridden if declared.

    Source: vLLM 0.9.1 vllm/model_executor/model_loader/neuronx_distributed.py,
    _get_default_neuron_config and _get_default_speculation_config.
    """
    serving = experiment.serving.model_dump()
    window = (
        {program.window_setting: variant.num_speculative_tokens} if variant.mode != "none" else {}
    )
    return {
        **{setting: serving[name] for setting, name in program.loader_declared.items()},
        **program.loader_constants,
        **window,
        **neuron_settings(experiment, variant, spelling),
    }


def _yield_program_arguments(
    experiment: Experiment,
    variant: Variant,
    catalogue: Catalogue,
    spelling: RuntimeSpelling,
    program: ProgramCompile,
) -> Iterator[str]:
    target = catalogue.models[experiment.target]
    yield from (
        program.family_flag,
        program.families[target.family.value],
        *program.leading_arguments,
    )
    yield from (program.model_flag, model_folder(target))
    if variant.draft:
        yield from (program.draft_flag, model_folder(catalogue.models[variant.draft]))
    yield from (program.artifact_flag, ARTIFACT_FOLDER)
    for setting, value in loader_settings(experiment, variant, spelling, program).items():
        if setting == program.sampling_setting:  # whose fields are flags of their own
            yield from _spell_flag(program, setting, value=True)
            for name, inner in value.items():
                yield from _spell_flag(program, f"{setting}.{name}", inner)
        else:
            yield from _spell_flag(program, setting, value)
    yield from program.closing_arguments


def _spell_flag(program: ProgramCompile, setting: str, value: Any) -> tuple[str, ...]:
    spelling = program.flags.get(setting)
    if spelling is None:
        got = f"no flag for {setting}"
        allowed = "one for every setting that the loader may take"
        fault = SpecFault(
            "tandem/declarations/data/runtimes", "spelling.compile.flags", got, allowed, "add it"
        )
        raise SpecError([fault])
    match spelling.takes:
        case "switch":
            return (spelling.flag,) if value else ()
        case "either":
            return (spelling.flag if value else f"--no-{spelling.flag.removeprefix('--')}",)
        case "list":
            return (spelling.flag, *map(str, value))
        case "value":
            return (spelling.flag, str(value))
