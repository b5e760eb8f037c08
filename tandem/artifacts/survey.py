"""What stands in a bucket, held against what experiments need of it: a row for each.

Invariant: every need has exactly one row, whether anything of it is stored or not, and so has every stored set
that nobody needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from tandem.artifacts.explain import KeySide, describe_differences, find_nearest_key
from tandem.artifacts.inventory import StoredSet
from tandem.artifacts.needs import BucketNeed
from tandem.shell_command import quote_command
from tandem.spec.artifact_key import compare_key_fields

State = Literal["present", "missing", "partial", "damaged", "unread", "newer", "stale", "not ours"]

# of what is needed: nothing can be served
UNAVAILABLE_STATES: frozenset[State] = frozenset({"missing", "partial", "damaged", "unread", "newer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRow:
    """One snapshot or artifact.

    Args:
        kind, name, prefix: as of the need or of the stored set.
        state: `stale` is whole and needed by nobody; `partial` has no manifest yet; `newer` has one of a newer release,
            `unread` one that S3 did not give.
        used_by: who needs it; empty for nobody.
        size: bytes stored, 0 for nothing.
        last_write_at: when something of it was last written, None for nothing stored.
        why: in phrases: what is damaged, who holds it until when, or in what it differs from what is needed.
        command: what makes it, where it is needed and not whole.
        is_in_progress: somebody holds its lease now.
    """

    kind: Literal["model", "artifact"]
    name: str
    prefix: str
    state: State
    used_by: tuple[str, ...]
    size: int = 0
    last_write_at: datetime | None = None
    why: tuple[str, ...] = ()
    command: str = ""
    is_in_progress: bool = False

    @property
    def is_unavailable(self) -> bool:
        """Whether somebody needs it and cannot have it."""
        return bool(self.used_by) and self.state in UNAVAILABLE_STATES


def survey_bucket(needs: Sequence[BucketNeed], stored_sets: Iterable[StoredSet]) -> tuple[SurveyRow, ...]:
    """Join needs and stored sets: first what is needed, models before artifacts, then what nobody needs."""
    by_prefix = {stored_set.prefix: stored_set for stored_set in stored_sets}
    rows = [_survey_need(need, by_prefix.pop(need.prefix, None)) for need in needs]
    extra_sets = sorted(by_prefix.values(), key=lambda stored_set: (stored_set.kind != "model", stored_set.name))
    return (*rows, *(_survey_extra(stored_set, needs) for stored_set in extra_sets))


def _survey_need(need: BucketNeed, stored_set: StoredSet | None) -> SurveyRow:
    row = SurveyRow(
        kind=need.kind, name=need.name, prefix=need.prefix, state="missing", used_by=need.used_by, command=need.command
    )
    if stored_set is None:
        return row
    state, why = _describe_state(stored_set)
    if state == "present" and stored_set.manifest is not None:
        stored_fields = stored_set.manifest.fields
        if need.kind == "model":  # its manifest says more, such as the commit behind a name that moves
            stored_fields = {name: stored_fields.get(name) for name in need.fields}
        if differences := compare_key_fields(stored_fields, need.fields):
            state, why = "damaged", ("its manifest says other fields than its name", *describe_differences(differences))
    return replace(
        row,
        state=state,
        why=why,
        command="" if state in {"present", "newer", "unread"} else need.command,
        size=stored_set.size,
        last_write_at=stored_set.last_write_at,
        is_in_progress=bool(stored_set.lease and stored_set.lease.is_active),
    )


def _describe_state(stored_set: StoredSet) -> tuple[State, tuple[str, ...]]:
    """Return what a set is, whoever needs it, and why it is not whole."""
    if stored_set.condition == "whole":
        return "present", ()
    if stored_set.condition in {"newer", "unread"} and stored_set.fault is not None:
        return stored_set.condition, (stored_set.fault.problem, stored_set.fault.change)
    notes = [
        f"an upload refused and kept it: {quote_command('tandem', 'artifacts', 'import', '--refused', run)}"
        for run in stored_set.rejection_runs
    ]
    return stored_set.condition, (stored_set.damage or stored_set.writer, *notes)


def _survey_extra(stored_set: StoredSet, needs: Sequence[BucketNeed]) -> SurveyRow:
    state, why = _describe_state(stored_set)
    if not stored_set.is_ours:
        state, why = "not ours", ("neither manifest nor lease: left alone",)
    elif state == "present" and stored_set.manifest is not None:
        state, why = "stale", _compare_with_needs(stored_set.name, stored_set.manifest.fields, stored_set.kind, needs)
    return SurveyRow(
        kind=stored_set.kind,
        name=stored_set.name,
        prefix=stored_set.prefix,
        state=state,
        used_by=(),
        size=stored_set.size,
        last_write_at=stored_set.last_write_at,
        why=why,
    )


def _compare_with_needs(
    name: str, fields: Mapping[str, Any], kind: str, needs: Sequence[BucketNeed]
) -> tuple[str, ...]:
    """Say in what a set that nobody needs differs from the nearest that somebody does."""
    sides = [KeySide(name=need.name, fields=need.fields, where="needed") for need in needs if need.kind == kind]
    if kind == "model":
        fields = {field: fields.get(field) for field in ("id", "revision")}
        sides = [side for side in sides if side.fields["id"] == fields["id"]]
    match = find_nearest_key(name, fields, sides)
    if match is None:
        return (f"no experiment uses {'this model' if kind == 'model' else 'any artifact'}",)
    nearest_side, differences = match
    heading = (f"nearest needed {nearest_side.name}:",) if kind == "artifact" else ()
    return (*heading, *describe_differences(differences))
