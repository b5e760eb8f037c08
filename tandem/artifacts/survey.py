"""What stands in a bucket, held against what experiments need of it: a row for each.

Invariant: every need has exactly one row, whether anything of it is stored or not, and so has every stored set
that nobody needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tandem.artifacts.explain import Differences, KeySide, describe_differences, find_nearest_key
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
    sides = {kind: [_need_side(need) for need in needs if need.kind == kind] for kind in ("model", "artifact")}
    extra_sets = sorted(by_prefix.values(), key=lambda stored_set: (stored_set.kind != "model", stored_set.name))
    return (*rows, *(_build_extra_row(stored_set, sides[stored_set.kind]) for stored_set in extra_sets))


def compare_fields(need: BucketNeed, stored_set: StoredSet) -> Differences:
    """Return what a stored manifest says otherwise than the need: field to (stored, needed)."""
    assert stored_set.manifest is not None
    stored_fields = stored_set.manifest.fields
    if need.kind == "model":  # its manifest says more, such as the commit behind a name that moves
        stored_fields = {name: stored_fields.get(name) for name in need.fields}
    return compare_key_fields(stored_fields, need.fields)


def _survey_need(need: BucketNeed, stored_set: StoredSet | None) -> SurveyRow:
    if stored_set is None:
        return _build_need_row(need, None, "missing")
    state, why = _describe_incomplete_set(stored_set)
    if (
        state is None
        and stored_set.manifest is not None
        and (field_reasons := describe_differences(compare_fields(need, stored_set)))
    ):
        state, why = "damaged", ("its manifest says other fields than its name", *field_reasons)
    return _build_need_row(need, stored_set, state or "present", why)


def _describe_incomplete_set(stored_set: StoredSet) -> tuple[State | None, tuple[str, ...]]:
    """Return what a set is that is not whole, and why; None for a whole one."""
    if stored_set.condition == "whole":
        return None, ()
    if stored_set.condition in {"newer", "unread"} and stored_set.fault is not None:
        return stored_set.condition, (stored_set.fault.problem, stored_set.fault.change)
    import_commands = (
        quote_command("tandem", "artifacts", "import", "--refused", run) for run in stored_set.rejection_runs
    )
    rejection_notes = (f"an upload refused and kept it: {command}" for command in import_commands)
    return stored_set.condition, (stored_set.damage or stored_set.writer, *rejection_notes)


def _build_need_row(
    need: BucketNeed, stored_set: StoredSet | None, state: State, why: tuple[str, ...] = ()
) -> SurveyRow:
    return SurveyRow(
        kind=need.kind, name=need.name, prefix=need.prefix, state=state, used_by=need.used_by, why=why,
        command="" if state in {"present", "newer", "unread"} else need.command,
        size=stored_set.size if stored_set else 0, last_write_at=stored_set.last_write_at if stored_set else None,
        is_in_progress=bool(stored_set and stored_set.lease and stored_set.lease.is_active),
    )  # fmt: skip


def _build_extra_row(stored_set: StoredSet, need_sides: Sequence[KeySide]) -> SurveyRow:
    state, why = _classify_extra_set(stored_set, need_sides)
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


def _classify_extra_set(stored_set: StoredSet, need_sides: Sequence[KeySide]) -> tuple[State, tuple[str, ...]]:
    if not stored_set.is_ours:
        return "not ours", ("neither manifest nor lease: left alone",)
    state, why = _describe_incomplete_set(stored_set)
    if state is not None or stored_set.manifest is None:
        return state or "partial", why
    fields = stored_set.manifest.fields
    if stored_set.kind == "model":
        fields = {name: fields.get(name) for name in ("id", "revision")}
        need_sides = [side for side in need_sides if side.fields["id"] == fields["id"]]
    nearest_match = find_nearest_key(stored_set.name, fields, need_sides)
    if nearest_match is None:
        return "stale", (
            "no experiment uses this model" if stored_set.kind == "model" else "no experiment uses any artifact",
        )
    nearest_side, field_differences = nearest_match
    return "stale", ((f"nearest needed {nearest_side.name}:",) if stored_set.kind == "artifact" else ()) + tuple(
        describe_differences(field_differences)
    )


def _need_side(need: BucketNeed) -> KeySide:
    return KeySide(name=need.name, fields=need.fields, where="needed", aliases=need.used_by)
