"""Simulators with steps of a millisecond, one for all tests of a module that change nothing of
it."""

from __future__ import annotations

import pytest
from doubles.simulator_thread import SimulatorThread

from tandem.simulator.settings import PromptClassSettings, SimulatorSettings

QUICK = SimulatorSettings(
    model="m",
    law="vllm",
    num_speculative_tokens=3,
    step_ms=(1.0,),
    prefill_base_ms=1,
    prefill_ms_per_token=0,
    classes={"default": PromptClassSettings(acceptance=0.7, output_tokens=30)},
)


@pytest.fixture(scope="module")
def simulator():
    with SimulatorThread(QUICK) as running:
        yield running


@pytest.fixture
def start_simulator():
    """Start a simulator of the quick knobs and some others."""
    running: list[SimulatorThread] = []

    def start(knobs: SimulatorSettings = QUICK, **more: object) -> SimulatorThread:
        running.append(SimulatorThread(knobs.model_copy(update=more)).start())
        return running[-1]

    yield start
    for engine in running:
        engine.stop()
