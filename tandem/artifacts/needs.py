"""Needs of an environment's experiments in its bucket: model snapshots and compiled artifacts.

Invariant: the same snapshot or key is one need, for any number of variants; each need names all its
variants and the command that makes the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from tandem.declarations import names
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment, Variant
from tandem.declarations.variant_key import compute_artifact_key


@dataclass(frozen=True, kw_only=True)
class BucketNeed:
    """One stored set of files that variants need.

    Args:
        kind: a model snapshot, or a compiled artifact.
        name: id@revision, or the artifact key's name.
        prefix: of the set in the bucket, without a slash at its end.
        fields: required in its manifest: the key's fields, or id and revision.
        used_by: experiment/variant, after the environment's name and a colon for another
            environment.
        command: has the runner make the set.
    """

    kind: Literal["model", "artifact"]
    name: str
    prefix: str
    fields: dict[str, Any]
    used_by: tuple[str, ...]
    command: str


def list_needs(
    environment: str,
    experiments: Iterable[Experiment],
    catalogue: Catalogue,
    *,
    is_foreign: bool = False,
) -> Iterator[BucketNeed]:
    """Yield the needs of each variant of the experiments.

    Args:
        environment: the name of the one that hosts the experiments.
        experiments: that have passed the rules.
        catalogue: of their models and runtimes.
        is_foreign: whether the environment's name stands in front of each user.
    """
    prefix = f"{environment}:" if is_foreign else ""
    for experiment in experiments:
        for variant in experiment.all_variants():
            user = f"{prefix}{experiment.name}/{variant.name}"
            yield from _list_variant_needs(environment, experiment, variant, user, catalogue)


def _list_variant_needs(
    environment: str, experiment: Experiment, variant: Variant, user: str, catalogue: Catalogue
) -> Iterator[BucketNeed]:
    for model_id in filter(None, (experiment.target, variant.draft)):
        model = catalogue.models[model_id]
        yield BucketNeed(
            kind="model",
            name=model.full_id(),
            prefix=model.prefix(),
            fields={"id": model.id, "revision": model.revision_or_main()},
            used_by=(user,),
            command=names.stage_command(environment, experiment.name),
        )
    key = compute_artifact_key(experiment, variant, catalogue)
    yield BucketNeed(
        kind="artifact",
        name=key.name,
        prefix=key.prefix,
        fields=key.as_fields(),
        used_by=(user,),
        command=names.compile_command(environment, experiment.name),
    )


def merge_needs(needs: Iterable[BucketNeed]) -> tuple[BucketNeed, ...]:
    """Return each need once with all its users, models first."""
    by_prefix: dict[str, BucketNeed] = {}
    for need in needs:
        first_need = by_prefix.setdefault(need.prefix, need)
        by_prefix[need.prefix] = replace(
            first_need, used_by=tuple(dict.fromkeys((*first_need.used_by, *need.used_by)))
        )
    return tuple(sorted(by_prefix.values(), key=lambda need: (need.kind != "model", need.name)))
