"""The simulator's engine in virtual time, without a server: for benchmarks and tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from tandem.simulator.engine import BatchingEngine, EngineRequest, EngineSteps
from tandem.simulator.settings import SimulatorSettings


def run_engine(
    settings: SimulatorSettings,
    requests: Iterable[EngineRequest],
    *,
    concurrency: int | None = None,
    max_steps: int = 1,
) -> Iterator[tuple[EngineSteps, list[EngineRequest]]]:
    """Run requests in virtual time; yield the steps, and the requests that ended with them.

    Args:
        requests: in the order of `arrived_s`.
        concurrency: of a closed loop: so many requests at first, then one as another ends;
            `arrived_s` is ignored.
        max_steps: decode steps at once; a larger number is faster and gives the same result.
    """
    engine = BatchingEngine(settings)
    request_iterator = iter(requests)
    now_s = 0.0
    for request in itertools.islice(request_iterator, concurrency or 0):
        request.arrived_s = 0.0
        engine.submit(request)
    next_request = None if concurrency else next(request_iterator, None)
    while True:
        while next_request is not None and next_request.arrived_s <= now_s:
            engine.submit(next_request)
            next_request = next(request_iterator, None)
        until_s = (
            next_request.arrived_s if next_request is not None and engine.has_room else float("inf")
        )
        steps = engine.begin(now_s, max_steps=max_steps, until_s=until_s)
        if steps is None:
            if next_request is None:
                return
            now_s = next_request.arrived_s
            continue
        now_s = steps.end_s
        finished_requests = engine.end(steps)
        for request in itertools.islice(
            request_iterator, len(finished_requests) if concurrency else 0
        ):
            request.arrived_s = now_s
            engine.submit(request)
        yield steps, finished_requests
