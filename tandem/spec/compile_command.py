"""The command of one compile: what makes the artifact that the server of the same variant loads.

Invariant: the settings that reach the compiler are those that the server's own loader would use, field by field;
both are made of the same declared values, and a setting without a flag is refused when the data is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.spec.catalogue import Catalogue
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.names import ARTIFACT_FOLDER, SERVER_PORT, WORK_MOUNT
from tandem.spec.runtime import FlagSpelling, ProgramCompile, Runtime, RuntimeSpelling, ServerCompile
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
    if isinstance(runtime.spelling.compile, ProgramCompile):
        return _spell_program_compile(experiment, variant, catalogue, runtime, runtime.spelling.compile)
    return _spell_server_compile(experiment, variant, catalogue, runtime, runtime.spelling.compile)


def loader_settings(
    experiment: Experiment, variant: Variant, spelling: RuntimeSpelling, compile_spelling: ProgramCompile
) -> dict[str, object]:
    """Return every Neuron setting that the server's loader would compile with: its own, overridden by what it is told.

    Source: vLLM 0.9.1 vllm/model_executor/model_loader/neuronx_distributed.py, _get_default_neuron_config and
    _get_default_speculation_config.
    """
    serving = experiment.serving.model_dump()
    window = {compile_spelling.window_setting: variant.num_speculative_tokens} if variant.mode != "none" else {}
    return {
        **{setting: serving[name] for setting, name in compile_spelling.loader_declared.items()},
        **compile_spelling.loader_constants,
        **window,
        **neuron_settings(experiment, variant, spelling),
    }


def _spell_program_compile(
    experiment: Experiment, variant: Variant, catalogue: Catalogue, runtime: Runtime, compile_spelling: ProgramCompile
) -> CompileCommand:
    models, spelling = catalogue.models, runtime.spelling
    assert spelling is not None
    target = models[experiment.target]
    draft = (compile_spelling.draft_flag, model_folder(models[variant.draft])) if variant.draft else ()
    return CompileCommand(
        command=compile_spelling.command,
        arguments=(
            compile_spelling.family_flag,
            compile_spelling.families[target.family.value],
            *compile_spelling.leading_arguments,
            compile_spelling.model_flag,
            model_folder(target),
            *draft,
            compile_spelling.artifact_flag,
            ARTIFACT_FOLDER,
            *_spell_flags(loader_settings(experiment, variant, spelling, compile_spelling), compile_spelling),
            *compile_spelling.closing_arguments,
        ),
        environment={**lnc_variable(experiment, spelling), **_compile_variables(experiment, runtime, compile_spelling)},
        health_url=None,
        unproven=_list_unproven_notes(experiment, compile_spelling),
    )


def _spell_server_compile(
    experiment: Experiment, variant: Variant, catalogue: Catalogue, runtime: Runtime, compile_spelling: ServerCompile
) -> CompileCommand:
    server_command = build_server_command(experiment, variant, catalogue)
    variables = {
        name: value
        for name, value in server_command.environment.items()
        if name not in compile_spelling.dropped_variables
    }
    return CompileCommand(
        command=server_command.command,
        arguments=server_command.arguments,
        environment={**variables, **_compile_variables(experiment, runtime, compile_spelling)},
        health_url=f"http://127.0.0.1:{SERVER_PORT}{compile_spelling.health_path}",
        unproven=_list_unproven_notes(experiment, compile_spelling),
    )


def _compile_variables(
    experiment: Experiment, runtime: Runtime, compile_spelling: ProgramCompile | ServerCompile
) -> dict[str, str]:
    """Return the variables of the compile alone; none of them changes what is compiled."""
    work_folders = {name: f"{WORK_MOUNT}/{folder}" for name, folder in compile_spelling.work_variables.items()}
    cpu_variables = {
        **compile_spelling.cpu.environment,
        compile_spelling.cpu.platform_variable: runtime.platform_target,
    }
    return {
        **compile_spelling.environment,
        **work_folders,
        **(cpu_variables if experiment.compile.where == "cpu" else {}),
    }


def _list_unproven_notes(experiment: Experiment, compile_spelling: ProgramCompile | ServerCompile) -> tuple[str, ...]:
    notes = [
        compile_spelling.unproven.value,
        compile_spelling.cpu.unproven.value if experiment.compile.where == "cpu" else None,
    ]
    return tuple(sentence for sentence in notes if sentence)


def _spell_flags(settings: dict[str, object], compile_spelling: ProgramCompile) -> tuple[str, ...]:
    """Return the flags of all settings, those of sampling one by one."""
    flat_settings: dict[str, object] = {}
    for setting, value in settings.items():
        if setting == compile_spelling.sampling_setting and isinstance(value, dict):
            flat_settings |= {setting: True, **{f"{setting}.{name}": inner for name, inner in value.items()}}
        else:
            flat_settings[setting] = value
    return tuple(
        part for setting, value in flat_settings.items() for part in _spell_flag(compile_spelling.flags[setting], value)
    )


def _spell_flag(spelling: FlagSpelling, value: object) -> tuple[str, ...]:
    if spelling.takes == "switch":
        return (spelling.flag,) if value else ()
    if spelling.takes == "either":
        return (spelling.flag if value else f"--no-{spelling.flag.removeprefix('--')}",)
    if spelling.takes == "list":
        assert isinstance(value, tuple | list)
        return (spelling.flag, *map(str, value))
    return (spelling.flag, str(value))
