"""A search for the knee over HTTP: what is sent, what is marked, and how it goes on."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from independent_server import Schedule
from running import Counting, measure, until

from tandem.bench.figures.knee_turns import read_knee_history
from tandem.bench.figures.request_table import read_request_table
from tandem.bench.plan import knee_search
from tandem.bench.records.manifest import read_manifest
from tandem.bench.records.record import RequestRecord
from tandem.errors import InputError

PROMPTS = {"code": list("abcd"), "chat": list("efgh")}
SEARCH: dict[str, Any] = {
    "concurrency": None,
    "goodput_share": 0.9,
    "goodput": {"e2e_ms": 500.0},
    "rounds": 2,
    "mixed": True,
    "warm_up": 4,
}
SCHEDULE = Schedule(ttft_ms=3, step_ms=1, tokens=2)


class OneSlot(Counting):
    """A server that answers one request at a time, and refuses a queue of more than three."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.slot = asyncio.Lock()
        self.waiting = 0

    async def _stream(self, connection: Any, request: Any, schedule: Schedule) -> bool:
        if self.waiting > 3:
            await connection.whole("503 Service Unavailable", "text/plain", b"full")
            return True
        self.waiting += 1
        try:
            async with self.slot:
                return bool(await super()._stream(connection, request, schedule))
        finally:
            self.waiting -= 1


@pytest.fixture(autouse=True)
def short_search(monkeypatch):
    monkeypatch.setattr("running.Counting", OneSlot)
    for name, value in {
        "ROUNDS": 2,
        "RATE_FACTORS": (0.8, 1.2),
        "WARM_UP_LIMITS": (4, 8),
        "LEAST_COUNTED": 16,
        "COUNT_STEP": 8,
        "MOST_COUNTED": 32,
        "MAX_BRACKET": 1.6,
    }.items():
        monkeypatch.setattr(knee_search, name, value)


def split_turns(records: Sequence[RequestRecord]) -> dict[tuple[int, int, str, int], list[Any]]:
    turns = defaultdict(list)
    for record in records:
        turns[record.round, record.slot, record.arm, record.attempts].append(record)
    return turns


def test_search_sends_pilots_then_rounds_each_from_an_idle_server(tmp_path):
    ran = measure(tmp_path, PROMPTS, schedules=[SCHEDULE] * 2, **SEARCH)

    turns = split_turns(ran.records)
    assert ran.outcome.reason == "done"
    measured_places = {place[:3] for place in turns if place[0]}
    assert measured_places == {
        (round_, slot, arm) for round_ in (1, 2) for slot in (0, 1) for arm in "ab"
    }
    spans = sorted(
        (
            min(record.start_s for record in records),
            max(record.start_s + record.end_s for record in records),
        )
        for records in turns.values()
    )
    assert all(end_s <= start_s for (_, end_s), (start_s, _) in itertools.pairwise(spans))
    parts = {(record.round > 0, record.worker < 4, record.part) for record in ran.records}
    assert {part for _, is_early, part in parts if is_early} == {"pilot_warm_up", "warm_up"}
    table = read_request_table(ran.folder)
    assert len(table) == sum(record.part is None for record in ran.records)
    assert {"code", "chat"} <= set(table.classes)


def test_arms_get_the_same_prompts_at_a_position(tmp_path):
    ran = measure(tmp_path, PROMPTS, schedules=[SCHEDULE] * 2, **SEARCH)

    turns = split_turns(ran.records)
    for round_, slot in ((1, 0), (2, 1)):
        prompts = [
            [
                record.prompt_id
                for record in sorted(turns[round_, slot, arm, 1], key=lambda r: r.worker)
            ]
            for arm in "ab"
        ]
        both = min(map(len, prompts))
        assert prompts[0][:both] == prompts[1][:both]


def test_limit_that_no_answer_shows_ends_the_search_at_its_first_turn(tmp_path):
    uncounted = Schedule(ttft_ms=3, step_ms=1, tokens=2, fault="no_usage")
    limits = {"tpot_ms": 30.0}

    ran = measure(tmp_path, PROMPTS, schedules=[uncounted], **(SEARCH | {"goodput": limits}))

    assert isinstance(ran.outcome.fault, InputError)
    assert "a counts no tokens, so tpot_ms of its answers is not known" in str(ran.outcome.fault)
    assert {record.slot for record in ran.records} == {0}


def test_search_goes_on_with_the_turn_that_was_cut(tmp_path):
    async def stop_in_a_round(servers, run):
        await until(lambda: any(".r1." in truth["request_id"] for truth in servers[0].posted))
        run.stop.request("interrupted", grace_s=0)

    first = measure(tmp_path, PROMPTS, schedules=[SCHEDULE], meanwhile=stop_in_a_round, **SEARCH)
    before = read_knee_history(first.folder, read_manifest(first.folder)).counts
    again = measure(
        tmp_path,
        PROMPTS,
        schedules=[SCHEDULE],
        resume=True,
        at=[server.port for server in first.servers],
        **SEARCH,
    )

    after = read_knee_history(again.folder, read_manifest(again.folder)).counts
    assert (first.outcome.reason, again.outcome.reason) == ("interrupted", "done")
    assert after[: len(before)] == before
    assert {(count.turn.round, count.turn.slot) for count in after if count.turn.round} == {
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    }
    cut = {(record.round, record.slot) for record in again.records if record.attempts == 2}
    assert cut == {(1, 0)}
    ids = [record.request_id for record in again.records]
    assert len(ids) == len(set(ids))
