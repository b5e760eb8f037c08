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
from tandem.spec.variant_key import artifact_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
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


def needs(experiments: Iterable[Experiment], catalogue: Catalogue) -> tuple[Need, ...]:
    """Return what the experiments need, models first, each once with all who use it.

    Args:
        experiments: hosted experiments that have passed the rules.
        catalogue: the models and runtimes they name.
    """
    found: dict[str, Need] = {}
    for experiment in experiments:
        for need in _of_experiment(experiment, catalogue):
            first = found.get(need.prefix, need)
            users = dict.fromkeys((*first.used_by, *need.used_by)) if first is not need else need.used_by
            found[need.prefix] = replace(first, used_by=tuple(users))
    return tuple(sorted(found.values(), key=lambda need: (need.kind != "model", need.name)))


def together(own: Iterable[Need], others: dict[str, tuple[Need, ...]]) -> tuple[Need, ...]:
    """Return the needs of all environments that share a bucket; `others` is an environment's name to its needs."""
    found = {need.prefix: need for need in own}
    for name, theirs in others.items():
        for need in theirs:
            users = tuple(f"{name}:{user}" for user in need.used_by)
            first = found.get(need.prefix)
            found[need.prefix] = replace(first or need, used_by=(*first.used_by, *users) if first else users)
    return tuple(sorted(found.values(), key=lambda need: (need.kind != "model", need.name)))


def _of_experiment(experiment: Experiment, catalogue: Catalogue) -> Iterator[Need]:
    namespace = names.namespace(experiment)
    for variant in experiment.all_variants():
        user = (f"{experiment.name}/{variant.name}",)
        for identity in (experiment.target, *([variant.draft] if variant.draft else [])):
            model = catalogue.models[identity]
            yield Need(
                kind="model", name=model.pinned(), prefix=model.prefix(), used_by=user,
                fields={"id": model.id, "revision": model.revision_or_main()},
                command=names.start_command(namespace, names.stage_job(model)),
            )  # fmt: skip
        yield _artifact(artifact_key(experiment, variant, catalogue), namespace, user)


def _artifact(key: ArtifactKey, namespace: str, user: tuple[str, ...]) -> Need:
    return Need(
        kind="artifact", name=key.name, prefix=key.prefix, fields=key.as_fields(), used_by=user,
        command=names.start_command(namespace, names.compile_job(key)),
    )  # fmt: skip
