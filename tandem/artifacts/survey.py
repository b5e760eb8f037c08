"""Comparison of the sets in a bucket with the needs of experiments: a row for each.

Invariant: every need, stored or not, has exactly one row, and so has every stored set that nobody
needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from tandem.artifacts.explain import describe_differences
from tandem.artifacts.inventory import StoredSet
from tandem.artifacts.manifest import MANIFEST_NAME, Manifest, compare_manifest_fields
from tandem.artifacts.needs import BucketNeed
from tandem.shell_command import quote_command

State = Literal[
    "present", "missing", "partial", "damaged", "unread", "unknown", "stale", "not ours"
]


@dataclass(frozen=True, kw_only=True)
class SurveyRow:
    """One snapshot or artifact, as --json prints it.

    Args:
        kind, name, prefix: as of the need or of the stored set.
        state: `stale` is whole and needed by nobody; `partial` has no manifest yet; `unknown` has a
            manifest of another schema, `unread` a manifest that S3 did not return.
        used_by: variants that need the set; empty for none.
        size: bytes stored, 0 for nothing.
        written: time of the last write, None for nothing stored.
        why: in phrases: the damage, the holder and its end time, or the differences from the
            nearest need.
        commands: make the set, in order; empty unless the set is needed, not whole and no job makes
            it.
    """

    kind: Literal["model", "artifact"]
    name: str
    prefix: str
    state: State
    used_by: tuple[str, ...] = ()
    size: int = 0
    written: datetime | None = None
    why: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def needs_person(self) -> bool:
        """Whether no Job repairs the set, so that a person has to look first."""
        return self.state in {"damaged", "unknown", "unread"}


def survey_bucket(
    bucket: str, needs: Sequence[BucketNeed], stored_sets: Iterable[StoredSet]
) -> tuple[SurveyRow, ...]:
    """Return a row for each need, in order, then one for each unneeded set, models first."""
    by_prefix = {stored_set.prefix: stored_set for stored_set in stored_sets}
    rows = [_survey_need(bucket, need, by_prefix.pop(need.prefix, None)) for need in needs]
    extra_sets = sorted(
        by_prefix.values(), key=lambda stored_set: (stored_set.kind != "model", stored_set.name)
    )
    return (*rows, *(_survey_extra(stored_set, needs) for stored_set in extra_sets))


def _survey_need(bucket: str, need: BucketNeed, stored_set: StoredSet | None) -> SurveyRow:
    state, why = _describe_state(stored_set)
    manifest = None
    if stored_set is not None and state == "present":
        manifest = stored_set.manifest
    differences = compare_manifest_fields(manifest, need.kind, need.fields) if manifest else {}
    if differences:
        state = "damaged"
        why = ("its manifest has other fields than its name", *describe_differences(differences))
    is_in_progress = (
        stored_set is not None and stored_set.lease is not None and stored_set.lease.is_active
    )
    commands: tuple[str, ...] = (
        () if is_in_progress or state in {"present", "unknown", "unread"} else (need.command,)
    )
    if commands and state == "damaged":
        commands = (
            quote_command("aws", "s3", "rm", f"s3://{bucket}/{need.prefix}/{MANIFEST_NAME}"),
            *commands,
        )
    return _build_row(
        need, stored_set, state=state, why=why, used_by=need.used_by, commands=commands
    )


def _build_row(
    target: BucketNeed | StoredSet, stored_set: StoredSet | None, **details: Any
) -> SurveyRow:
    size, written = (stored_set.size, stored_set.last_write_at) if stored_set else (0, None)
    return SurveyRow(
        kind=target.kind,
        name=target.name,
        prefix=target.prefix,
        size=size,
        written=written,
        **details,
    )


def _describe_state(stored_set: StoredSet | None) -> tuple[State, tuple[str, ...]]:
    """Return the state of a set, needed or not, and why it is not whole."""
    if stored_set is None or stored_set.condition == "whole":
        return "present" if stored_set else "missing", ()
    if stored_set.condition in {"unknown", "unread"} and stored_set.fault is not None:
        return stored_set.condition, (stored_set.fault.problem, stored_set.fault.change)
    notes = [
        "an upload refused and kept it:"
        f" {quote_command('tandem', 'artifacts', 'import', '--refused', run)}"
        for run in stored_set.rejection_runs
    ]
    return stored_set.condition, (stored_set.damage or stored_set.writer, *notes)


def _survey_extra(stored_set: StoredSet, needs: Sequence[BucketNeed]) -> SurveyRow:
    state, why = _describe_state(stored_set)
    if not stored_set.is_ours:
        state = "not ours"
        why = ("neither manifest nor lease: left alone",)
    elif state == "present" and stored_set.manifest is not None:
        state = "stale"
        why = _compare_with_needs(stored_set.manifest, needs)
    return _build_row(stored_set, stored_set, state=state, why=why)


def _compare_with_needs(manifest: Manifest, needs: Sequence[BucketNeed]) -> tuple[str, ...]:
    """Return the differences of an unneeded set from the nearest need."""
    differences_by_name = {}
    for need in needs:
        if need.kind != manifest.kind or need.name == manifest.name:
            continue
        if need.kind == "model" and need.fields["id"] != manifest.fields.get("id"):
            continue
        differences = compare_manifest_fields(manifest, need.kind, need.fields)
        differences_by_name[need.name] = differences
    if not differences_by_name:
        return (f"no experiment uses this {manifest.kind}",)
    names = sorted(differences_by_name)
    nearest_name = min(names, key=lambda name: len(differences_by_name[name]))
    sentences = describe_differences(differences_by_name[nearest_name])
    if manifest.kind == "artifact":
        sentences.insert(0, f"nearest needed {nearest_name}")
    return tuple(sentences)
