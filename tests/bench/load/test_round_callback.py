"""What is called between rounds: when, with what, and that it cannot harm a run."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from running import Ran, measure, until

from tandem.bench.load import round_callback

pytestmark = pytest.mark.xdist_group("bench-run")


@dataclass
class Calls:
    """Remembers its calls, and what the folder held at each."""

    folder: Path
    numbers: list[int] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    left_s: list[float] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    ended: list[object] = field(default_factory=list)

    def __call__(self, number: int, ends_s: float) -> None:
        began = time.monotonic()
        self.left_s.append(ends_s - began)
        self.lines.append((self.folder / "records.jsonl").read_bytes().count(b"\n"))
        self.ended.append(json.loads((self.folder / "manifest.json").read_text())["ended"])
        self.numbers.append(number)  # last: whoever waits for it may change the folder at once
        time.sleep(0.02)
        self.spans.append((began, time.monotonic()))


def called(ran: Ran) -> list[str]:
    """Notes about the hook."""
    return [note for note in ran.manifest["notes"] if "hook" in note]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls")
    calls = Calls(folder / "out")
    return calls, measure(folder, rounds=3, on_round=calls)


def test_every_round_is_called_once_with_all_its_records(made):
    calls, ran = made
    assert (calls.numbers, calls.lines) == ([0, 1, 2], [8, 16, 24])
    assert [end and end["reason"] for end in calls.ended] == [None, None, "done"]
    assert called(ran) == []


def test_no_request_runs_while_it_is_called(made):
    calls, ran = made
    requests = [(record.start_s, record.start_s + record.end_s) for record in ran.records]

    assert not any(
        begin < end_of_call and begin_of_call < end
        for (begin, end), (begin_of_call, end_of_call) in itertools.product(requests, calls.spans)
    )


@pytest.mark.parametrize(
    ("rounds", "error"), [(3, ConnectionError("no route")), (1, SystemExit(3))]
)
def test_a_call_that_raises_is_only_noted(tmp_path, rounds, error):
    def broken(_number, _ends_s):
        raise error

    ran = measure(tmp_path, rounds=rounds, on_round=broken)

    (note,) = called(ran)
    assert f"({type(error).__name__}: {error})" in note
    assert (ran.outcome.reason, ran.outcome.fault, len(ran.records)) == ("done", None, 8 * rounds)
    assert ran.manifest["ended"]["reason"] == "done"


def test_a_call_that_hangs_delays_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(round_callback, "ROUND_WAIT_S", 0.05)
    monkeypatch.setattr(round_callback, "END_WAIT_S", 0.05)
    numbers = []
    let_go = threading.Event()

    def hang(number, _ends_s):
        numbers.append(number)
        let_go.wait(60)

    ran = measure(tmp_path, rounds=3, on_round=hang)
    let_go.set()

    assert (ran.outcome.reason, ran.outcome.fault, len(ran.records)) == ("done", None, 24)
    assert (ran.manifest["ended"]["reason"], numbers) == ("done", [0])
    assert called(ran) == [
        "the hook between rounds was still busy 0.05 s after a round: later turns ran beside it",
        "the hook at the end was still busy after 0.05 s and was left alone",
    ]


def test_an_interrupted_run_calls_once_more_and_waits_less(tmp_path):
    calls = Calls(tmp_path / "out")

    async def meanwhile(_servers, run):
        await until(lambda: calls.numbers == [0])
        run.stop.request("interrupted", grace_s=0)

    ran = measure(tmp_path, rounds=9, on_round=calls, meanwhile=meanwhile)

    assert ran.outcome.reason == "interrupted"
    assert [end and end["reason"] for end in calls.ended] == [None, "interrupted"]
    assert calls.left_s[-1] <= round_callback.INTERRUPT_WAIT_S
    assert called(ran) == []


@pytest.mark.parametrize(
    ("wait_s", "call_s", "options", "numbers"),
    [(0.02, 0.3, {"rounds": 2}, [0, 1]), (10.0, 0.4, {"rounds": 0, "duration_s": 0.3}, [0])],
    ids=["a late call is followed by another", "no round is begun when the time is over"],
)
def test_a_slow_call_runs_beside_the_next_round(
    tmp_path, monkeypatch, wait_s, call_s, options, numbers
):
    monkeypatch.setattr(round_callback, "ROUND_WAIT_S", wait_s)
    calls = []

    def slow(number, _ends_s):
        calls.append(number)
        time.sleep(call_s)

    ran = measure(tmp_path, on_round=slow, **options)

    assert set(calls) == set(numbers)
    assert {record.round for record in ran.records} == set(numbers)


def test_a_round_that_was_recorded_before_is_not_called_again(tmp_path):
    first = measure(tmp_path, rounds=3)
    path = first.folder / "records.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:12]))
    calls = Calls(tmp_path / "out")

    measure(
        tmp_path,
        rounds=3,
        resume=True,
        on_round=calls,
        at=[server.port for server in first.servers],
    )

    assert (calls.numbers, calls.lines) == ([1, 2], [16, 24])
