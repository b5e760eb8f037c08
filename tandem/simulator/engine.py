"""The process model: steps of an engine for its requests, in virtual time; no I/O and no clock.

Invariant: the HTTP server and benchmarks/virtual_engine.py run this same engine; with the same
knobs, requests and times of arrival both give the same steps.

The model is continuous batching as in vLLM's scheduler without chunked prefill. Requests queue
first in, first out. A free engine does one of two things: if a request waits and the batch has
room, the prefill of one request, which gives its first token and pauses every other sequence; else
one decode step of all running sequences. A step costs `step_ms` at its batch size and, with
speculation, k draft forwards. (vLLM V1 cuts long prefills into pieces and mixes them with decodes;
a decoding sequence sees the same stall, spread.)

Source of the number of tokens per step: Leviathan et al., arXiv 2211.17192, for vLLM's law; NxD
Inference v0.6.10598 models/model_base.py, `_token_gen_forward`, for NxDI's, which makes k draft
forwards and verifies k - 1 of them.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.simulator.settings import AcceptanceModelName, SimulatorSettings

TimesArray = NDArray[np.float64]
TokenCounts = NDArray[np.int64]

BLOCK_STEPS = 4096  # steps that are drawn at once, and in virtual time also taken at once
_NO_COUNTS: TokenCounts = np.empty(0, dtype=np.int64)
_EVEN_ENDS: TimesArray = np.arange(1.0, BLOCK_STEPS + 1)


def draw_step_tokens(
    rng: np.random.Generator,
    model_name: AcceptanceModelName,
    acceptance: float,
    window: int,
    step_count: int,
) -> TokenCounts:
    """Draw the tokens of `step_count` steps, each at least 1.

    A draft's tokens are accepted one after the other, each with the same chance, until the first
    rejection; then the target's own token follows, up to the limit of a step: 1 without
    speculation, k on NxDI, k + 1 on vLLM.

    Args:
        window: num_speculative_tokens, k.

    Returns:
        Shapes: (steps,).
    """
    max_tokens = {"none": 1, "nxdi": window, "vllm": window + 1}[model_name]
    if max_tokens == 1 or acceptance <= 0:
        return np.ones(step_count, dtype=np.int64)
    if acceptance >= 1:
        return np.full(step_count, max_tokens, dtype=np.int64)
    return np.minimum(rng.geometric(1 - acceptance, step_count), max_tokens)


@dataclass(slots=True, eq=False)
class EngineRequest:
    """One request in the engine.

    Args:
        number: of acceptance, from 1.
        class_: prompt class, which sets the chance of acceptance.
        prompt_tokens, output_tokens: of the request; the prefill gives the first output token.
        arrived_s: time of acceptance.
        started_s, first_s: begin and end of the prefill.
        end_s: time of the last burst.
        step_tokens: tokens that each decode step commits.
        bursts: the same, the last cut to the requested length.
        step_count: finished decode steps.
    """

    number: int
    class_: str
    prompt_tokens: int
    output_tokens: int
    arrived_s: float = 0.0
    started_s: float = 0.0
    first_s: float = 0.0
    end_s: float = 0.0
    step_tokens: TokenCounts = field(default_factory=lambda: _NO_COUNTS)
    bursts: TokenCounts = field(default_factory=lambda: _NO_COUNTS)
    step_count: int = 0

    @property
    def tokens(self) -> TokenCounts:
        """Return the tokens of every burst so far, first the prefill's 1. Shapes: (bursts,)."""
        return np.concatenate([[1], self.bursts[: self.step_count]])

    @property
    def is_complete(self) -> bool:
        """Whether the request has no decode step left."""
        return self.step_count == len(self.bursts)


class EngineSteps(NamedTuple):
    """Next steps of the engine: one prefill, or some decode steps of the same batch.

    Args:
        kind: prefill or decode.
        requests: the batch; one for a prefill.
        ends_s: end of each step. Shapes: (steps,).
    """

    kind: Literal["prefill", "decode"]
    requests: tuple[EngineRequest, ...]
    ends_s: TimesArray

    @property
    def end_s(self) -> float:
        """End of the last step."""
        return float(self.ends_s[-1])


class _AcceptanceDraws:
    """Endless draws of one class, taken for a request's whole answer at once."""

    def __init__(self, settings: SimulatorSettings, class_: str) -> None:
        self._settings = settings
        self._acceptance = settings.classes[class_].acceptance
        self._rng = np.random.default_rng([settings.seed, zlib.crc32(class_.encode())])
        self._step_tokens = _NO_COUNTS
        self._sums = _NO_COUNTS
        self._position = 0

    def take(self, tokens: int) -> tuple[TokenCounts, int]:
        """Return the next draws that commit at least `tokens` together, and the excess tokens."""
        if tokens <= 0:
            return _NO_COUNTS, 0
        start_sum = 0
        if self._position:
            start_sum = int(self._sums[self._position - 1])
        if not len(self._sums) or self._sums[-1] - start_sum < tokens:
            law = self._settings.law
            window = self._settings.num_speculative_tokens
            count = max(2 * BLOCK_STEPS, tokens)
            new_draws = draw_step_tokens(self._rng, law, self._acceptance, window, count)
            self._step_tokens = np.concatenate([self._step_tokens[self._position :], new_draws])
            self._sums = self._step_tokens.cumsum()
            self._position = 0
            start_sum = 0
        end = int(self._sums.searchsorted(start_sum + tokens)) + 1
        step_tokens = self._step_tokens[self._position : end]
        self._position = end
        return step_tokens, int(self._sums[end - 1]) - start_sum - tokens


class BatchingEngine:
    """One engine. Call `begin` when it is free, and `end` when the steps are over."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self.waiting: deque[EngineRequest] = deque()
        self.running: list[EngineRequest] = []
        self._settings = settings
        self._draws = {class_: _AcceptanceDraws(settings, class_) for class_ in settings.classes}
        drafts_ms = 0.0
        if settings.uses_speculation:
            drafts_ms = settings.num_speculative_tokens * settings.draft_ms
        self._step_s = [(step_ms + drafts_ms) / 1000 for step_ms in settings.step_ms]
        self._rng = np.random.default_rng([settings.seed, 1])
        self._factors = np.ones(BLOCK_STEPS)
        self._factor_index = 0
        self._refill()

    @property
    def has_room(self) -> bool:
        """Whether the batch takes another sequence."""
        return len(self.running) < self._settings.max_num_seqs

    def submit(self, request: EngineRequest) -> None:
        """Add a request to the queue; call in the order of arrival."""
        self.waiting.append(request)

    def drop(self, request: EngineRequest) -> None:
        """Remove a request whose client went away."""
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def begin(
        self, start_s: float, *, max_steps: int = 1, until_s: float = float("inf")
    ) -> EngineSteps | None:
        """Return the next steps from `start_s` on; None if there is no work.

        Args:
            max_steps: most decode steps at once; fewer if a sequence ends.
            until_s: no further decode step begins after this time, at which the next request
                arrives.
        """
        if self.waiting and self.has_room and self.waiting[0].arrived_s <= start_s:
            return self._prefill(self.waiting.popleft(), start_s)
        if not self.running:
            return None
        step_s = self._step_s[min(len(self.running), len(self._step_s)) - 1]
        count = min(
            max_steps, *(len(request.bursts) - request.step_count for request in self.running)
        )
        ends = start_s + step_s * self._take_ends(count, (until_s - start_s) / step_s)
        return EngineSteps("decode", tuple(self.running), ends)

    def end(self, steps: EngineSteps) -> list[EngineRequest]:
        """Record that `steps` are done; return the requests that ended with them."""
        for request in steps.requests:
            request.end_s = steps.end_s
            if steps.kind == "prefill":
                request.first_s = steps.end_s
            else:
                request.step_count += len(steps.ends_s)
        finished_requests = [
            request for request in steps.requests if request.is_complete and request in self.running
        ]
        for request in finished_requests:
            self.running.remove(request)
        return finished_requests

    def _prefill(self, request: EngineRequest, start_s: float) -> EngineSteps:
        self.running.append(request)
        request.started_s = start_s
        request.step_tokens, excess_tokens = self._draws[request.class_].take(
            request.output_tokens - 1
        )
        request.bursts = request.step_tokens
        if excess_tokens:
            request.bursts = request.step_tokens.copy()
            request.bursts[-1] -= excess_tokens
        prefill_ms = (
            self._settings.prefill_base_ms
            + self._settings.prefill_ms_per_token * request.prompt_tokens
        )
        ends = start_s + prefill_ms / 1000 * self._take_ends(1, float("inf"))
        return EngineSteps("prefill", (request,), ends)

    def _take_ends(self, count: int, max_start: float) -> TimesArray:
        """Return the ends of the next steps that begin before `max_start`, in undisturbed steps."""
        if self._factor_index == BLOCK_STEPS:
            self._refill()
        first_index = self._factor_index
        ends = _EVEN_ENDS[: min(count, BLOCK_STEPS - first_index)]
        if self._settings.jitter:
            ends = self._factors[first_index : first_index + count].cumsum()
        if len(ends) > 1 and max_start < ends[-1]:
            ends = ends[: 1 + int(ends[:-1].searchsorted(max_start))]
        self._factor_index = first_index + len(ends)
        return ends

    def _refill(self) -> None:
        self._factor_index = 0
        if self._settings.jitter:
            self._factors = np.exp(self._settings.jitter * self._rng.standard_normal(BLOCK_STEPS))
