"""Requests that run in virtual time and keep when their bursts came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from virtual_engine import run_engine

from tandem.simulator.engine import EngineRequest
from tandem.simulator.settings import SimulatorSettings


@dataclass(slots=True, eq=False)
class TimedRequest(EngineRequest):
    """A request that keeps when each of its bursts came."""

    times_s: list[float] = field(default_factory=list)


def run_timed(
    settings: SimulatorSettings, requests: Iterable[TimedRequest], **options: Any
) -> Iterator[TimedRequest]:
    """Run requests in virtual time, and yield each that ended."""
    for steps, finished_requests in run_engine(settings, requests, **options):
        for request in steps.requests:
            assert isinstance(request, TimedRequest)
            request.times_s += steps.ends_s.tolist()
        yield from finished_requests  # type: ignore[misc]
