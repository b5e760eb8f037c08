"""Going on with a run that was cut short: what it has, and whether it is still the same run.

Invariant: a request with a record is not asked again, except one that the interrupt itself cut; that one is asked
anew under its id with `~2` behind it, so that no id stands twice in a file. A run whose settings differ from the
manifest's is refused with the field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tandem.bench.folder import RECORDS_FILE
from tandem.bench.manifest import FILE, SCHEMA, RunManifest
from tandem.bench.record import read_records
from tandem.errors import InputError

ATTEMPT_SEPARATOR = "~"  # between a request's id and the number of the attempt, from the second on
RUN_FIELDS = (
    *("version", "environment", "experiment", "schedule", "seed", "api", "thinking", "temperature", "max_tokens"),
    *("concurrency", "rate_per_s", "rounds", "control_rounds", "repeats", "prompts_per_class", "mixed", "duration_s"),
    "time_outs",
)
ARM_FIELDS = ("simulated", "role", "url", "model", "artifact_key", "image", "server_version", "runtime", "speculation")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """What a run has already.

    Args:
        done_ids: ids of the requests that need not be asked again.
        interrupt_counts: id to how often it was cut.
        spent_s: how long its turns took.
    """

    done_ids: frozenset[str] = frozenset()
    interrupt_counts: dict[str, int] = field(default_factory=dict)
    spent_s: float = 0.0


def read_history(folder: Path, notify: Callable[[str], None]) -> RunHistory:
    """Read what a run has recorded; a torn last line is told and its request asked again.

    Raises:
        InputError: a line is no record.
    """
    path = folder / RECORDS_FILE
    if not path.exists():
        return RunHistory()
    done_ids: set[str] = set()
    interrupt_counts: Counter[str] = Counter()
    spans: dict[tuple[object, ...], tuple[float, float]] = {}
    for record in read_records(path, lambda torn_line: notify(f"{torn_line}; its request is asked again")):
        base_id = record.request_id.partition(ATTEMPT_SEPARATOR)[0]
        if record.error == "interrupted":
            interrupt_counts[base_id] += 1
        else:
            done_ids.add(base_id)
        turn = (record.class_, record.concurrency, record.rate_per_s, record.round, record.slot)
        start_s, end_s = spans.get(turn, (record.start_s, record.start_s))
        spans[turn] = min(start_s, record.start_s), max(end_s, record.start_s + record.end_s)
    spent_s = sum(end_s - start_s for start_s, end_s in spans.values())
    return RunHistory(done_ids=frozenset(done_ids), interrupt_counts=interrupt_counts, spent_s=spent_s)


def continue_manifest(before: RunManifest, now: RunManifest, folder: Path) -> RunManifest:
    """Return the manifest of a run that goes on: what it began with, and what servers say of themselves now.

    Raises:
        InputError: it is another run than the one the folder holds; the first field that differs is named with both
            values.
    """
    old_settings, new_settings = _list_settings(before), _list_settings(now)
    for name in old_settings | new_settings:
        old_text, new_text = (
            msgspec.json.encode(settings.get(name)).decode() for settings in (old_settings, new_settings)
        )
        if old_text != new_text:
            problem = f"{name} was {old_text} when this run began and is {new_text} now"
            change = f"leave it out, give the same {name.partition('[')[0]} again, or begin another run: --out DIR"
            raise InputError(problem, where=str(folder / FILE), change=change)
    arms = [
        msgspec.structs.replace(old_arm, placement=arm.placement or old_arm.placement, owned_by=arm.owned_by)
        for old_arm, arm in zip(before.arms, now.arms, strict=True)
    ]
    return msgspec.structs.replace(
        before,
        schema=SCHEMA,
        ended=None,
        resumed=(*before.resumed, now.clock),
        arms=tuple(arms),
        goodput=now.goodput or before.goodput,
        price_usd_per_hour=now.price_usd_per_hour or before.price_usd_per_hour,
    )


def _list_settings(run: RunManifest) -> dict[str, Any]:
    """Return what stays while a run goes on, by name."""
    settings: dict[str, Any] = {"arms": [arm.name for arm in run.arms]}
    settings |= {f"arms[{arm.name}].{name}": getattr(arm, name) for arm in run.arms for name in ARM_FIELDS}
    settings |= {f"suites[{suite.name}].sha256": suite.sha256 for suite in run.suites}
    settings |= {name: getattr(run, name) for name in RUN_FIELDS}
    return settings | ({} if run.duration_s is None else {"rounds": None})  # the clock counts them
