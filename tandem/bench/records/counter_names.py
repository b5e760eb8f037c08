"""Names of vLLM's counters by version, and what each engine counts.

Invariant: a figure needs a form of this table whose counters are all on the page. Where the page
fits two forms that disagree, there is no figure.

Read in the source distributions of vLLM 0.6.6.post1, 0.8.2, 0.8.5, 0.9.1, 0.10.2, 0.11.0 and 0.12.0
(2026-11-28), and in 0.32.0: `vllm/engine/metrics.py` is the engine V0, `vllm/v1/metrics/loggers.py`
and `vllm/v1/spec_decode/metrics.py` are V1. prometheus_client adds `_total` to the name of a
counter.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

EngineName = Literal["V0", "V1"]

SAMPLES = {
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "request_tokens_sum": "vllm:request_generation_tokens_sum",
    "requests_finished": "vllm:request_generation_tokens_count",
    "first_tokens": "vllm:time_to_first_token_seconds_count",
    "first_token_seconds": "vllm:time_to_first_token_seconds_sum",
    "decode_steps": "vllm:inter_token_latency_seconds_count",
    "decode_seconds": "vllm:inter_token_latency_seconds_sum",
    "step_times": "vllm:time_per_output_token_seconds_count",
    "tpot_count": "vllm:request_time_per_output_token_seconds_count",
    "tpot_seconds": "vllm:request_time_per_output_token_seconds_sum",
    "e2e_count": "vllm:e2e_request_latency_seconds_count",
    "e2e_seconds": "vllm:e2e_request_latency_seconds_sum",
    "drafts": "vllm:spec_decode_num_drafts_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
    "prefix_cache_queries": "vllm:prefix_cache_queries_total",
    "prefix_cache_hits": "vllm:prefix_cache_hits_total",
}
"""The page's sample of each of our keys."""

ACCEPTED_BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
"""Accepted tokens by position, from 0.8.5 on (V1)."""


class CounterForm(NamedTuple):
    """What the counters of some versions mean.

    Args:
        engine: of the versions.
        versions: that have it.
        steps: key of the counter of decode steps, one a step of a request; None if the form has
            none.
        tokens: key of the counter of output tokens.
        first_tokens: key of the counter of answers that have begun, or that have ended.
        counts_steps_as_tokens: whether `generation_tokens` counts one a step of a request, whatever
            the step commits.
        source: where that stands.
    """

    engine: EngineName
    versions: str
    steps: str
    tokens: str
    first_tokens: str
    counts_steps_as_tokens: bool
    source: str

    @property
    def keys(self) -> tuple[str, str, str]:
        """The counters that the form needs."""
        return self.steps, self.tokens, self.first_tokens


FORMS = (
    CounterForm(
        engine="V1",
        versions="from 0.10.2",
        steps="decode_steps",
        tokens="generation_tokens",
        first_tokens="first_tokens",
        counts_steps_as_tokens=False,
        source=(
            "0.10.2, 0.11.0, 0.12.0, 0.32.0 v1/metrics/loggers.py: inter_token_latencies_iter; vllm"
            " PR 24110"
        ),
    ),
    CounterForm(
        engine="V1",
        versions="0.8 to 0.11; hidden in 0.12, then removed (vllm PR 32661)",
        steps="step_times",
        tokens="generation_tokens",
        first_tokens="first_tokens",
        counts_steps_as_tokens=False,
        source="0.8.2, 0.8.5, 0.9.1, 0.10.2 v1/metrics/loggers.py: time_per_output_tokens_iter",
    ),
    CounterForm(
        engine="V0",
        versions="to 0.10, when the engine was removed",
        steps="generation_tokens",
        tokens="request_tokens_sum",
        first_tokens="requests_finished",
        counts_steps_as_tokens=True,
        source="0.6.6.post1, 0.9.1 engine/metrics.py and engine/llm_engine.py _get_stats",
    ),
)
"""The forms, the newest first."""

ENGINE_LABELS: dict[str, EngineName] = {"engine": "V1"}
"""Labels of samples that one engine alone has: V1 from 0.8.5 on."""

ENGINE_NAMES: dict[str, EngineName] = {
    "vllm:prefix_cache_queries": "V1",
    "vllm:gpu_prefix_cache_queries": "V1",
    "vllm:spec_decode_num_drafts": "V1",
    "vllm:num_requests_swapped": "V0",
    "vllm:cpu_cache_usage_perc": "V0",
    "vllm:gpu_prefix_cache_hit_rate": "V0",
    "vllm:spec_decode_num_emitted_tokens": "V0",
    "vllm:spec_decode_efficiency": "V0",
}
"""Names of series that one engine alone has, without `_total`."""
