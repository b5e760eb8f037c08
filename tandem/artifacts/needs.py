"""What the experiments of an environment need of its bucket: model snapshots and compiled artifacts.

Invariant: the same snapshot or key is one need, however many variants have it, and each need names every one
of them and the command that makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from tandem.spec import names
from tandem.spec.artifact_key import ArtifactKey
from tandem.spec.catalogue import Catalogue
from tandem.spec.experiment import Experiment
from tandem.spec.variant_key import compute_artifact_key


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketNeed:
    """One stored set of files that somebody's variants need.

    Args:
        kind: a model snapshot, or a compiled artifact.
        name: id@revision, or the artifact key's name.
        prefix: where it is stored, without a slash at its end.
        fields: what its manifest must say: the key's fields, or id and revision.
        used_by: experiment/variant, of another environment with its name and a colon in front.
        command: starts the job that makes it.
    """

    kind: Literal["model", "artifact"]
    name: str
    prefix: str
    fields: dict[str, Any]
    used_by: tuple[str, ...]
    command: str


def list_needs(experiments: Iterable[Experiment], catalogue: Catalogue) -> tuple[BucketNeed, ...]:
    """Return what the experiments need, models first, each once with all who use it.

    Args:
        experiments: hosted experiments that have passed the rules.
        catalogue: the models and runtimes they name.
    """
    needs_by_prefix: dict[str, BucketNeed] = {}
    for experiment in experiments:
        for need in _list_experiment_needs(experiment, catalogue):
            known_need = needs_by_prefix.get(need.prefix, need)
            users = dict.fromkeys((*known_need.used_by, *need.used_by)) if known_need is not need else need.used_by
            needs_by_prefix[need.prefix] = replace(known_need, used_by=tuple(users))
    return tuple(sorted(needs_by_prefix.values(), key=lambda need: (need.kind != "model", need.name)))


def merge_needs(
    own_needs: Iterable[BucketNeed], needs_by_environment: dict[str, tuple[BucketNeed, ...]]
) -> tuple[BucketNeed, ...]:
    """Return the needs of all environments that share a bucket."""
    needs_by_prefix = {need.prefix: need for need in own_needs}
    for environment_name, environment_needs in needs_by_environment.items():
        for need in environment_needs:
            users = tuple(f"{environment_name}:{user}" for user in need.used_by)
            known_need = needs_by_prefix.get(need.prefix)
            needs_by_prefix[need.prefix] = replace(
                known_need or need, used_by=(*known_need.used_by, *users) if known_need else users
            )
    return tuple(sorted(needs_by_prefix.values(), key=lambda need: (need.kind != "model", need.name)))


def _list_experiment_needs(experiment: Experiment, catalogue: Catalogue) -> Iterator[BucketNeed]:
    namespace = names.experiment_namespace(experiment)
    for variant in experiment.all_variants():
        user = (f"{experiment.name}/{variant.name}",)
        for model_id in (experiment.target, *([variant.draft] if variant.draft else [])):
            model = catalogue.models[model_id]
            yield BucketNeed(
                kind="model", name=model.full_id(), prefix=model.prefix(), used_by=user,
                fields={"id": model.id, "revision": model.revision_or_main()},
                command=names.start_command(namespace, names.stage_job_name(model)),
            )  # fmt: skip
        yield _artifact_need(compute_artifact_key(experiment, variant, catalogue), namespace, user)


def _artifact_need(key: ArtifactKey, namespace: str, user: tuple[str, ...]) -> BucketNeed:
    return BucketNeed(
        kind="artifact", name=key.name, prefix=key.prefix, fields=key.as_fields(), used_by=user,
        command=names.start_command(namespace, names.compile_job_name(key)),
    )  # fmt: skip
