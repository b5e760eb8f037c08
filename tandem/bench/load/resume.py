"""The resume of an interrupted run: its earlier records, and a check that it is the same run.

Invariant: a request with a record is not sent again, unless the interrupt cut it; such a request
gets its id with `~2` (then `~3`, ...) at the end, so no id is twice in a file. A run whose settings
differ from the manifest's is refused; the error names the field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.manifest import FILE, RunManifest
from tandem.bench.records.record import read_records
from tandem.errors import InputError

ATTEMPT_SEPARATOR = "~"  # between a request's id and the number of the attempt, from the second on
RUN_FIELDS = (
    "version",
    "environment",
    "experiment",
    "schedule",
    "seed",
    "api",
    "thinking",
    "temperature",
    "max_tokens",
    "concurrency",
    "rates_per_s",
    "rounds",
    "control_rounds",
    "starts",
    "repeats",
    "prompts_per_class",
    "mixed",
    "goodput_share",
    "duration_s",
    "time_outs",
)
ARM_FIELDS = (
    "simulated",
    "role",
    "url",
    "model",
    "artifact_key",
    "image",
    "server_version",
    "runtime",
    "speculation",
    "headers",
    "extra_body",
    "left_out",
)

FLAGS = {
    "headers": "--header",
    "extra_body": "--extra-body and --ignore-eos",
    "left_out": "--leave-out",
    "speculation": "--speculates",
}
"""The flags of an arm's fields, where their names differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """Earlier records of a run.

    Args:
        done_ids: ids of the requests that are complete.
        interrupt_counts: id to number of interrupted attempts.
        spent_s: time in its turns so far, in seconds.
    """

    done_ids: frozenset[str] = frozenset()
    interrupt_counts: dict[str, int] = field(default_factory=dict)
    spent_s: float = 0.0


def read_history(folder: Path, notify: Callable[[str], None]) -> RunHistory:
    """Return the history of a run; notify of a torn last line, whose request is sent again.

    Raises:
        InputError: a line is no record.
    """
    path = folder / RECORDS_FILE
    if not path.exists():
        return RunHistory()
    done_ids: set[str] = set()
    interrupt_counts: Counter[str] = Counter()
    spans: dict[tuple[object, ...], tuple[float, float]] = {}
    for record in read_records(
        path, lambda torn_line: notify(f"{torn_line}; its request is sent again")
    ):
        base_id = record.request_id.partition(ATTEMPT_SEPARATOR)[0]
        if record.error == "interrupted":
            interrupt_counts[base_id] += 1
        else:
            done_ids.add(base_id)
        turn = (record.class_, record.concurrency, record.rate_per_s, record.round, record.slot)
        start_s, end_s = spans.get(turn, (record.start_s, record.start_s))
        spans[turn] = min(start_s, record.start_s), max(end_s, record.start_s + record.end_s)
    spent_s = sum(end_s - start_s for start_s, end_s in spans.values())
    return RunHistory(
        done_ids=frozenset(done_ids), interrupt_counts=interrupt_counts, spent_s=spent_s
    )


def continue_manifest(before: RunManifest, now: RunManifest, folder: Path) -> RunManifest:
    """Return the manifest of a resumed run: its first settings, and the servers' current facts.

    Raises:
        InputError: the run differs from the run in the folder; the error names the first different
            field and both values.
    """
    old_settings = _list_settings(before)
    new_settings = _list_settings(now)
    for name in old_settings | new_settings:
        old_text, new_text = (
            msgspec.json.encode(settings.get(name)).decode()
            for settings in (old_settings, new_settings)
        )
        if old_text != new_text:
            problem = f"{name} was {old_text} when this run began and is {new_text} now"
            setting = FLAGS.get(name.rpartition(".")[2], name.partition("[")[0])
            change = f"leave it out, give the same {setting} again, or begin another run: --out DIR"
            raise InputError(problem, where=str(folder / FILE), change=change)
    arms = [
        msgspec.structs.replace(
            old_arm, placement=arm.placement or old_arm.placement, owned_by=arm.owned_by
        )
        for old_arm, arm in zip(before.arms, now.arms, strict=True)
    ]
    return msgspec.structs.replace(
        before,
        ended=None,
        resumed=(*before.resumed, now.clock),
        arms=tuple(arms),
        goodput=now.goodput or before.goodput,
        price_usd_per_hour=now.price_usd_per_hour or before.price_usd_per_hour,
    )


def _list_settings(run: RunManifest) -> dict[str, Any]:
    """Return the settings that a resume must not change, by name."""
    settings: dict[str, Any] = {"arms": [arm.name for arm in run.arms]}
    for arm in run.arms:
        settings |= {f"arms[{arm.name}].{name}": getattr(arm, name) for name in ARM_FIELDS}
    settings |= {f"suites[{suite.name}].sha256": suite.sha256 for suite in run.suites}
    settings |= {name: getattr(run, name) for name in RUN_FIELDS}
    if run.goodput_share is not None:
        settings["goodput"] = run.goodput  # the rates of a search depend on it
    if run.duration_s is not None:
        settings["rounds"] = None  # time decides their number
    return settings
