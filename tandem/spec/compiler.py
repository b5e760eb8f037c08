"""The command of one compile: what makes the artifact that the server of the same variant loads.

Invariant: the settings that reach the compiler are those that the server's own loader would use, field by field;
both are made of the same declared values, and a setting without a flag is refused when the data is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.spec.catalogue import Catalogue
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.names import ARTIFACT_FOLDER, SERVER_PORT, WORK_MOUNT
from tandem.spec.runtime import FlagSpelling, ProgramCompile, Runtime, ServerCompile, Spelling
from tandem.spec.server import logical_cores, model_folder, neuron_settings, server


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What the runtime's container runs in order to compile.

    Args:
        command: program and leading arguments.
        arguments: flags, in a fixed order, each flag followed by its value.
        environment: variables.
        until_healthy: URL that answers once everything is compiled, where the program is a server that never ends
            by itself; None where it ends.
        unproven: what of it no source shows, in sentences; stands in the artifact's manifest.
    """

    command: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: dict[str, str]
    until_healthy: str | None
    unproven: tuple[str, ...]


def compilation(experiment: Experiment, variant: Variant, catalogue: Catalogue) -> Compilation:
    """Spell the compile of one variant's artifact for its runtime, where the experiment says it shall run.

    The experiment must have passed the rules: its runtime is rendered and its models are known.
    """
    runtime = catalogue.runtimes[experiment.runtime]
    assert runtime.spelling is not None  # a rule refuses runtimes that are not rendered
    if isinstance(runtime.spelling.compile, ProgramCompile):
        return _by_program(experiment, variant, catalogue, runtime, runtime.spelling.compile)
    return _by_server(experiment, variant, catalogue, runtime, runtime.spelling.compile)


def loader_settings(
    experiment: Experiment, variant: Variant, spelling: Spelling, how: ProgramCompile
) -> dict[str, object]:
    """Return every Neuron setting that the server's loader would compile with: its own, overridden by what it is told.

    Source: vLLM 0.9.1 vllm/model_executor/model_loader/neuronx_distributed.py, _get_default_neuron_config and
    _get_default_speculation_config.
    """
    serving = experiment.serving.model_dump()
    window = {how.window_setting: variant.num_speculative_tokens} if variant.mode != "none" else {}
    return {
        **{setting: serving[name] for setting, name in how.loader_declared.items()},
        **how.loader_constants,
        **window,
        **neuron_settings(experiment, variant, spelling),
    }


def _by_program(
    experiment: Experiment, variant: Variant, catalogue: Catalogue, runtime: Runtime, how: ProgramCompile
) -> Compilation:
    models, spelling = catalogue.models, runtime.spelling
    assert spelling is not None
    target = models[experiment.target]
    draft = (how.draft_flag, model_folder(models[variant.draft])) if variant.draft else ()
    return Compilation(
        command=how.command,
        arguments=(
            how.family_flag, how.families[target.family.value], *how.leading_arguments,
            how.model_flag, model_folder(target), *draft, how.artifact_flag, ARTIFACT_FOLDER,
            *_flags(loader_settings(experiment, variant, spelling, how), how), *how.closing_arguments,
        ),
        environment={**logical_cores(experiment, spelling), **_variables(experiment, runtime, how)},
        until_healthy=None,
        unproven=_unproven(experiment, how),
    )  # fmt: skip


def _by_server(
    experiment: Experiment, variant: Variant, catalogue: Catalogue, runtime: Runtime, how: ServerCompile
) -> Compilation:
    told = server(experiment, variant, catalogue)
    kept = {name: value for name, value in told.environment.items() if name not in how.dropped_variables}
    return Compilation(
        command=told.command,
        arguments=told.arguments,
        environment={**kept, **_variables(experiment, runtime, how)},
        until_healthy=f"http://127.0.0.1:{SERVER_PORT}{how.health_path}",
        unproven=_unproven(experiment, how),
    )


def _variables(experiment: Experiment, runtime: Runtime, how: ProgramCompile | ServerCompile) -> dict[str, str]:
    """Return the variables of the compile alone; none of them changes what is compiled."""
    local = {name: f"{WORK_MOUNT}/{folder}" for name, folder in how.work_variables.items()}
    without = {**how.cpu.environment, how.cpu.platform_variable: runtime.platform_target}
    return {**how.environment, **local, **(without if experiment.compile.where == "cpu" else {})}


def _unproven(experiment: Experiment, how: ProgramCompile | ServerCompile) -> tuple[str, ...]:
    said = [how.unproven.value, how.cpu.unproven.value if experiment.compile.where == "cpu" else None]
    return tuple(sentence for sentence in said if sentence)


def _flags(settings: dict[str, object], how: ProgramCompile) -> tuple[str, ...]:
    """Return the flags of all settings, those of sampling one by one."""
    flat: dict[str, object] = {}
    for setting, value in settings.items():
        if setting == how.sampling_setting and isinstance(value, dict):
            flat |= {setting: True, **{f"{setting}.{name}": inner for name, inner in value.items()}}
        else:
            flat[setting] = value
    return tuple(part for setting, value in flat.items() for part in _flag(how.flags[setting], value))


def _flag(spelling: FlagSpelling, value: object) -> tuple[str, ...]:
    if spelling.takes == "switch":
        return (spelling.flag,) if value else ()
    if spelling.takes == "either":
        return (spelling.flag if value else f"--no-{spelling.flag.removeprefix('--')}",)
    if spelling.takes == "list":
        assert isinstance(value, tuple | list)
        return (spelling.flag, *map(str, value))
    return (spelling.flag, str(value))
