"""Each fault does what it says to the requests it names, to no others, and the truth log tells
it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from simulator_client import CHAT, Answered, ask, chat, until

from tandem.bench.suites.content import check_content
from tandem.bench.suites.prompt import Prompt
from tandem.simulator.engine import BatchingEngine
from tandem.simulator.server import select_fault
from tandem.simulator.settings import FaultSettings, PromptClassSettings, SimulatorSettings

USAGE = {"include_usage": True, "continuous_usage_stats": True}


@pytest.fixture
def meets(start_simulator):
    """A simulator whose second request meets a fault; three requests, one after the other."""

    def act(
        kind: str, body: dict[str, Any] | None = None, **more: Any
    ) -> tuple[list[Answered], Any]:
        running = start_simulator(faults=(FaultSettings(kind=kind, requests=(2,), **more),))
        answers = [ask(running.url, CHAT, body or chat(stream_options=USAGE)) for _ in range(3)]
        assert until(lambda: len(running.log_entries) == 3)
        return answers, running.log_entries

    return act


def whole(reply: Answered) -> bool:
    return reply.status == 200 and not reply.broken and reply.data[-1] == "[DONE]"


@pytest.mark.parametrize(
    "kind",
    [
        "status_500",
        "status_503",
        "status_429",
        "html",
        "stall",
        "drop",
        "no_usage",
        "wrong_usage",
        "wrong_model",
        "slow_first_token",
        "garbage",
    ],
)
def test_a_fault_meets_the_request_it_names_and_no_other(meets, kind):
    answers, truth = meets(kind, seconds=0.01)
    assert [entry.fault for entry in truth] == [None, kind, None]
    assert (whole(answers[0]), whole(answers[2])) == (True, True)
    assert answers[0].text == answers[2].text


@pytest.mark.parametrize(
    ("kind", "status"), [("status_500", 500), ("status_503", 503), ("status_429", 429)]
)
def test_an_error_has_its_status_and_vllms_form(meets, kind, status):
    (_, answers, _), truth = meets(kind)
    assert (answers.status, answers.json["error"]["code"], truth[1].status) == (
        status,
        status,
        status,
    )
    assert truth[1].bursts == []


def test_a_limited_rate_says_when_to_come_again(meets):
    (_, answers, _), _ = meets("status_429", retry_after_s=7)
    assert answers.headers["retry-after"] == "7"


def test_html_is_html(meets):
    (_, answers, _), _ = meets("html")
    assert answers.status == 200
    assert answers.headers["content-type"].startswith("text/html")
    assert b"<html" in answers.body


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_dropped_stream_ends_after_so_many_bursts(meets, after):
    (_, answers, _), truth = meets("drop", after_bursts=after)

    assert answers.broken == "IncompleteRead" or not whole(answers)
    assert len(truth[1].bursts) == after
    assert truth[1].finish_reason is None
    assert b"[DONE]" not in answers.body


def gaps(truth: Any) -> list[float]:
    """The planned times between bursts, in seconds."""
    return [after - before for before, after in itertools.pairwise(truth.due_s)]


def test_a_stall_delays_a_stream_once(meets):
    _, truth = meets("stall", after_bursts=3, seconds=0.05)
    longest = max(range(len(gaps(truth[1]))), key=gaps(truth[1]).__getitem__)

    assert longest == 2
    assert gaps(truth[1])[2] == pytest.approx(gaps(truth[1])[3] + 0.05)
    assert max(gaps(truth[0])) == pytest.approx(min(gaps(truth[0])))


def test_a_slow_first_token_delays_the_rest(meets):
    _, truth = meets("slow_first_token", seconds=0.05)
    first_s = [entry.due_s[0] - entry.accepted_s - entry.queued_s for entry in truth]
    assert first_s[1] - first_s[0] == pytest.approx(0.05)
    assert gaps(truth[1]) == pytest.approx([gaps(truth[1])[0]] * len(gaps(truth[1])))


def test_usage_can_be_left_out(meets):
    (_, answers, _), _ = meets("no_usage")
    assert whole(answers)
    assert not any("usage" in frame for frame in answers.frames)


def test_usage_can_be_wrong_by_so_many_tokens(meets):
    answers, truth = meets("wrong_usage", tokens=5)
    counts = [replies.frames[-1]["usage"]["completion_tokens"] for replies in answers]
    assert counts == [30, 35, 30]
    assert [entry.completion_tokens for entry in truth] == [30, 30, 30]


def test_another_model_can_answer(meets):
    answers, _ = meets("wrong_model")
    assert [{frame["model"] for frame in replies.frames} for replies in answers] == [
        {"m"},
        {"another-model"},
        {"m"},
    ]


def test_garbage_is_no_content_and_as_long_as_the_answer(meets):
    answers, truth = meets("garbage")
    prompt = Prompt(id="p", class_="default", prompt="Say something.")
    assert [check_content(prompt, replies.text, "stop") for replies in answers] == [
        "ok",
        "garbage",
        "ok",
    ]
    assert truth[1].completion_tokens == truth[0].completion_tokens


def test_an_endless_stream_goes_on_beyond_what_was_asked_for(start_simulator):
    running = start_simulator(
        faults=(FaultSettings(kind="endless", requests=(1,), tokens=1),),
        step_ms=(0.2,),
        classes={"default": PromptClassSettings(acceptance=1.0, output_tokens=30)},
    )
    answers = ask(running.url, CHAT, chat(max_tokens=10, stream_options=USAGE), most_bytes=40_000)

    assert len(answers.body) > 40_000
    assert b'finish_reason":"' not in answers.body
    assert until(lambda: len(running.log_entries) == 1)
    assert running.log_entries[0].completion_tokens > 100


def test_a_restart_cuts_streams_forgets_counters_and_comes_back(start_simulator):
    running = start_simulator(faults=(FaultSettings(kind="restart", requests=(2,), seconds=0.05),))
    before = ask(running.url, CHAT, chat())
    cut = ask(running.url, CHAT, chat(ignore_eos=True))

    assert whole(before)
    assert not whole(cut)
    assert until(lambda: ask(running.url, "/health").status == 200)
    assert (
        b'generation_tokens_total{engine="0",model_name="m"} 0.0'
        in ask(running.url, "/metrics").body
    )
    assert whole(ask(running.url, CHAT, chat()))
    assert [entry.fault for entry in running.log_entries] == [None, "restart", None]


def test_an_engine_that_broke_keeps_nobody_waiting(start_simulator, monkeypatch):
    running = start_simulator()
    monkeypatch.delattr(BatchingEngine, "begin")
    cut, refused = [ask(running.url, CHAT, chat()) for _ in range(2)]
    assert (bool(cut.broken), refused.status) == (True, 500)


def test_a_rate_meets_its_share_of_the_requests():
    knobs = SimulatorSettings(faults=(FaultSettings(kind="stall", rate=0.2),))
    fault_numbers = [number for number in range(1, 5001) if select_fault(knobs, number, "default")]
    assert len(fault_numbers) == pytest.approx(1000, rel=0.1)
    assert fault_numbers == [
        number for number in range(1, 5001) if select_fault(knobs, number, "default")
    ]
    new_seed = knobs.model_copy(update={"seed": 1})
    assert fault_numbers != [
        number for number in range(1, 5001) if select_fault(new_seed, number, "default")
    ]


def test_a_fault_of_a_class_leaves_the_others_alone():
    knobs = SimulatorSettings(faults=(FaultSettings(kind="stall", rate=1.0, classes=("copy",)),))
    assert select_fault(knobs, 1, "copy") is not None
    assert select_fault(knobs, 1, "default") is None
