"""The process model: what an engine does with requests, in virtual time; no I/O and no clock of its own.

Invariant: the HTTP server and `simulate` run this very engine; with the same knobs, the same requests and the same
times of arrival both give the same steps.

The model is continuous batching as vLLM's scheduler does it without chunked prefill. Requests queue first in, first
out. Whenever the engine is free it does one of two things: while something waits and the batch has room, the prefill
of one request, which gives its first token and during which every other sequence stands still; else one decode step
of all that run. A step costs `step_ms` at its batch size and, with speculation, k draft forwards. (vLLM V1 cuts long
prefills into pieces and mixes them with decodes; what a decoding sequence sees of it is the same stall, spread.)
"""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.twin.server.knobs import Knobs
from tandem.twin.server.law import Counts, draw

Times = NDArray[np.float64]

BLOCK = 4096  # steps that are drawn, and in virtual time taken, at once
_NOTHING: Counts = np.empty(0, dtype=np.int64)
_EVEN: Times = np.arange(1.0, BLOCK + 1)


@dataclass(slots=True, eq=False)
class Job:
    """One request as the engine sees it.

    Args:
        number: of acceptance, from 1. class_: whose acceptance it has.
        prompt_tokens, output_tokens: its own; the first output token is the prefill's.
        arrived_s: when it was accepted.
        started_s, first_s: when its prefill began and ended.
        drawn: tokens that each decode step committed. bursts: the same, the last cut to what was asked for.
        done: decode steps behind it.
    """

    number: int
    class_: str
    prompt_tokens: int
    output_tokens: int
    arrived_s: float = 0.0
    started_s: float = 0.0
    first_s: float = 0.0
    drawn: Counts = field(default_factory=lambda: _NOTHING)
    bursts: Counts = field(default_factory=lambda: _NOTHING)
    done: int = 0
    pieces: list[Times] = field(default_factory=list)

    @property
    def tokens(self) -> Counts:
        """Return the tokens of every burst so far, the prefill's one first. Shapes: (bursts,)."""
        return np.concatenate([[1], self.bursts[: self.done]])

    @property
    def times_s(self) -> Times:
        """Return when every burst so far came. Shapes: (bursts,)."""
        return np.concatenate([[self.first_s], *self.pieces])

    @property
    def ended_s(self) -> float:
        """When its last burst came."""
        return float(self.pieces[-1][-1]) if self.pieces else self.first_s

    @property
    def ends(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.done == len(self.bursts)


class Steps(NamedTuple):
    """What the engine does next: one prefill, or some decode steps of the same batch.

    Args:
        kind: prefill or decode. jobs: the batch; one for a prefill.
        start_s: when the first begins. ends_s: when each ends.
    """

    kind: Literal["prefill", "decode"]
    jobs: tuple[Job, ...]
    start_s: float
    ends_s: Times

    @property
    def end_s(self) -> float:
        """When the last of them ends."""
        return float(self.ends_s[-1])


class _Draws:
    """Endless draws of one class, taken so that a request's whole answer is covered."""

    def __init__(self, knobs: Knobs, class_: str) -> None:
        self._knobs, self._acceptance = knobs, knobs.classes[class_].acceptance
        self._rng = np.random.default_rng([knobs.seed, zlib.crc32(class_.encode())])
        self._drawn, self._sums, self._at = _NOTHING, _NOTHING, 0

    def take(self, tokens: int) -> tuple[Counts, int]:
        """Return the next draws, as many as commit `tokens`, and by how much they commit more."""
        if tokens <= 0:
            return _NOTHING, 0
        begun = int(self._sums[self._at - 1]) if self._at else 0
        if not len(self._sums) or self._sums[-1] - begun < tokens:
            fresh = draw(self._rng, self._knobs.law, self._acceptance, self._knobs.num_speculative_tokens,
                         max(2 * BLOCK, tokens))  # fmt: skip
            self._drawn = np.concatenate([self._drawn[self._at :], fresh])
            self._sums, self._at, begun = self._drawn.cumsum(), 0, 0
        end = int(self._sums.searchsorted(begun + tokens)) + 1
        taken = self._drawn[self._at : end]
        self._at = end
        return taken, int(self._sums[end - 1]) - begun - tokens


class Engine:
    """One engine. Ask `begin` when it is free, and tell it `end` when that time has come."""

    def __init__(self, knobs: Knobs) -> None:
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self._knobs = knobs
        self._draws = {class_: _Draws(knobs, class_) for class_ in knobs.classes}
        drafts_ms = knobs.num_speculative_tokens * knobs.draft_ms if knobs.speculates else 0.0
        self._step_s = [(step_ms + drafts_ms) / 1000 for step_ms in knobs.step_ms]
        self._rng = np.random.default_rng([knobs.seed, 1])
        self._factors, self._factor_at = np.ones(BLOCK), 0
        self._refill()

    @property
    def has_room(self) -> bool:
        """Whether the batch takes another sequence."""
        return len(self.running) < self._knobs.max_num_seqs

    def submit(self, job: Job) -> None:
        """Let a request wait; in the order of arrival."""
        self.waiting.append(job)

    def drop(self, job: Job) -> None:
        """Forget a request whose client went away."""
        if job in self.running:
            self.running.remove(job)
        elif job in self.waiting:
            self.waiting.remove(job)

    def begin(self, at_s: float, *, most: int = 1, until_s: float = float("inf")) -> Steps | None:
        """Return what it does from `at_s` on; None when nothing is there to be done.

        Args:
            most: decode steps at once; they end early where a sequence ends.
            until_s: no decode step begins after this time, for somebody arrives then.
        """
        if self.waiting and self.has_room and self.waiting[0].arrived_s <= at_s:
            return self._prefill(self.waiting.popleft(), at_s)
        if not self.running:
            return None
        cost = self._step_s[min(len(self.running), len(self._step_s)) - 1]
        count = min(most, *(len(job.bursts) - job.done for job in self.running))
        ends = at_s + cost * self._take_ends(count, (until_s - at_s) / cost)
        return Steps("decode", tuple(self.running), at_s, ends)

    def end(self, steps: Steps) -> list[Job]:
        """Take note that `steps` are done; the requests that ended with them."""
        if steps.kind == "prefill":
            (job,) = steps.jobs
            job.first_s = steps.end_s
        else:
            count = len(steps.ends_s)
            for job in steps.jobs:
                job.done += count
                job.pieces.append(steps.ends_s)
        ended = [job for job in steps.jobs if job.ends and job in self.running]
        for job in ended:
            self.running.remove(job)
        return ended

    def _prefill(self, job: Job, at_s: float) -> Steps:
        self.running.append(job)
        job.started_s = at_s
        job.drawn, over = self._draws[job.class_].take(job.output_tokens - 1)
        job.bursts = job.drawn
        if over:
            job.bursts = job.drawn.copy()
            job.bursts[-1] -= over
        cost = (self._knobs.prefill_base_ms + self._knobs.prefill_ms_per_token * job.prompt_tokens) / 1000
        return Steps("prefill", (job,), at_s, at_s + cost * self._take_ends(1, float("inf")))

    def _take_ends(self, count: int, room: float) -> Times:
        """Return the ends of the next steps, in units of an undisturbed step; of those that begin before `room`."""
        if self._factor_at == BLOCK:
            self._refill()
        at = self._factor_at
        ends = self._factors[at : at + count].cumsum() if self._knobs.jitter else _EVEN[: min(count, BLOCK - at)]
        if len(ends) > 1 and room < ends[-1]:
            ends = ends[: 1 + int(ends[:-1].searchsorted(room))]
        self._factor_at = at + len(ends)
        return ends

    def _refill(self) -> None:
        self._factor_at = 0
        if self._knobs.jitter:
            self._factors = np.exp(self._knobs.jitter * self._rng.standard_normal(BLOCK))


def simulate(knobs: Knobs, jobs: Iterable[Job], *, concurrency: int | None = None) -> Iterator[Job]:
    """Run requests to their ends in virtual time; yield each as it ends.

    Args:
        jobs: in the order of `arrived_s`.
        concurrency: a closed loop: so many at first, then each as another ends, whatever its `arrived_s` says.
    """
    for steps, ended in run(knobs, jobs, concurrency=concurrency, most=BLOCK):
        del steps
        yield from ended


def run(
    knobs: Knobs, jobs: Iterable[Job], *, concurrency: int | None = None, most: int = 1
) -> Iterator[tuple[Steps, list[Job]]]:
    """Run requests in virtual time; yield what the engine did, and who ended with it.

    Args:
        jobs, concurrency: as for `simulate`.
        most: decode steps at once; more is faster, and the same.
    """
    engine, source, now = Engine(knobs), iter(jobs), 0.0
    for job in itertools.islice(source, concurrency or 0):
        job.arrived_s = 0.0
        engine.submit(job)
    coming = None if concurrency else next(source, None)
    while True:
        while coming is not None and coming.arrived_s <= now:
            engine.submit(coming)
            coming = next(source, None)
        until_s = coming.arrived_s if coming is not None and engine.has_room else float("inf")
        steps = engine.begin(now, most=most, until_s=until_s)
        if steps is None:
            if coming is None:
                return
            now = coming.arrived_s
            continue
        now, ended = steps.end_s, engine.end(steps)
        for job in itertools.islice(source, len(ended) if concurrency else 0):
            job.arrived_s = now
            engine.submit(job)
        yield steps, ended
