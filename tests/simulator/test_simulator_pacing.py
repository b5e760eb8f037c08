"""The real clock runs the same model: what the log says was due is what virtual time says of the
same arrivals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from doubles.simulator_thread import SimulatorThread
from simulator_client import CHAT, ask, chat, until
from virtual_time import TimedRequest, run_timed

from tandem.simulator.settings import PromptClassSettings, SimulatorSettings

KNOBS = SimulatorSettings(
    model="m",
    law="nxdi",
    num_speculative_tokens=7,
    step_ms=(3.0, 4.0),
    draft_ms=0.2,
    prefill_base_ms=300,
    prefill_ms_per_token=1,
    max_num_seqs=2,
    jitter=0.2,
    classes={"default": PromptClassSettings(acceptance=0.8, output_tokens=60)},
)


@pytest.fixture(scope="module")
def log_entries():
    """Four requests at once, of which two must wait, then two one after the other."""
    with SimulatorThread(KNOBS) as simulator:
        with ThreadPoolExecutor(4) as clients:
            list(
                clients.map(
                    lambda number: ask(simulator.url, CHAT, chat(f"Question {number}")), range(4)
                )
            )
        for number in range(2):
            ask(simulator.url, CHAT, chat(f"Late question {number}"))
        assert until(lambda: len(simulator.log_entries) == 6)
        return sorted(simulator.log_entries, key=lambda entry: entry.number)


@pytest.fixture(scope="module")
def virtual_requests(log_entries):
    jobs = [
        TimedRequest(
            answer.number,
            "default",
            answer.prompt_tokens,
            answer.completion_tokens,
            answer.accepted_s,
        )
        for answer in log_entries
    ]
    return sorted(run_timed(KNOBS, jobs), key=lambda job: job.number)


def test_the_server_plans_the_bursts_of_virtual_time(log_entries, virtual_requests):
    assert [[tokens for _, tokens in answer.bursts] for answer in log_entries] == [
        list(job.tokens) for job in virtual_requests
    ]


def test_the_server_plans_the_times_of_virtual_time(log_entries, virtual_requests):
    for answer, job in zip(log_entries, virtual_requests, strict=True):
        assert answer.due_s == pytest.approx(job.times_s, abs=1e-6)


def test_no_burst_is_written_before_it_is_due(log_entries):
    times_s = [time_s for time_s, _ in log_entries[-1].bursts]
    assert all(
        time_s >= due_s for time_s, due_s in zip(times_s, log_entries[-1].due_s, strict=True)
    )
