"""The figures that counters give against a server whose truth is known: every law, live counters
and flat ones."""

from __future__ import annotations

import json
import urllib.request

import pytest
from doubles.simulator_thread import SimulatorThread
from measured import speculating

from tandem.bench.records.counters import (
    AcceptanceRates,
    CounterChange,
    compute_difference,
    compute_rates,
    parse_page,
)
from tandem.simulator.server_log import RequestLogEntry
from tandem.simulator.settings import PromptClassSettings, SimulatorSettings

WINDOW = 7
REQUESTS = 6


def fetched(url: str, body: dict[str, object] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - the twin's own URL
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return answer.read().decode()


def served(**knobs: object) -> tuple[AcceptanceRates, list[RequestLogEntry]]:
    """Ask a twin a few times; what its counters say, and what it did."""
    fields = {
        "model": "m",
        "num_speculative_tokens": WINDOW,
        "step_ms": (1.0,),
        "prefill_base_ms": 1.0,
        "draft_ms": 0.1,
        "classes": {"default": PromptClassSettings(acceptance=0.8, output_tokens=60)},
    }
    with SimulatorThread(SimulatorSettings(**{**fields, **knobs})) as twin:
        before = parse_page(fetched(f"{twin.url}/metrics"))
        for number in range(REQUESTS):
            messages = [{"role": "user", "content": f"number {number}"}]
            fetched(
                f"{twin.url}/v1/chat/completions",
                {"model": "m", "messages": messages, "stream": True},
            )
        change = compute_difference(before, parse_page(fetched(f"{twin.url}/metrics")))
        assert isinstance(change, CounterChange)
        return compute_rates(
            change, speculating(None if knobs["law"] == "none" else "eagle", WINDOW)
        ), list(twin.log_entries)


def steps(truths: list[RequestLogEntry]) -> int:
    """Decode steps: every burst but prefill's own."""
    return sum(len(truth.bursts) - 1 for truth in truths)


def tokens(truths: list[RequestLogEntry]) -> int:
    return sum(truth.completion_tokens for truth in truths)


def test_live_counters_give_what_each_step_committed():
    rates, truths = served(law="vllm", runtime="native")

    committed = [burst for truth in truths for burst in truth.drawn]
    assert rates.values["acceptance_length"] == pytest.approx(sum(committed) / len(committed))
    assert rates.values["acceptance_position_1"] == pytest.approx(
        sum(count > 1 for count in committed) / len(committed)
    )
    assert rates.values["target_steps_per_token"] == pytest.approx(
        (steps(truths) + REQUESTS) / tokens(truths)
    )


@pytest.mark.parametrize(
    "knobs",
    [
        {"law": "vllm", "runtime": "native", "spec_counters": "flat"},
        {"law": "nxdi", "runtime": "nxdi-v0", "version": "0.9.1", "spec_counters": "flat"},
    ],
    ids=lambda knobs: f"{knobs['law']}-{knobs['runtime']}",
)
def test_flat_counters_give_the_tokens_of_each_decode_step(knobs):
    rates, truths = served(**knobs)
    assert rates.is_indirect
    assert rates.values["acceptance_length"] == pytest.approx(
        (tokens(truths) - REQUESTS) / steps(truths)
    )
    assert rates.values["target_steps_per_token"] == pytest.approx(
        (steps(truths) + REQUESTS) / tokens(truths)
    )
