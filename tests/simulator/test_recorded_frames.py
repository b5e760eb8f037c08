"""The simulator's bytes against those of a real vLLM 0.32.0, request by request: the same fields
and types."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from doubles.simulator_thread import SimulatorThread
from simulator_client import Answered, ask

from tandem.simulator.settings import PromptClassSettings, SimulatorSettings

STREAMS = Path(__file__).parents[1] / "bench" / "streams"
CASES = sorted(path.stem for path in STREAMS.glob("*.jsonl"))
# tokens inside a character: the simulator has none
SPLIT = {name for name in CASES if "split_characters" in name}
SETTINGS = {
    "ngram": SimulatorSettings(
        model="smollm2",
        law="vllm",
        num_speculative_tokens=7,
        step_ms=(1.0,),
        prefill_base_ms=1,
        prefill_ms_per_token=0,
        max_model_len=2048,
        classes={"default": PromptClassSettings(acceptance=0.8, output_tokens=34)},
    )
}
SETTINGS["base"] = SETTINGS["ngram"].model_copy(update={"law": "none", "num_speculative_tokens": 0})


@pytest.fixture(scope="module")
def simulators():
    with SimulatorThread(SETTINGS["base"]) as base, SimulatorThread(SETTINGS["ngram"]) as ngram:
        yield {"base": base, "ngram": ngram}


@cache
def recorded(case: str) -> tuple[dict[str, Any], Answered]:
    head, *reads = [
        json.loads(line) for line in (STREAMS / f"{case}.jsonl").read_text().splitlines()
    ]
    return head, Answered(
        head["status"], head["headers"], b"".join(bytes.fromhex(read["hex"]) for read in reads)
    )


def replayed(simulators: dict[str, SimulatorThread], case: str) -> Answered:
    head, _ = recorded(case)
    body = head["request"]["body"]
    if "characters)" in json.dumps(body):  # a very long prompt is cut in the recording
        body = {**body, "messages": [{"role": "user", "content": "word " * 3000}]}
    return ask(
        simulators[head["server"]["arm"]].url, head["request"]["path"], body, {"X-Request-Id": case}
    )


def shape(value: Any) -> Any:
    """What kind of value: of a mapping each field's, of a list those that occur in it."""
    if isinstance(value, dict):
        return tuple(sorted((name, shape(item)) for name, item in value.items()))
    if isinstance(value, list):
        return ("list", *sorted({shape(item) for item in value}, key=repr))
    return type(value).__name__


def place(frame: dict[str, Any]) -> str:
    """Where in a stream a frame stands."""
    if not frame["choices"]:
        return "usage"
    (choice,) = frame["choices"]
    if choice.get("delta", {}).get("role"):
        return "role"
    return (
        "last"
        if choice["finish_reason"]
        else "first"
        if choice.get("prompt_token_ids")
        else "middle"
    )


def shapes(answers: Answered) -> dict[str, set[Any]]:
    result: dict[str, set[Any]] = {}
    for frame in answers.frames:
        for choice in frame["choices"]:
            # a mapping by token, not by field
            if choice["logprobs"] and "top_logprobs" in choice["logprobs"]:
                choice["logprobs"]["top_logprobs"] = [
                    [*entry.values()] for entry in choice["logprobs"]["top_logprobs"]
                ]
        result.setdefault(place(frame), set()).add(shape(frame))
    return result


@pytest.mark.parametrize("case", [name for name in CASES if not name.startswith("error")])
def test_every_frame_has_the_recorded_fields_and_types(simulators, case):
    of_simulator = shapes(replayed(simulators, case))
    of_vllm = shapes(recorded(case)[1])

    places = of_simulator.keys() & of_vllm.keys()
    assert {name: of_simulator[name] for name in places} == {name: of_vllm[name] for name in places}
    assert places >= {"last"}
    if case not in SPLIT:
        assert of_vllm.keys() - {"middle"} == of_simulator.keys() - {"middle"}


@pytest.mark.parametrize("case", [name for name in CASES if not name.startswith("error")])
def test_frames_come_in_the_recorded_order(simulators, case):
    def order(answers: Answered) -> list[str]:
        places = [
            "[DONE]" if data == "[DONE]" else place(json.loads(data)) for data in answers.data
        ]
        return [
            element
            for index, element in enumerate(places)
            if index == 0 or places[index - 1] != element
        ]

    result = [entry for entry in order(replayed(simulators, case)) if entry != "middle"]

    assert result == [item for item in order(recorded(case)[1]) if item != "middle"]


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith("error")])
def test_errors_have_the_recorded_status_fields_and_words(simulators, case):
    of_simulator = replayed(simulators, case)
    _, of_vllm = recorded(case)

    assert of_simulator.status == of_vllm.status
    assert shape(of_simulator.json) == shape(of_vllm.json)
    fields = ("type", "param", "code")
    assert [of_simulator.json["error"][field] for field in fields] == [
        of_vllm.json["error"][entry] for entry in fields
    ]


@pytest.mark.parametrize("name", ["content-type", "transfer-encoding"])
def test_a_streams_headers_are_the_recorded_ones(simulators, name):
    case = "ngram_chat_usage"
    assert replayed(simulators, case).headers[name] == recorded(case)[1].headers[name]


@pytest.mark.parametrize("arm", ["base", "ngram"])
@pytest.mark.parametrize(("path", "file"), [("/v1/models", "models"), ("/version", "version")])
def test_the_other_pages_have_the_recorded_fields(simulators, arm, path, file):
    expected = json.loads((STREAMS / f"{file}_{arm}.json").read_text())
    assert shape(ask(simulators[arm].url, path).json) == shape(expected)


def series(page: str) -> set[tuple[str, frozenset[str]]]:
    """Every sample's name with the names of its labels."""
    result = (re.match(r"(vllm:\w+)\{(.*)\} ", line) for line in page.splitlines())
    return {(entry[1], frozenset(re.findall(r'(\w+)="', entry[2]))) for entry in result if entry}


@pytest.mark.parametrize(
    ("arm", "file"), [("base", "metrics_base"), ("ngram", "metrics_ngram_after")]
)
def test_the_metrics_have_the_recorded_names_and_labels(simulators, arm, file):
    of_simulator = series(ask(simulators[arm].url, "/metrics").body.decode())
    of_vllm = series((STREAMS / f"{file}.txt").read_text())
    assert {name for name, _ in of_vllm - of_simulator} == {"vllm:cache_config_info"}
    assert of_simulator - of_vllm == set()


def test_the_histograms_have_the_recorded_buckets(simulators):
    def buckets(page: str) -> set[tuple[str, ...]]:
        return set(re.findall(r'(vllm:\w+)_bucket\{.*le="([^"]+)"', page))

    of_vllm = buckets((STREAMS / "metrics_ngram_after.txt").read_text())
    assert buckets(ask(simulators["ngram"].url, "/metrics").body.decode()) == of_vllm
