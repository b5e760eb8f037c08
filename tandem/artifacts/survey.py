"""What stands in a bucket, held against what experiments need of it: a row for each.

Invariant: every need has exactly one row, whether anything of it is stored or not, and so has every stored set
that nobody needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tandem.artifacts.contents import StoredSet
from tandem.artifacts.explain import Differences, Side, nearest, reasons
from tandem.artifacts.needs import Need
from tandem.shell_command import quote_command
from tandem.spec.artifact_key import differences

State = Literal["present", "missing", "partial", "damaged", "unread", "newer", "stale", "not ours"]

# of what is needed: nothing can be served
WANTING: frozenset[State] = frozenset({"missing", "partial", "damaged", "unread", "newer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One snapshot or artifact.

    Args:
        kind, name, prefix: as of the need or of the stored set.
        state: `stale` is whole and needed by nobody; `partial` has no manifest yet; `newer` has one of a newer release,
            `unread` one that S3 did not give.
        used_by: who needs it; empty for nobody.
        size: bytes stored, 0 for nothing.
        written: when something of it was last written, None for nothing stored.
        why: in phrases: what is damaged, who holds it until when, or in what it differs from what is needed.
        command: what makes it, where it is needed and not whole.
        being_made: somebody holds its lease now.
    """

    kind: Literal["model", "artifact"]
    name: str
    prefix: str
    state: State
    used_by: tuple[str, ...]
    size: int = 0
    written: datetime | None = None
    why: tuple[str, ...] = ()
    command: str = ""
    being_made: bool = False

    @property
    def wanting(self) -> bool:
        """Whether somebody needs it and cannot have it."""
        return bool(self.used_by) and self.state in WANTING


def survey(needed: Sequence[Need], stored: Iterable[StoredSet]) -> tuple[Row, ...]:
    """Join needs and stored sets: first what is needed, models before artifacts, then what nobody needs."""
    by_prefix = {found.prefix: found for found in stored}
    rows = [_needed(need, by_prefix.pop(need.prefix, None)) for need in needed]
    sides = {kind: [_side(need) for need in needed if need.kind == kind] for kind in ("model", "artifact")}
    left = sorted(by_prefix.values(), key=lambda found: (found.kind != "model", found.name))
    return (*rows, *(_unneeded(found, sides[found.kind]) for found in left))


def mismatch(need: Need, found: StoredSet) -> Differences:
    """Return what a stored manifest says otherwise than the need: field to (stored, needed)."""
    assert found.manifest is not None
    said = found.manifest.fields
    if need.kind == "model":  # its manifest says more, such as the commit behind a name that moves
        said = {name: said.get(name) for name in need.fields}
    return differences(said, need.fields)


def _needed(need: Need, found: StoredSet | None) -> Row:
    if found is None:
        return _row(need, None, "missing")
    state, why = _unwhole(found)
    if state is None and found.manifest is not None and (told := reasons(mismatch(need, found))):
        state, why = "damaged", ("its manifest says other fields than its name", *told)
    return _row(need, found, state or "present", why)


def _unwhole(found: StoredSet) -> tuple[State | None, tuple[str, ...]]:
    """Return what a set is that is not whole, and why; None for a whole one."""
    if found.condition == "whole":
        return None, ()
    if found.condition in {"newer", "unread"} and found.fault is not None:
        return found.condition, (found.fault.what, found.fault.change)
    adopt = (quote_command("tandem", "artifacts", "adopt", "--refused", run) for run in found.refused)
    kept = (f"an upload refused and kept it: {command}" for command in adopt)
    return found.condition, (found.damage or found.writer, *kept)


def _row(need: Need, found: StoredSet | None, state: State, why: tuple[str, ...] = ()) -> Row:
    return Row(
        kind=need.kind, name=need.name, prefix=need.prefix, state=state, used_by=need.used_by, why=why,
        command="" if state in {"present", "newer", "unread"} else need.command,
        size=found.size if found else 0, written=found.written if found else None,
        being_made=bool(found and found.lease and found.lease.held),
    )  # fmt: skip


def _unneeded(found: StoredSet, needed: Sequence[Side]) -> Row:
    state, why = _standing(found, needed)
    return Row(
        kind=found.kind, name=found.name, prefix=found.prefix, state=state, used_by=(), size=found.size,
        written=found.written, why=why,
    )  # fmt: skip


def _standing(found: StoredSet, needed: Sequence[Side]) -> tuple[State, tuple[str, ...]]:
    if not found.ours:
        return "not ours", ("neither manifest nor lease: left alone",)
    state, why = _unwhole(found)
    if state is not None or found.manifest is None:
        return state or "partial", why
    fields = found.manifest.fields
    if found.kind == "model":
        fields = {name: fields.get(name) for name in ("id", "revision")}
        needed = [side for side in needed if side.fields["id"] == fields["id"]]
    close = nearest(found.name, fields, needed)
    if close is None:
        return "stale", (
            "no experiment uses this model" if found.kind == "model" else "no experiment uses any artifact",
        )
    other, found_differences = close
    return "stale", ((f"nearest needed {other.name}:",) if found.kind == "artifact" else ()) + tuple(
        reasons(found_differences)
    )


def _side(need: Need) -> Side:
    return Side(name=need.name, fields=need.fields, where="needed", words=need.used_by)
