"""Twins with steps of a millisecond, one for all tests of a module that change nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tandem.twin.server.knobs import ClassKnobs, Knobs
from tandem.twin.server.twin import Twin

QUICK = Knobs(
    model="m", law="vllm", num_speculative_tokens=3, step_ms=(1.0,), prefill_base_ms=1, prefill_ms_per_token=0,
    classes={"default": ClassKnobs(acceptance=0.7, output_tokens=30)},
)  # fmt: skip


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    with Twin(QUICK) as running:
        yield running


@pytest.fixture
def started() -> Iterator[Callable[..., Twin]]:
    """Start a twin of the quick knobs and some others."""
    running: list[Twin] = []

    def start(knobs: Knobs = QUICK, **more: object) -> Twin:
        running.append(Twin(knobs.model_copy(update=more)).start())
        return running[-1]

    yield start
    for one in running:
        one.stop()
