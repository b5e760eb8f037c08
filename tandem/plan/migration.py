"""An experiment on another runtime: variants in its modes, and everything that changes.

Invariant: pure; every difference comes from the two runtimes' data and the two servers' commands. A
setting that the other runtime does not read leaves the experiment. The rules say whether the result
is legal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import (
    DRAFT_KINDS,
    Experiment,
    Mode,
    Sweep,
    TuningSettings,
    Variant,
)
from tandem.declarations.model import ModelConfig
from tandem.declarations.runtime import ModeSupport, Runtime
from tandem.declarations.server_command import ServerCommand, build_server_command
from tandem.declarations.variant_key import compute_artifact_key
from tandem.errors import InputError

DOCUMENTED_WINDOWS = {"causal-lm": 7, "eagle-head": 3, "eagle3-head": 3}
"""num_speculative_tokens that AWS documents by kind of draft (rule tokens-by-mode)."""


class MigrationChange(NamedTuple):
    """One thing that differs.

    Args:
        topic: `variant`, `image`, `counters`, `flag`, `variable`, `artifact` or `driver`.
        subject: what changes: a variant, a component, a flag.
        before, after: its values; empty where it is absent.
        reason: why; empty where the two runtimes' data say it.
    """

    topic: str
    subject: str
    before: str
    after: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentMigration:
    """An experiment, and what it becomes.

    Args:
        experiment: for the other runtime.
        changes: what differs, variants first.
        losses: sentences on what the other runtime does not have.
        evidence: sentences on what nobody has shown to work, to be proved first.
    """

    experiment: Experiment
    changes: tuple[MigrationChange, ...]
    losses: tuple[str, ...]
    evidence: tuple[str, ...]


def migrate_experiment(
    experiment: Experiment, runtime_name: str, catalogue: Catalogue
) -> ExperimentMigration:
    """Return an experiment on another runtime.

    Args:
        experiment: legal.
        runtime_name: the other runtime.
        catalogue: runtimes and models.

    Raises:
        InputError: the runtime is unknown, is not rendered, is the experiment's own, or does not
            serve its target.
    """
    before = catalogue.runtimes[experiment.runtime]
    after = _find_runtime(experiment, runtime_name, catalogue)
    moves = [
        _move_variant(variant, experiment, after, catalogue) for variant in experiment.variants
    ]
    variants = [move for move in moves if not isinstance(move, str)]
    losses = [move for move in moves if isinstance(move, str)]
    sweep = _move_sweep(experiment, after, catalogue) if experiment.sweep else None
    tuning = experiment.serving.tuning
    dropped = sorted(
        tuning.model_fields_set - set(after.spelling.tuning_keys if after.spelling else ())
    )
    kept = TuningSettings(
        **{name: getattr(tuning, name) for name in tuning.model_fields_set - set(dropped)}
    )
    losses += [f"serving.tuning.{name}: {after.name} reads no such setting" for name in dropped]
    if experiment.sweep and sweep is None:
        losses.append(
            f"sweep {experiment.sweep.prefix}: {_find_support(after, experiment.sweep.mode).reason}"
        )
    moved = experiment.model_copy(
        update={
            "name": f"{experiment.name}-{after.name}",
            "runtime": after.name,
            "variants": tuple(variants),
            "sweep": sweep,
            "serving": experiment.serving.model_copy(update={"tuning": kept}),
        }
    )
    modes = [_find_support(after, variant.mode) for variant in moved.all_variants()]
    is_unproven = any(not _is_shown(support, experiment.target) for support in modes)
    moved = moved.model_copy(update={"accept_unproven": is_unproven})
    return ExperimentMigration(
        experiment=moved,
        changes=tuple(_list_changes((experiment, moved), (before, after), catalogue)),
        losses=(*losses, *_list_lost_support(before, after)),
        evidence=tuple(_list_evidence(moved, after)),
    )


def _find_runtime(experiment: Experiment, name: str, catalogue: Catalogue) -> Runtime:
    """Return the other runtime, or refuse with the nearest that can be had."""
    runtime = catalogue.runtimes.get(name)
    family = catalogue.models[experiment.target].family.value
    legal = [
        other.name
        for other in catalogue.runtimes.values()
        if other.rendered
        and other.name != experiment.runtime
        and family in other.target_families.value
    ]
    change = (
        f"name one of: {', '.join(legal)}"
        if legal
        else f"keep {experiment.runtime}: no other serves {family}"
    )
    if runtime is None:
        raise InputError(f"no runtime is called {name}", where="--runtime", change=change)
    if name == experiment.runtime:
        raise InputError(
            f"{experiment.name} is on {name} already", where="--runtime", change=change
        )
    if not runtime.rendered:
        reason = runtime.not_rendered_because or "it is known, and not rendered"
        raise InputError(f"{name} cannot be deployed: {reason}", where="--runtime", change=change)
    if name not in legal:
        raise InputError(
            f"{name} serves no target of family {family}", where="--runtime", change=change
        )
    return runtime


def _find_support(runtime: Runtime, mode: Mode) -> ModeSupport:
    return next(support for support in runtime.modes if support.mode == mode)


def _is_shown(support: ModeSupport, target: str) -> bool:
    """Return whether a documented run of the mode with the target exists."""
    is_proven = not support.proven_targets or target in support.proven_targets
    return support.verdict.value == "served" and is_proven


def _list_drafts(mode: Mode, target: ModelConfig, catalogue: Catalogue) -> list[str]:
    """Return the models that draft for a target in a mode, the largest first."""
    kind = DRAFT_KINDS.get(mode)
    drafts = [
        model
        for model in catalogue.models.values()
        if model.kind.value == kind
        and model.id != target.id
        and (
            model.head_of == target.id
            if model.head_of
            else model.tokenizer.value == target.tokenizer.value
        )
        and model.layers.value < target.layers.value
    ]
    drafts.sort(key=lambda model: (model.layers.value, model.hidden_size.value), reverse=True)
    return [model.id for model in drafts]


def _choose_mode(
    mode: Mode, target: ModelConfig, runtime: Runtime, catalogue: Catalogue
) -> tuple[Mode, list[str]]:
    """Return the mode where the runtime serves it, else the nearest with a draft, or none."""
    options = [
        support
        for support in runtime.modes
        if support.verdict.value != "refused"
        and support.mode != "none"
        and (not support.target_families or target.family.value in support.target_families)
    ]
    options.sort(key=lambda support: (support.mode != mode, not _is_shown(support, target.id)))
    for support in options:
        drafts = _list_drafts(support.mode, target, catalogue)
        if drafts:
            return support.mode, drafts
    return "none", []


def _move_variant(
    variant: Variant, experiment: Experiment, runtime: Runtime, catalogue: Catalogue
) -> Variant | str:
    """Return the variant for the runtime, or why there is none."""
    if variant.mode == "none":
        return variant
    mode, drafts = _choose_mode(
        variant.mode, catalogue.models[experiment.target], runtime, catalogue
    )
    if mode == "none":
        support = _find_support(runtime, variant.mode)
        return f"variant {variant.name}: {support.reason}; nearest: {support.nearest}"
    kind = DRAFT_KINDS[mode]
    is_same = DRAFT_KINDS.get(variant.mode) == kind and variant.draft in drafts
    update = {
        "mode": mode,
        "draft": variant.draft if is_same else drafts[0],
        "num_speculative_tokens": (
            variant.num_speculative_tokens if is_same else DOCUMENTED_WINDOWS[kind]
        ),
        "method": None,
    }
    return variant.model_copy(update=update)


def _move_sweep(experiment: Experiment, runtime: Runtime, catalogue: Catalogue) -> Sweep | None:
    """Return the sweep over drafts that the runtime takes; None where it takes none."""
    sweep = experiment.sweep
    assert sweep is not None, "the caller asks where there is one"
    mode, drafts = _choose_mode(sweep.mode, catalogue.models[experiment.target], runtime, catalogue)
    if mode == "none":
        return None
    kept = [draft for draft in sweep.drafts if draft in drafts]
    return sweep.model_copy(update={"mode": mode, "drafts": tuple(kept or drafts)})


def _list_changes(
    pair: tuple[Experiment, Experiment], runtimes: tuple[Runtime, Runtime], catalogue: Catalogue
) -> Iterator[MigrationChange]:
    """Yield what differs: variants, image, counters, driver, then each variant's settings."""
    (experiment, moved), (before, after) = pair, runtimes
    later = {variant.name: variant for variant in moved.all_variants()}
    for variant in experiment.all_variants():
        twin = later.get(variant.name)
        reason = (
            "" if twin and twin.mode == variant.mode else _find_support(after, variant.mode).reason
        )
        yield MigrationChange(
            "variant", variant.name, _describe(variant), _describe(twin) if twin else "", reason
        )
    old_names = {variant.name for variant in experiment.all_variants()}
    for name, variant in later.items():
        if name not in old_names:
            yield MigrationChange("variant", name, "", _describe(variant))
    yield MigrationChange("image", "tag", before.image.tag, after.image.tag)
    yield MigrationChange("image", "support", before.support.value, after.support.value)
    for name in ("vllm", "sdk", "driver"):
        old, new = (getattr(runtime.versions, name).value for runtime in runtimes)
        if old != new:
            yield MigrationChange("driver" if name == "driver" else "image", name, old, new)
    counters = [
        (runtime.counters.speculation.value, runtime.counters.tokens_per_step.value)
        for runtime in runtimes
    ]
    if counters[0] != counters[1]:
        texts = [
            f"spec_decode counters {word}, at most {law} tokens a step" for word, law in counters
        ]
        yield MigrationChange("counters", "acceptance", *texts)
    if (
        before.spelling
        and after.spelling
        and before.spelling.artifact_is_cache != after.spelling.artifact_is_cache
    ):
        forms = [
            (
                "cache, copied to local disk"
                if spelling.artifact_is_cache
                else "folder that the server reads"
            )
            for spelling in (before.spelling, after.spelling)
        ]
        yield MigrationChange("artifact", "form", *forms)
    yield from _list_command_changes(pair, catalogue)


def _describe(variant: Variant) -> str:
    if variant.mode == "none":
        return "none"
    return f"{variant.mode}, {variant.draft or 'no draft'}, window {variant.num_speculative_tokens}"


def _list_command_changes(
    pair: tuple[Experiment, Experiment], catalogue: Catalogue
) -> Iterator[MigrationChange]:
    """Yield flags and variables that differ, once where variants agree, and every key."""
    experiment, moved = pair
    later = {variant.name: variant for variant in moved.all_variants()}
    seen = set()
    for variant in experiment.all_variants():
        if variant.name not in later:
            continue
        commands = [
            build_server_command(owner, entry, catalogue)
            for owner, entry in ((experiment, variant), (moved, later[variant.name]))
        ]
        flags = [pair_flags(command) for command in commands]
        for topic, (old, new) in (
            ("flag", flags),
            ("variable", [command.environment for command in commands]),
        ):
            for name in dict.fromkeys([*old, *new]):
                change = MigrationChange(topic, name, old.get(name, ""), new.get(name, ""))
                if change.before != change.after and change not in seen:
                    seen.add(change)
                    yield change
        keys = [
            compute_artifact_key(experiment, variant, catalogue).name,
            compute_artifact_key(moved, later[variant.name], catalogue).name,
        ]
        yield MigrationChange("artifact", variant.name, *keys)


def pair_flags(command: ServerCommand) -> dict[str, str]:
    """Return each flag with its value, `on` for a switch; the bare model first."""
    flags = dict[str, str]()
    arguments = list(command.arguments)
    for index, argument in enumerate(arguments):
        if argument.startswith("--"):
            value = arguments[index + 1] if index + 1 < len(arguments) else "--"
            flags[argument] = "on" if value.startswith("--") else value
    return flags


def _list_lost_support(before: Runtime, after: Runtime) -> Iterator[str]:
    """Yield each mode that the runtime before serves and the one after does not."""
    for support in before.modes:
        other = _find_support(after, support.mode)
        if support.verdict.value == "served" and other.verdict.value == "refused":
            yield f"mode {support.mode}: {other.reason}; nearest: {other.nearest}"


def _list_evidence(moved: Experiment, runtime: Runtime) -> Iterator[str]:
    """Yield what to prove on one node before anybody relies on the experiment."""
    modes: Sequence[Mode] = tuple(dict.fromkeys(variant.mode for variant in moved.all_variants()))
    for support in (_find_support(runtime, mode) for mode in modes):
        if not _is_shown(support, moved.target):
            yield f"{support.mode} with {moved.target} has no documented run: {support.reason}"
        shown = support.shown_max_num_seqs
        batch = moved.serving.max_num_seqs
        if shown is not None and batch > shown.value:
            yield (
                f"{support.mode} with max_num_seqs {batch}: the largest batch shown to run is"
                f" {shown.value}"
            )
    if runtime.proven_targets.value and moved.target not in runtime.proven_targets.value:
        yield f"{moved.target} on {runtime.name}: no documented run"
    spelling = runtime.spelling
    if spelling and spelling.compile.unproven.value:
        yield f"compile: {spelling.compile.unproven.value}"
    yield f"a first compile of every variant: at most {moved.compile.deadline_hours} h each"
