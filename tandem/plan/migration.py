"""An experiment on another runtime: variants in its modes, and everything that changes.

Invariant: pure; every difference comes from the two runtimes' data and the two servers' commands. A
setting that the other runtime does not read leaves the experiment. The rules say whether the result
is legal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
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
from tandem.declarations.runtime import Runtime
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


@dataclass(frozen=True, kw_only=True)
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
    variants = []
    losses = []
    for variant in experiment.variants:
        new_variant = _move_variant(variant, experiment, after, catalogue)
        if new_variant is not None:
            variants.append(new_variant)
        else:
            support = after.mode(variant.mode)
            losses.append(f"variant {variant.name}: {support.reason}; nearest: {support.nearest}")
    sweep = _move_sweep(experiment, after, catalogue) if experiment.sweep else None
    if experiment.sweep and sweep is None:
        reason = after.mode(experiment.sweep.mode).reason
        losses.append(f"sweep {experiment.sweep.prefix}: {reason}")

    tuning = experiment.serving.tuning
    names = set(after.spelling.tuning_keys if after.spelling else ())
    values = {name: getattr(tuning, name) for name in tuning.model_fields_set}
    losses += [
        f"serving.tuning.{name}: {after.name} reads no such setting"
        for name in sorted(values.keys() - names)
    ]
    tuning = TuningSettings(**{name: values[name] for name in values.keys() & names})

    migrated = experiment.model_copy(
        update={
            "name": f"{experiment.name}-{after.name}",
            "runtime": after.name,
            "variants": tuple(variants),
            "sweep": sweep,
            "serving": experiment.serving.model_copy(update={"tuning": tuning}),
        }
    )
    modes = [after.mode(variant.mode) for variant in migrated.all_variants()]
    is_unproven = any(not support.is_shown(experiment.target) for support in modes)
    migrated = migrated.model_copy(update={"accept_unproven": is_unproven})
    changes = (
        *_list_variant_changes(experiment, migrated, after),
        *_list_runtime_changes(before, after),
        *_list_command_changes(experiment, migrated, catalogue),
    )
    return ExperimentMigration(
        experiment=migrated,
        changes=changes,
        losses=(*losses, *_list_lost_support(before, after)),
        evidence=tuple(_list_evidence(migrated, after)),
    )


def _find_runtime(experiment: Experiment, name: str, catalogue: Catalogue) -> Runtime:
    """Return the other runtime, or refuse with the nearest that can be had."""
    family = catalogue.models[experiment.target].family.value
    legal = [
        runtime.name
        for runtime in catalogue.runtimes.values()
        if runtime.rendered
        and runtime.name != experiment.runtime
        and family in runtime.target_families.value
    ]
    runtime = catalogue.runtimes.get(name)
    if runtime is None:
        problem = f"no runtime is called {name}"
    elif name == experiment.runtime:
        problem = f"{experiment.name} is on {name} already"
    elif not runtime.rendered:
        reason = runtime.not_rendered_because or "it is known, and not rendered"
        problem = f"{name} cannot be deployed: {reason}"
    elif name not in legal:
        problem = f"{name} serves no target of family {family}"
    else:
        return runtime
    change = f"keep {experiment.runtime}: no other serves {family}"
    if legal:
        change = f"name one of: {', '.join(legal)}"
    raise InputError(problem, where="--runtime", change=change)


def _list_drafts(mode: Mode, target: ModelConfig, catalogue: Catalogue) -> list[str]:
    """Return the models that draft for a target in a mode, the largest first."""
    drafts = [
        model
        for model in catalogue.models.values()
        if model.kind.value == DRAFT_KINDS.get(mode) and _can_draft(model, target)
    ]
    drafts.sort(key=lambda model: (model.layers.value, model.hidden_size.value), reverse=True)
    return [model.id for model in drafts]


def _can_draft(model: ModelConfig, target: ModelConfig) -> bool:
    """Return whether a model is a head of the target, or smaller with the same tokenizer."""
    if model.id == target.id or model.layers.value >= target.layers.value:
        return False
    if model.head_of:
        return model.head_of == target.id
    return model.tokenizer.value == target.tokenizer.value


def _choose_mode(
    mode: Mode, target: ModelConfig, runtime: Runtime, catalogue: Catalogue
) -> tuple[Mode, list[str]]:
    """Return the mode where the runtime serves it, else the nearest with a draft, or none."""
    options = [
        support
        for support in runtime.modes
        if support.verdict.value != "refused"
        and support.mode != "none"
        and support.serves_family(target.family.value)
    ]
    options.sort(key=lambda support: (support.mode != mode, not support.is_shown(target.id)))
    for support in options:
        drafts = _list_drafts(support.mode, target, catalogue)
        if drafts:
            return support.mode, drafts
    return "none", []


def _move_variant(
    variant: Variant, experiment: Experiment, runtime: Runtime, catalogue: Catalogue
) -> Variant | None:
    """Return the variant for the runtime; None where it has no such mode."""
    if variant.mode == "none":
        return variant
    mode, drafts = _choose_mode(
        variant.mode, catalogue.models[experiment.target], runtime, catalogue
    )
    if mode == "none":
        return None
    kind = DRAFT_KINDS[mode]
    draft = drafts[0]
    window: int | None = DOCUMENTED_WINDOWS[kind]
    if DRAFT_KINDS.get(variant.mode) == kind and variant.draft in drafts:
        draft = variant.draft
        window = variant.num_speculative_tokens
    update = {"mode": mode, "draft": draft, "num_speculative_tokens": window, "method": None}
    return variant.model_copy(update=update)


def _move_sweep(experiment: Experiment, runtime: Runtime, catalogue: Catalogue) -> Sweep | None:
    """Return the sweep over drafts that the runtime takes; None where it takes none."""
    sweep = experiment.sweep
    assert sweep is not None, "the caller asks where there is one"
    mode, drafts = _choose_mode(sweep.mode, catalogue.models[experiment.target], runtime, catalogue)
    if mode == "none":
        return None
    own_drafts = [draft for draft in sweep.drafts if draft in drafts]
    return sweep.model_copy(update={"mode": mode, "drafts": tuple(own_drafts or drafts)})


def _list_variant_changes(
    experiment: Experiment, migrated: Experiment, runtime: Runtime
) -> Iterator[MigrationChange]:
    """Yield what each variant becomes, then those that the sweep adds."""
    before = {variant.name: variant for variant in experiment.all_variants()}
    after = {variant.name: variant for variant in migrated.all_variants()}
    for name in dict.fromkeys((*before, *after)):
        old = before.get(name)
        new = after.get(name)
        reason = ""
        if old and (new is None or new.mode != old.mode):
            reason = runtime.mode(old.mode).reason
        yield MigrationChange("variant", name, _describe(old), _describe(new), reason)


def _list_runtime_changes(before: Runtime, after: Runtime) -> Iterator[MigrationChange]:
    """Yield what differs of image, driver, counters and artifact."""
    new_facts = _list_runtime_facts(after)
    for (topic, subject), text in _list_runtime_facts(before).items():
        new_text = new_facts.get((topic, subject), text)
        if new_text != text:
            yield MigrationChange(topic, subject, text, new_text)


def _list_runtime_facts(runtime: Runtime) -> dict[tuple[str, str], str]:
    """Return what of a runtime a person has to know, by topic and subject."""
    counters = runtime.counters
    words = f"spec_decode counters {counters.speculation.value}"
    facts = {
        ("image", "tag"): runtime.image.tag,
        ("image", "support"): runtime.support.value,
        ("image", "vllm"): runtime.versions.vllm.value,
        ("image", "sdk"): runtime.versions.sdk.value,
        ("driver", "driver"): runtime.versions.driver.value,
        ("counters", "acceptance"): (
            f"{words}, at most {counters.tokens_per_step.value} tokens a step"
        ),
    }
    if runtime.spelling:
        is_cache = runtime.spelling.artifact_is_cache
        form = "cache, copied to local disk" if is_cache else "folder that the server reads"
        facts["artifact", "form"] = form
    return facts


def _describe(variant: Variant | None) -> str:
    if variant is None:
        return ""
    if variant.mode == "none":
        return "none"
    return f"{variant.mode}, {variant.draft or 'no draft'}, window {variant.num_speculative_tokens}"


def _list_command_changes(
    experiment: Experiment, migrated: Experiment, catalogue: Catalogue
) -> Iterator[MigrationChange]:
    """Yield flags and variables that differ, once where variants agree, and every key."""
    later = {variant.name: variant for variant in migrated.all_variants()}
    seen: set[MigrationChange] = set()
    for variant in experiment.all_variants():
        twin = later.get(variant.name)
        if twin is None:
            continue
        old = build_server_command(experiment, variant, catalogue)
        new = build_server_command(migrated, twin, catalogue)
        changes = (
            *_compare_settings("flag", pair_flags(old), pair_flags(new)),
            *_compare_settings("variable", old.environment, new.environment),
        )
        for change in changes:
            if change not in seen:
                yield change
        seen.update(changes)
        old_key = compute_artifact_key(experiment, variant, catalogue)
        new_key = compute_artifact_key(migrated, twin, catalogue)
        yield MigrationChange("artifact", variant.name, old_key.name, new_key.name)


def _compare_settings(
    topic: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[MigrationChange]:
    for name in dict.fromkeys((*before, *after)):
        old = before.get(name, "")
        new = after.get(name, "")
        if old != new:
            yield MigrationChange(topic, name, old, new)


def pair_flags(command: ServerCommand) -> dict[str, str]:
    """Return each flag with its value, `on` for a switch; the bare model first."""
    flags = {}
    for argument, value in pairwise([*command.arguments, "--"]):
        if argument.startswith("--"):
            flags[argument] = "on" if value.startswith("--") else value
    return flags


def _list_lost_support(before: Runtime, after: Runtime) -> Iterator[str]:
    """Yield each mode that the runtime before serves and the one after does not."""
    for support in before.modes:
        twin = after.mode(support.mode)
        if support.verdict.value == "served" and twin.verdict.value == "refused":
            yield f"mode {support.mode}: {twin.reason}; nearest: {twin.nearest}"


def _list_evidence(experiment: Experiment, runtime: Runtime) -> Iterator[str]:
    """Yield what to prove on one node before anybody relies on the experiment."""
    target = experiment.target
    batch = experiment.serving.max_num_seqs
    for mode in dict.fromkeys(variant.mode for variant in experiment.all_variants()):
        support = runtime.mode(mode)
        if not support.is_shown(target):
            yield f"{mode} with {target} has no documented run: {support.reason}"
        most = support.shown_max_num_seqs
        if most is not None and batch > most.value:
            largest = f"the largest batch shown to run is {most.value}"
            yield f"{mode} with max_num_seqs {batch}: {largest}"
    if runtime.proven_targets.value and target not in runtime.proven_targets.value:
        yield f"{target} on {runtime.name}: no documented run"
    if runtime.spelling and runtime.spelling.compile.unproven.value:
        yield f"compile: {runtime.spelling.compile.unproven.value}"
    yield f"a first compile of every variant: at most {experiment.compile.deadline_hours} h each"
