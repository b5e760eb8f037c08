"""Going on with a run that was cut short: what it has, and whether it is still the same run.

Invariant: a request with a record is not asked again, except one that the interrupt itself cut; that one is asked
anew under its id with `~2` behind it, so that no id stands twice in a file. A run whose settings differ from the
manifest's is refused with the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tandem.bench.fault import BenchError
from tandem.bench.folder import RECORDS
from tandem.bench.manifest import FILE, Manifest
from tandem.bench.record import Torn, read_records

AGAIN = "~"  # between a request's id and the number of the attempt, from the second on
ASKED = (
    "version", "environment", "experiment", "schedule", "seed", "api", "thinking", "temperature", "max_tokens",
    "concurrency", "rate_per_s", "rounds", "control_rounds", "repeats", "prompts_per_class", "mixed", "duration_s",
    "time_outs",
)  # fmt: skip
OF_ARM = ("role", "url", "model", "artifact_key", "image", "server_version", "runtime", "speculation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a run has already.

    Args:
        done: ids of the requests that need not be asked again.
        interrupted: id to how often it was cut.
        spent_s: how long its turns took.
    """

    done: frozenset[str] = frozenset()
    interrupted: dict[str, int]
    spent_s: float = 0.0


def recorded(folder: Path, tell: Callable[[str], None]) -> Recorded:
    """Read what a run has recorded; a torn last line is told and its request asked again.

    Raises:
        BenchError: a line is no record.
    """
    path = folder / RECORDS
    if not path.exists():
        return Recorded(interrupted={})
    done: set[str] = set()
    interrupted: dict[str, int] = {}
    spans: dict[tuple[object, ...], tuple[float, float]] = {}

    def torn(cut: Torn) -> None:
        tell(f"{cut}; its request is asked again")

    for record in read_records(path, torn):
        base = record.request_id.partition(AGAIN)[0]
        if record.error == "interrupted":
            interrupted[base] = interrupted.get(base, 0) + 1
        else:
            done.add(base)
        turn = (record.class_, record.concurrency, record.rate_per_s, record.round, record.slot)
        began, ended = spans.get(turn, (record.start_s, record.start_s))
        spans[turn] = min(began, record.start_s), max(ended, record.start_s + record.end_s)
    spent_s = sum(ended - began for began, ended in spans.values())
    return Recorded(done=frozenset(done), interrupted=interrupted, spent_s=spent_s)


def refuse_other(before: Manifest, now: Manifest, folder: Path) -> None:
    """Refuse to go on with another run than the one the folder holds.

    Raises:
        BenchError: settings differ; the first field is named with both values.
    """
    for field, was, is_ in _compared(before, now):
        if was != is_:
            raise BenchError(
                f"{field} was {_shown(was)} when this run began and is {_shown(is_)} now",
                where=str(folder / FILE),
                change=f"leave it out, give the same {field.partition('[')[0]} again, or begin another run: --out DIR",
            )


def _compared(before: Manifest, now: Manifest) -> Iterator[tuple[str, Any, Any]]:
    yield "arms", [arm.name for arm in before.arms], [arm.name for arm in now.arms]
    for was, is_ in zip(before.arms, now.arms, strict=True):
        if was.simulated is not None:
            yield f"arms[{was.name}].simulated", was.simulated, is_.simulated
        for field in OF_ARM:
            yield f"arms[{was.name}].{field}", getattr(was, field), getattr(is_, field)
    yield "suites", [suite.name for suite in before.suites], [suite.name for suite in now.suites]
    for theirs, ours in zip(before.suites, now.suites, strict=True):
        yield f"suites[{theirs.name}].sha256", theirs.sha256, ours.sha256
    for field in ASKED:
        if field == "rounds" and before.duration_s is not None:
            continue  # then the clock counts them
        yield field, getattr(before, field), getattr(now, field)


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()
