"""The model against the simulator's process model in virtual time, whose laws and costs are
known."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from theory_model import predict_speed_up
from virtual_engine import run_engine

from tandem.plan.step_tokens import expect_tokens
from tandem.simulator.engine import BLOCK_STEPS, EngineRequest
from tandem.simulator.settings import PromptClassSettings, SimulatorSettings

STEP_MS = 45.0
TOKENS = 1000
REQUESTS = 30
# an answer's last step is cut, and 30 answers are a sample
MOST_ERROR = 0.08
MEDIAN_ERROR = 0.02
SEED = int(os.environ.get("TANDEM_PROOF_SEED") or 21)


def measure_tpot_ms(settings):
    requests = [EngineRequest(number, "default", 64, TOKENS) for number in range(1, REQUESTS + 1)]
    requests_done = [
        request
        for _, done in run_engine(settings, requests, concurrency=1, max_steps=BLOCK_STEPS)
        for request in done
    ]
    return (
        1000
        * sum(request.end_s - request.first_s for request in requests_done)
        / (len(requests_done) * (TOKENS - 1))
    )


def measure_world(rng):
    """The relative error of the predicted speed-up in a world drawn from the generator."""
    law = ("nxdi", "k") if rng.random() < 0.5 else ("vllm", "k+1")
    window = int(rng.integers(1, 16))
    acceptance = float(rng.uniform(0.3, 0.95))
    draft_ms = STEP_MS * float(rng.uniform(0.05, 0.4))
    classes = {"default": PromptClassSettings(acceptance=acceptance)}
    shared = {
        "step_ms": (STEP_MS,),
        "classes": classes,
        "jitter": 0.02,
        "seed": int(rng.integers(1 << 30)),
    }
    plain_ms = measure_tpot_ms(SimulatorSettings(**shared))
    speculation = SimulatorSettings(
        law=law[0], num_speculative_tokens=window, draft_ms=draft_ms, **shared
    )
    prediction = predict_speed_up(
        expect_tokens(law[1], acceptance, window), window, draft_ms, plain_ms
    )
    return abs(prediction / (plain_ms / measure_tpot_ms(speculation)) - 1)


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.proof)])
def test_the_speed_up_of_every_world_is_predicted(count):
    rng = np.random.default_rng(SEED)
    errors = np.array([measure_world(rng) for _ in range(count)])
    print(f"{count} worlds: median error {np.median(errors):.3%}, largest {errors.max():.3%}")  # noqa: T201
    assert np.median(errors) <= MEDIAN_ERROR
    assert errors.max() <= MOST_ERROR


def test_the_other_runtimes_law_is_caught(monkeypatch):
    laws = {"k": "k+1", "k+1": "k"}
    expect = expect_tokens
    monkeypatch.setattr(
        sys.modules[__name__], "expect_tokens", lambda law, *rest: expect(laws[law], *rest)
    )
    rng = np.random.default_rng(SEED)
    assert max(measure_world(rng) for _ in range(8)) > MOST_ERROR
