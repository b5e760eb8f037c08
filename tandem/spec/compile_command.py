"""The command of one compile: what makes the artifact that the server of the same variant loads.

Invariant: the settings that reach the compiler are those that the server's own loader would use, field by field;
both are made of the same declared values, and a setting without a flag is refused when the data is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tandem.spec.catalogue import Catalogue
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.names import ARTIFACT_FOLDER, SERVER_PORT, WORK_MOUNT
from tandem.spec.runtime import ProgramCompile, RuntimeSpelling
from tandem.spec.server_command import build_server_command, lnc_variable, model_folder, neuron_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCommand:
    """What the runtime's container runs in order to compile.

    Args:
        command: program and leading arguments.
        arguments: flags, in a fixed order, each flag followed by its value.
        environment: variables.
        health_url: URL that answers once everything is compiled, where the program is a server that never ends
            by itself; None where it ends.
        unproven: what of it no source shows, in sentences; stands in the artifact's manifest.
    """

    command: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: dict[str, str]
    health_url: str | None
    unproven: tuple[str, ...]


def build_compile_command(experiment: Experiment, variant: Variant, catalogue: Catalogue) -> CompileCommand:
    """Spell the compile of one variant's artifact for its runtime, where the experiment says it shall run.

    The experiment must have passed the rules: its runtime is rendered and its models are known.
    """
    runtime = catalogue.runtimes[experiment.runtime]
    assert runtime.spelling is not None  # a rule refuses runtimes that are not rendered
    spelling, is_cpu = runtime.spelling.compile, experiment.compile.where == "cpu"
    # the variables of the compile alone; none of them changes what is compiled
    environment = {
        **spelling.environment,
        **{name: f"{WORK_MOUNT}/{at}" for name, at in spelling.work_variables.items()},
    }
    if is_cpu:
        environment |= {**spelling.cpu.environment, spelling.cpu.platform_variable: runtime.platform_target}
    notes = (spelling.unproven.value, spelling.cpu.unproven.value if is_cpu else None)
    unproven = tuple(sentence for sentence in notes if sentence)
    if isinstance(spelling, ProgramCompile):
        return CompileCommand(
            command=spelling.command,
            arguments=tuple(_yield_program_arguments(experiment, variant, catalogue, runtime.spelling, spelling)),
            environment={**lnc_variable(experiment, runtime.spelling), **environment},
            health_url=None,
            unproven=unproven,
        )
    server = build_server_command(experiment, variant, catalogue)
    variables = {name: value for name, value in server.environment.items() if name not in spelling.dropped_variables}
    return CompileCommand(
        command=server.command,
        arguments=server.arguments,
        environment={**variables, **environment},
        health_url=f"http://127.0.0.1:{SERVER_PORT}{spelling.health_path}",
        unproven=unproven,
    )


def loader_settings(
    experiment: Experiment, variant: Variant, spelling: RuntimeSpelling, program: ProgramCompile
) -> dict[str, Any]:
    """Return every Neuron setting that the server's loader would compile with: its own, overridden by what it is told.

    Source: vLLM 0.9.1 vllm/model_executor/model_loader/neuronx_distributed.py, _get_default_neuron_config and
    _get_default_speculation_config.
    """
    serving = experiment.serving.model_dump()
    window = {program.window_setting: variant.num_speculative_tokens} if variant.mode != "none" else {}
    return {
        **{setting: serving[name] for setting, name in program.loader_declared.items()},
        **program.loader_constants,
        **window,
        **neuron_settings(experiment, variant, spelling),
    }


def _yield_program_arguments(
    experiment: Experiment, variant: Variant, catalogue: Catalogue, spelling: RuntimeSpelling, program: ProgramCompile
) -> Iterator[str]:
    target = catalogue.models[experiment.target]
    yield from (program.family_flag, program.families[target.family.value], *program.leading_arguments)
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
    spelling = program.flags[setting]
    match spelling.takes:
        case "switch":
            return (spelling.flag,) if value else ()
        case "either":
            return (spelling.flag if value else f"--no-{spelling.flag.removeprefix('--')}",)
        case "list":
            return (spelling.flag, *map(str, value))
        case "value":
            return (spelling.flag, str(value))
