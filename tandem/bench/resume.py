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
from tandem.bench.folder import RECORDS_FILE
from tandem.bench.manifest import FILE, RunManifest
from tandem.bench.record import TornLine, read_records

ATTEMPT_SEPARATOR = "~"  # between a request's id and the number of the attempt, from the second on
RUN_FIELDS = (
    "version", "environment", "experiment", "schedule", "seed", "api", "thinking", "temperature", "max_tokens",
    "concurrency", "rate_per_s", "rounds", "control_rounds", "repeats", "prompts_per_class", "mixed", "duration_s",
    "time_outs",
)  # fmt: skip
ARM_FIELDS = ("role", "url", "model", "artifact_key", "image", "server_version", "runtime", "speculation")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """What a run has already.

    Args:
        done_ids: ids of the requests that need not be asked again.
        interrupt_counts: id to how often it was cut.
        spent_s: how long its turns took.
    """

    done_ids: frozenset[str] = frozenset()
    interrupt_counts: dict[str, int]
    spent_s: float = 0.0


def read_history(folder: Path, notify: Callable[[str], None]) -> RunHistory:
    """Read what a run has recorded; a torn last line is told and its request asked again.

    Raises:
        BenchError: a line is no record.
    """
    path = folder / RECORDS_FILE
    if not path.exists():
        return RunHistory(interrupt_counts={})
    done_ids: set[str] = set()
    interrupt_counts: dict[str, int] = {}
    spans: dict[tuple[object, ...], tuple[float, float]] = {}

    def report_torn_line(torn_line: TornLine) -> None:
        notify(f"{torn_line}; its request is asked again")

    for record in read_records(path, report_torn_line):
        base_id = record.request_id.partition(ATTEMPT_SEPARATOR)[0]
        if record.error == "interrupted":
            interrupt_counts[base_id] = interrupt_counts.get(base_id, 0) + 1
        else:
            done_ids.add(base_id)
        turn = (record.class_, record.concurrency, record.rate_per_s, record.round, record.slot)
        start_s, end_s = spans.get(turn, (record.start_s, record.start_s))
        spans[turn] = min(start_s, record.start_s), max(end_s, record.start_s + record.end_s)
    spent_s = sum(end_s - start_s for start_s, end_s in spans.values())
    return RunHistory(done_ids=frozenset(done_ids), interrupt_counts=interrupt_counts, spent_s=spent_s)


def check_same_run(before: RunManifest, now: RunManifest, folder: Path) -> None:
    """Refuse to go on with another run than the one the folder holds.

    Raises:
        BenchError: settings differ; the first field is named with both values.
    """
    for field, old_value, new_value in _compare_fields(before, now):
        if old_value != new_value:
            raise BenchError(
                f"{field} was {_format_value(old_value)} when this run began and is {_format_value(new_value)} now",
                where=str(folder / FILE),
                change=f"leave it out, give the same {field.partition('[')[0]} again, or begin another run: --out DIR",
            )


def _compare_fields(before: RunManifest, now: RunManifest) -> Iterator[tuple[str, Any, Any]]:
    yield "arms", [arm.name for arm in before.arms], [arm.name for arm in now.arms]
    for old_arm, new_arm in zip(before.arms, now.arms, strict=True):
        if old_arm.simulated is not None:
            yield f"arms[{old_arm.name}].simulated", old_arm.simulated, new_arm.simulated
        for field in ARM_FIELDS:
            yield f"arms[{old_arm.name}].{field}", getattr(old_arm, field), getattr(new_arm, field)
    yield "suites", [suite.name for suite in before.suites], [suite.name for suite in now.suites]
    for old_suite, new_suite in zip(before.suites, now.suites, strict=True):
        yield f"suites[{old_suite.name}].sha256", old_suite.sha256, new_suite.sha256
    for field in RUN_FIELDS:
        if field == "rounds" and before.duration_s is not None:
            continue  # then the clock counts them
        yield field, getattr(before, field), getattr(now, field)


def _format_value(value: Any) -> str:
    return msgspec.json.encode(value).decode()
