"""The process model in virtual time: each knob of it, and that it is the same step by step and at
once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from virtual_engine import run_engine
from virtual_time import TimedRequest, run_timed

from tandem.simulator.engine import BLOCK_STEPS
from tandem.simulator.settings import PromptClassSettings, SimulatorSettings


def knobs(acceptance: float = 0.8, **more: object) -> SimulatorSettings:
    base = {"prefill_base_ms": 100.0, "prefill_ms_per_token": 1.0, "step_ms": (10.0,)}
    return SimulatorSettings(
        **{**base, "classes": {"default": PromptClassSettings(acceptance=acceptance)}, **more}
    )


def speculating(law: str = "nxdi", window: int = 7, **more: object) -> SimulatorSettings:
    return knobs(law=law, num_speculative_tokens=window, **more)


def jobs(
    count: int, output: int = 65, prompt: int = 50, apart_s: float = 0.0
) -> list[TimedRequest]:
    return [
        TimedRequest(number + 1, "default", prompt, output, number * apart_s)
        for number in range(count)
    ]


def ended(
    settings: SimulatorSettings, requests: Iterable[TimedRequest], concurrency: int | None = None
) -> list[TimedRequest]:
    ends = run_timed(settings, requests, concurrency=concurrency, max_steps=BLOCK_STEPS)
    return sorted(ends, key=lambda job: job.number)


def step_ms(job: TimedRequest) -> list[float]:
    return [round(gap * 1000, 6) for gap in np.diff(job.times_s)]


@pytest.mark.parametrize("output", [1, 8, 65])
@pytest.mark.parametrize("law", ["none", "nxdi", "vllm"])
def test_a_request_gets_exactly_the_tokens_it_is_to_get(law, output):
    (job,) = ended(speculating(law) if law != "none" else knobs(), jobs(1, output))
    assert job.tokens.sum() == output
    assert job.tokens.min() == 1 or output == 1


def test_a_prefill_costs_its_base_and_each_prompt_token():
    short, long = ended(knobs(), [*jobs(1, prompt=50), TimedRequest(2, "default", 250, 65, 100.0)])
    assert (short.first_s, long.first_s - 100) == pytest.approx((0.150, 0.350))


def test_the_acceptance_of_a_class_decides_its_bursts():
    classes = {
        name: PromptClassSettings(acceptance=chance)
        for name, chance in (("default", 0.0), ("copy", 1.0), ("prose", 0.5))
    }
    settings = speculating(classes=classes)
    requests = [TimedRequest(number + 1, name, 50, 8401) for number, name in enumerate(classes)]

    means = [job.step_tokens.mean() for job in ended(settings, requests)]

    assert means[:2] == [1, 7]
    assert means[2] == pytest.approx((1 - 0.5**7) / (1 - 0.5), abs=0.1)


def test_the_window_bounds_a_burst():
    widest = [
        ended(speculating("vllm", window, acceptance=1.0), jobs(1, 101))[0].tokens.max()
        for window in (1, 3, 9)
    ]
    assert widest == [2, 4, 10]


def test_a_step_costs_more_in_a_larger_batch():
    settings = knobs(
        step_ms=(10.0, 14.0, 15.0), prefill_base_ms=0, prefill_ms_per_token=0, max_num_seqs=8
    )
    costs = [step_ms(ended(settings, jobs(count))[0])[0] for count in (1, 2, 3, 5)]
    assert costs == [10, 14, 15, 15]


def test_each_step_of_a_speculating_server_pays_k_draft_forwards():
    settings = speculating("vllm", 7, draft_ms=2.0)
    assert set(step_ms(ended(settings, jobs(1))[0])) == {10 + 7 * 2.0}


def test_a_prefill_stalls_every_sequence_that_decodes():
    first, second = ended(knobs(), jobs(2, output=101, apart_s=0.5))
    long_gaps = [gap for gap in step_ms(first) if gap > 10]
    assert long_gaps == [10 + 150]
    assert second.first_s - second.started_s == pytest.approx(0.150)


def test_a_batch_has_a_limit_and_others_wait():
    settings = knobs(max_num_seqs=2, prefill_base_ms=1, prefill_ms_per_token=0)
    batches = [
        len(steps.requests) for steps, _ in run_engine(settings, jobs(6)) if steps.kind == "decode"
    ]
    done = ended(settings, jobs(6))

    assert max(batches) == 2
    assert [job.number for job in sorted(done, key=lambda job: job.started_s)] == [1, 2, 3, 4, 5, 6]
    assert done[2].started_s == pytest.approx(min(done[0].end_s, done[1].end_s))


def test_jitter_spreads_steps_around_the_same_median():
    gaps = np.log(step_ms(ended(knobs(jitter=0.2), jobs(1, 20_001))[0]))
    assert (np.median(gaps), gaps.std()) == pytest.approx((np.log(10), 0.2), abs=0.01)


def times(done: Sequence[TimedRequest]) -> list[list[float]]:
    return [job.times_s for job in done]


def test_a_seed_decides_the_steps():
    def of(seed: int) -> list[list[float]]:
        return times(ended(speculating(jitter=0.1, seed=seed), jobs(20, apart_s=0.05)))

    assert of(1) == of(1)
    assert of(1) != of(2)


@pytest.mark.parametrize("jitter", [0.0, 0.3])
@pytest.mark.parametrize("concurrency", [None, 3, 7])
def test_many_steps_at_once_are_the_steps_one_by_one(jitter, concurrency):
    settings = speculating(jitter=jitter, step_ms=(10.0, 11.0, 12.0))

    at_once = ended(settings, jobs(200, apart_s=0.11), concurrency)
    requests = jobs(200, apart_s=0.11)
    for _ in run_timed(settings, requests, concurrency=concurrency):
        pass

    assert [list(job.tokens) for job in at_once] == [list(job.tokens) for job in requests]
    for first, second in zip(times(at_once), times(requests), strict=True):
        assert first == pytest.approx(second)
