"""The simulator over real HTTP: what is asked for is sent, and it is what the truth log says was
sent."""

from __future__ import annotations

import itertools
import threading

import pytest
from doubles.simulator_thread import SimulatorThread
from simulator_client import CHAT, PLAIN, ask, chat, until

from tandem.simulator.server_log import RequestLogEntry
from tandem.simulator.settings import SimulatorSettings

_NUMBERS = itertools.count()
USAGE = {"include_usage": True, "continuous_usage_stats": True}


def named() -> dict[str, str]:
    return {"X-Request-Id": f"request-{next(_NUMBERS)}"}


def truth_of(simulator: SimulatorThread, headers: dict[str, str]) -> RequestLogEntry:
    def found() -> list[RequestLogEntry]:
        return [
            entry for entry in simulator.log_entries if entry.request_id == headers["X-Request-Id"]
        ]

    assert until(found)
    return found()[0]


@pytest.fixture(scope="module")
def old():
    knobs = {"runtime": "nxdi-v0", "version": "0.9.1", "law": "nxdi", "num_speculative_tokens": 7}
    with SimulatorThread(
        SimulatorSettings(model="m", step_ms=(1.0,), prefill_base_ms=1, **knobs)
    ) as running:
        yield running


def test_running_usage_counts_the_bursts_that_the_log_says(simulator):
    headers = named()
    frames = ask(simulator.url, CHAT, chat(stream_options=USAGE), headers).frames
    counts = [frame["usage"]["completion_tokens"] for frame in frames if frame["choices"]]

    bursts = [after - before for before, after in itertools.pairwise(counts)]
    assert bursts == [tokens for _, tokens in truth_of(simulator, headers).bursts]


@pytest.mark.parametrize("path", [CHAT, PLAIN])
def test_a_stream_says_the_same_text_as_the_whole_answer(simulator, path):
    body = {**chat(), "prompt": "Say something.", "max_tokens": 25}
    choice = ask(simulator.url, path, {**body, "stream": False}).json["choices"][0]
    assert ask(simulator.url, path, body).text == (
        choice["message"]["content"] if path == CHAT else choice["text"]
    )


def test_logprobs_have_an_entry_for_each_token(simulator):
    frames = ask(simulator.url, CHAT, chat(logprobs=True, top_logprobs=2, max_tokens=20)).frames
    entries = [
        entry
        for frame in frames
        if (logprobs := frame["choices"][0]["logprobs"])
        for entry in logprobs["content"]
    ]

    assert len(entries) == 20
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    assert all(entry["top_logprobs"][0]["token"] == entry["token"] for entry in entries)


def test_tokens_of_marks_alone_are_counted_with_the_next_burst(simulator):
    headers = named()
    body = chat(chat_template_kwargs={"enable_thinking": True}, stream_options=USAGE)
    frames = ask(simulator.url, CHAT, body, headers).frames
    counts = [frame["usage"]["completion_tokens"] for frame in frames if frame["choices"]]

    truth = truth_of(simulator, headers)
    assert counts[1] > 1
    assert counts[1] == truth.bursts[0][1]
    assert counts[-1] == truth.completion_tokens


def test_an_older_vllm_has_no_token_ids(old):
    frames = ask(
        old.url, CHAT, chat(return_token_ids=True, chat_template_kwargs={"enable_thinking": True})
    ).frames
    choices = [frame["choices"][0] for frame in frames]

    assert not any("token_ids" in choice for choice in choices)
    assert any(choice["delta"].get("reasoning_content") for choice in choices)
    assert choices[1].keys() == {"index", "delta"}
    assert choices[-1].keys() == {"index", "delta", "finish_reason"}
    assert all(choice["delta"]["tool_calls"] == [] for choice in choices[1:])


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "JSON"),
        ({"model": "other", "messages": [{"role": "user", "content": "x"}]}, 404, "other"),
        ({"messages": []}, 400, "messages"),
        (chat(max_tokens=0), 400, "max_tokens"),
        (chat(max_tokens=5000), 400, "max_model_len"),
        (chat("word " * 5000), 400, "4096"),
        (chat(n=2), 400, "n must be 1"),
        (chat(stop=[1]), 400, "stop"),
        (
            {**chat(), "stream": False, "stream_options": {"include_usage": True}},
            400,
            "Stream options",
        ),
    ],
)
def test_refuses_what_vllm_refuses(simulator, body, status, says):
    answers = ask(simulator.url, CHAT, body)
    assert answers.status == status
    assert says in answers.json["error"]["message"]
    assert answers.json["error"]["code"] == status


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/health", None),
        ("/v1/models", None),
        ("/metrics", None),
        ("/nowhere", None),
        (CHAT, chat()),
        (PLAIN, {}),
        (CHAT, chat(stream=False)),
        (CHAT, b"{"),
    ],
)
def test_every_answer_says_that_it_is_simulated(simulator, path, body):
    assert ask(simulator.url, path, body).headers["x-tandem-simulated"] == "1"


def test_a_full_queue_is_refused_with_503(start_simulator):
    busy = start_simulator(max_num_seqs=1, max_queue=1, step_ms=(20.0,))
    for count in (1, 2):
        threading.Thread(
            target=ask, args=(busy.url, CHAT, chat(ignore_eos=True)), daemon=True
        ).start()
        assert until(lambda hits=count: ask(busy.url, "/load").json["server_load"] == hits)

    assert [ask(busy.url, CHAT, chat()).status for _ in range(3)] == [503, 503, 503]
    page = ask(busy.url, "/metrics").body.decode()
    assert 'admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 3.0' in page


def test_who_goes_away_gives_its_place_to_the_next(start_simulator):
    busy = start_simulator(max_num_seqs=1, step_ms=(20.0,))
    ask(busy.url, CHAT, chat(ignore_eos=True), most_bytes=600)

    assert ask(busy.url, CHAT, chat(max_tokens=3)).status == 200
    assert until(lambda: [entry.fault for entry in busy.log_entries] == ["gone", None])
    assert 'finished_reason="abort",model_name="m"} 1.0' in ask(busy.url, "/metrics").body.decode()
