"""Whole runs: what is sent, in which order, and what is left behind."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections import Counter, defaultdict

import pytest
import running
from independent_server import Schedule
from running import QUICK, measure, until

from rehearsal.loopback import find_free_port
from tandem.bench.load import circuit_breaker, loops, warm_up
from tandem.bench.plan.schedule import first_order
from tandem.bench.records.manifest import ManifestArm

pytestmark = pytest.mark.xdist_group("bench-run")  # its servers and runs are made once
RETRY = '#schedule {"fault": "status", "status": 429, "retry_after": "1"}'
DROP = '#schedule {"fault": "drop", "fault_at": 1}'
SLOW = Schedule(ttft_ms=100, step_ms=1, tokens=2)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    return measure(
        tmp_path_factory.mktemp("run"),
        {"code": ["a", "b", "c", "d"], "chat": ["e", "f"]},
        concurrency=(1, 2),
        rounds=2,
    )


def say(count):
    """So many prompts of one class."""
    return {"code": [f"say {number}" for number in range(count)]}


def in_flight(records):
    """Most requests at the same time."""
    ends = [(record.start_s, 1) for record in records] + [
        (record.start_s + record.end_s, -1) for record in records
    ]
    return max(itertools.accumulate(change for _, change in sorted(ends)))


def test_every_planned_request_is_asked_and_recorded_once(ran):
    seen = {truth["request_id"] for server in ran.servers for truth in server.posted}
    ids = {record.request_id for record in ran.records}

    assert len(ids) == len(ran.records) == 2 * 2 * 2 * 6
    assert {identity for identity in seen if not identity.startswith("probe-")} == ids


def test_an_arm_has_its_turn_and_connections_to_itself(ran):
    spans = defaultdict(list)
    for record in ran.records:
        spans[record.arm].append((record.start_s, record.start_s + record.end_s))
    measured_requests = [
        truth for server in ran.servers for truth in server.posted if truth["request_id"][0] in "ab"
    ]

    pairs = itertools.product(spans["a"], spans["b"])
    assert not any(
        begin < other_end and other_begin < end for (begin, end), (other_begin, other_end) in pairs
    )
    assert all(truth["on_connection"] > 0 for truth in measured_requests)


def test_the_first_requests_of_the_workers_are_staggered(tmp_path):
    ran = measure(tmp_path, {"code": list("abcdefgh")}, schedules=[SLOW], concurrency=(4,))
    first = {}
    for record in sorted(ran.records, key=lambda record: record.start_s):
        first.setdefault((record.slot, record.worker), record.start_s)

    starts = sorted(start for (slot, _), start in first.items() if slot == 0)
    assert len(starts) == in_flight(ran.records) == 4
    assert starts[-1] - starts[0] >= 2.5 * loops.STAGGER_S


def test_counters_around_a_turn_hold_its_tokens(ran):
    tokens = Counter()
    counts = defaultdict(dict)
    for record in ran.records:
        tokens[record.arm, record.class_, record.concurrency, record.round, record.slot] += (
            record.completion_tokens
        )
    for scrape in ran.lines("counters.jsonl"):
        turn = tuple(scrape[key] for key in ("arm", "class", "concurrency", "round", "slot"))
        assert scrape["when"] not in counts[turn]
        counts[turn][scrape["when"]] = scrape["counters"]["generation_tokens"]

    assert {turn: pages["after"] - pages["before"] for turn, pages in counts.items()} == tokens


def test_simultaneous_asks_both_arms_at_the_same_time(tmp_path):
    ran = measure(tmp_path, schedules=[SLOW, SLOW], schedule="simultaneous")
    assert {record.arm for record in ran.records} == {"a", "b"}
    assert in_flight(ran.records) == 4


ONE_COUNT = "vllm:generation_tokens_total {0}\n"
COUNTS_BY_MODEL = """\
vllm:generation_tokens_total{{model_name="independent"}} {0}
vllm:generation_tokens_total{{model_name="second"}} {0}
"""


@pytest.mark.parametrize(("page", "is_apart"), [(ONE_COUNT, False), (COUNTS_BY_MODEL, True)])
def test_two_models_at_one_address_share_no_counters(tmp_path, monkeypatch, page, is_apart):
    monkeypatch.setattr(running, "METRICS", page)
    port = find_free_port()
    url = f"http://127.0.0.1:{port}"
    arms = (
        ManifestArm(name="a", role="baseline", url=url, model="independent"),
        ManifestArm(name="b", role="variant", url=url, model="second"),
    )

    async def list_both(servers, _run):
        servers[0].models = [{"id": arm.model} for arm in arms]

    ran = measure(
        tmp_path,
        schedules=[QUICK],
        at=[port],
        arms=arms,
        schedule="simultaneous",
        meanwhile=list_both,
    )

    scrapes = ran.lines("counters.jsonl")
    assert {"generation_tokens" in line["counters"] for line in scrapes} == {is_apart}
    note = "a gives no counters (another arm was measured at its address at the same time"
    assert (note in " ".join(ran.said.split())) is not is_apart


def test_a_429_is_a_failure_that_is_waited_for(tmp_path):
    ran = measure(tmp_path, {"code": [RETRY, RETRY]}, schedules=[QUICK], concurrency=(1,))

    first, second = sorted(ran.records, key=lambda record: record.start_s)
    assert (first.error, first.retry_after_s, first.attempts) == ("status_429", 1.0, 1)
    assert (
        len([truth for truth in ran.servers[0].posted if truth["request_id"] == first.request_id])
        == 1
    )
    assert second.start_s - (first.start_s + first.end_s) >= 1.0


def test_a_worker_does_not_wait_for_hours(tmp_path, monkeypatch):
    monkeypatch.setattr(loops, "MAX_RETRY_AFTER_S", 0.01)
    hours = RETRY.replace('"1"', '"7200"')
    assert (
        len(
            measure(tmp_path, {"code": [hours, hours]}, schedules=[QUICK], concurrency=(1,)).records
        )
        == 2
    )


def test_an_open_loop_keeps_its_times_on_slow_servers(tmp_path):
    ran = measure(
        tmp_path,
        {"code": list("abcdefgh")},
        schedules=[SLOW],
        concurrency=None,
        rates_per_s=(100.0,),
    )
    due = {record.request_id: record.due_s for record in ran.records}

    assert all(record.start_s >= record.due_s for record in ran.records)
    assert {record.rate_per_s for record in ran.records} == {100.0}
    assert in_flight(ran.records) >= 3  # 4 a turn, all within some 40 ms, and an answer takes 100
    for turn in ran.plan.turns():
        times = [due[identity] for identity in turn.request_ids()]
        arrivals_s = [arrival_s - turn.arrivals_s[0] for arrival_s in turn.arrivals_s]
        assert [time - times[0] for time in times] == pytest.approx(arrivals_s, abs=1e-6)


def test_cut_streams_and_missing_counters_end_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr("running.METRICS", "<html>Sign in</html>{}")

    ran = measure(tmp_path, {"code": ["a", DROP, "b", "c"]})

    assert Counter(record.error for record in ran.records) == {None: 6, "closed": 2}
    assert ran.outcome.reason == "done"
    notes = {note.partition(" (")[0] for note in ran.manifest["notes"]}
    assert {"a gives no counters", "b gives no counters"} <= notes


def test_rounds_end_with_the_time_and_blocks_stay_whole(tmp_path):
    ran = measure(tmp_path, rounds=0, duration_s=0.5)

    counts = Counter((record.arm, record.round) for record in ran.records)
    assert ran.outcome.reason == ran.manifest["ended"]["reason"] == "duration"
    assert set(counts.values()) == {4}
    assert counts["a", 1] == counts["b", 1]


def test_one_server_alone_is_sent_no_request_after_the_time(tmp_path):
    ran = measure(
        tmp_path, {"code": list("abcdefghijklmnop")}, schedules=[SLOW], rounds=0, duration_s=0.4
    )

    first_s = min(record.start_s for record in ran.records)
    assert ran.outcome.reason == "duration"
    assert len(ran.records) < 16
    assert all(record.start_s - first_s <= 0.4 for record in ran.records)


def test_a_run_by_the_clock_resumes_its_last_block(tmp_path):
    options = {"rounds": 0, "duration_s": 0.1}
    first = measure(tmp_path, **options)
    path = first.folder / "records.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))

    again = measure(tmp_path, **options, resume=True, at=[server.port for server in first.servers])

    assert again.outcome.reason == "duration"
    assert set(Counter((record.arm, record.round) for record in again.records).values()) == {4}


def test_a_paused_arm_does_not_hold_the_others_up(tmp_path, monkeypatch):
    monkeypatch.setattr(circuit_breaker, "POLL_S", 0.02)
    prompts = say(16)

    ran = measure(
        tmp_path, prompts, schedule="simultaneous", meanwhile=downed(None, until_b_is_done=True)
    )

    assert ran.outcome.reason == "done"
    assert Counter(record.error for record in ran.records if record.arm == "b") == {None: 16}


# warm-up


def test_warm_up_ends_when_two_windows_are_alike(tmp_path):
    ran = measure(tmp_path, warm_up=None, schedules=[Schedule(ttft_ms=20, step_ms=10, tokens=4)])
    assert ran.manifest["warm_up"]["a"]["stable"] is True
    assert len(ran.lines("warmup.jsonl")) == ran.manifest["warm_up"]["a"]["requests"]


def test_arms_are_warmed_with_the_same_unrecorded_prompts(tmp_path):
    ran = measure(tmp_path, {"code": list("abc"), "chat": list("de")}, warm_up=6)

    lines = ran.lines("warmup.jsonl")
    counts = {
        arm: Counter(line["prompt_id"] for line in lines if line["arm"] == arm) for arm in "ab"
    }
    assert counts["a"] == counts["b"]
    assert set(counts["a"]) == {"code-0", "chat-0", "code-1", "chat-1", "code-2"}
    assert (len(lines), len(ran.records)) == (12, 10)
    entry = ran.manifest["warm_up"]["a"]
    assert (entry["requests"], entry["failed"], entry["stable"]) == (6, 0, None)


def test_a_failing_warm_up_is_given_up_with_a_note(tmp_path):
    failing = Schedule(fault="status", status=500)

    async def after_the_probe(servers, run):
        await until(lambda: "warm-up of" in run.out.getvalue())
        servers[0].default = failing

    ran = measure(
        tmp_path, {"code": ["a"]}, warm_up=None, schedules=[QUICK], meanwhile=after_the_probe
    )

    assert ran.manifest["warm_up"]["a"]["stable"] is False
    assert any("was not stable after" in note for note in ran.manifest["notes"])
    assert ran.manifest["warm_up"]["a"]["requests"] <= 3 * warm_up.MIN_WINDOW


# an arm that goes down


def measured(server):
    return [truth for truth in server.posted if not truth["request_id"].startswith("probe-")]


def answered(server):
    return [
        truth for truth in server.posted if truth["request_id"].startswith("b.") and truth["bursts"]
    ]


def downed(restart_after_s, *, until_b_is_done=False):
    async def meanwhile(servers, run):
        server = servers[0]
        await until(lambda: any(truth["request_id"].startswith("a.") for truth in server.posted))
        await server.__aexit__()
        await until(lambda: "is paused" in run.out.getvalue() or run.stop.is_requested)
        if until_b_is_done:
            await until(lambda: len(answered(servers[1])) >= 16)
        if restart_after_s is not None or until_b_is_done:
            await asyncio.sleep(restart_after_s or 0)
            await server.__aenter__()

    return meanwhile


def test_a_server_that_comes_back_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(circuit_breaker, "POLL_S", 0.02)

    ran = measure(
        tmp_path,
        say(24),
        schedules=[QUICK],
        meanwhile=downed(0.1),
    )

    assert re.search(
        r"a is paused: 5 requests in a row failed \(\w+\), the first of them a\.", ran.said
    )
    assert "a is back after" in ran.said
    assert ran.outcome.reason == "done"
    assert len(ran.records) == 24
    assert ran.records[-1].error is None


def test_no_request_is_spent_on_a_server_already_down(tmp_path, monkeypatch):
    monkeypatch.setattr(circuit_breaker, "POLL_S", 0.02)
    first, second = ("ab".index(name) for name in first_order(("a", "b"), 0))

    async def meanwhile(servers, run):
        await until(lambda: len(measured(servers[first])) >= 1)
        await servers[second].__aexit__()
        await until(lambda: "is paused" in run.out.getvalue())
        await servers[second].__aenter__()

    ran = measure(tmp_path, schedules=[SLOW, SLOW], meanwhile=meanwhile)

    assert "is paused: no connection could be opened" in ran.said
    assert {record.error for record in ran.records} == {None}
    assert len(ran.records) == 8


def test_a_server_that_stays_away_ends_the_run_with_3(tmp_path):
    ran = measure(
        tmp_path,
        say(24),
        schedules=[QUICK],
        meanwhile=downed(None),
        wait_s=0.05,
    )

    assert (ran.outcome.reason, ran.outcome.fault.exit_code, ran.manifest["ended"]["reason"]) == (
        "failed",
        3,
        "failed",
    )
    assert re.search(
        r"went down and did not come back .*; the first request that failed was a\.",
        ran.outcome.fault.problem,
    )
    assert len(ran.records) < 24
    assert (ran.folder / "summary.json").exists()


def test_a_failing_server_that_answers_health_is_not_awaited(tmp_path):
    failing = '#schedule {"fault": "status", "status": 500}'
    ran = measure(tmp_path, {"code": [failing] * 12}, schedules=[QUICK])
    assert Counter(record.error for record in ran.records) == {"status_500": 12}
    assert "is paused" not in ran.said


# an interrupt


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """A run that was interrupted while two answers were slow, and what became of it when it was
    resumed."""
    folder = tmp_path_factory.mktemp("cut")

    async def meanwhile(servers, run):
        await until(lambda: len(servers[0].posted) >= 4)  # two of a probe or less
        servers[0].default = Schedule(ttft_ms=20_000)
        seen = len(servers[0].posted)
        await until(lambda: len(servers[0].posted) >= seen + 2)
        run.stop.request("interrupted", grace_s=0.01)

    prompts = say(12)
    first = measure(folder, prompts, schedules=[QUICK], meanwhile=meanwhile)
    records = first.records
    summary = json.loads((folder / "out" / "summary.json").read_text())
    manifest = first.manifest
    second = measure(folder, prompts, schedules=[QUICK], resume=True, at=[first.servers[0].port])
    return records, summary, manifest, second


def test_interrupted_requests_are_recorded_and_repeated_under_new_ids(cut):
    records, summary, manifest, later = cut
    cut_ids = {record.request_id for record in records if record.error == "interrupted"}

    again = {
        record.request_id: record.attempts for record in later.records if "~" in record.request_id
    }
    assert again == {f"{identity}~2": 2 for identity in cut_ids}
    assert len(cut_ids) == 2
    assert summary["records"] == len(records) < 12
    assert manifest["ended"]["reason"] == "interrupted"
