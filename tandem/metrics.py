"""The catalogue of figures: every metric that a record, a report, a dashboard or an alarm may name.

Invariant: standard library only, since all others import it; a name means one thing everywhere, and
its unit is its last word (`_ms`, `_per_s`) or a count. What is not here is not a metric of Tandem.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

BetterDirection = Literal["lower", "higher", "neither"]


@dataclass(frozen=True)
class Metric:
    """One figure.

    Args:
        definition: the formula and its known bias.
        title: of its graphs, without statistic and unit; empty: it is not published. What is drawn
            is published, and the reverse.
        sentence: what a graph of it shows and what it does not.
        has_speed_up: whether a speed-up of it means anything.
        needs_speculation: whether only arms that speculate have it.
        name: as it stands in summary.json and everywhere else.
        unit: ms, 1 (a plain number), tokens, tokens/s, requests, requests/s, rounds.
        better: which way is better; `neither` for what only describes.
    """

    definition: str
    title: str = ""
    sentence: str = ""
    has_speed_up: bool = False
    needs_speculation: bool = False
    name: str = ""
    unit: str = ""
    better: BetterDirection = "neither"


# those with a title are in the order of the dashboard's rows
_METRICS: dict[tuple[str, str, BetterDirection], Metric] = {
    ("e2e_ms", "ms", "lower"): Metric(
        "from the start of the request to its last chunk with a choice; the usage chunk and [DONE]"
        " do not count",
        "E2E latency",
        "From sending a request to its last chunk. Grows with the answer's length: compare it only"
        " between arms whose answers are as long (completion tokens, below).",
        has_speed_up=True,
    ),
    ("tpot_ms", "ms", "lower"): Metric(
        "(E2E - TTFT) / (completion_tokens - 1), one value a request, absent below 2 tokens; biased"
        " low when the first chunk holds b > 1 tokens, by the factor (completion_tokens - b) /"
        " (completion_tokens - 1): see tpot_exact_ms",
        "TPOT",
        "Time per output token after the first: what speculation is to lower. Not the time between"
        " chunks, and biased low where the first chunk holds several tokens.",
        has_speed_up=True,
    ),
    ("tpot_exact_ms", "ms", "lower"): Metric(
        "(last - first token-bearing chunk) / (tokens - tokens in the first), one value a request;"
        " absent where the server does not say how many tokens each chunk holds, or all came in one"
    ),
    ("llmperf_inter_token_latency_ms", "ms", "lower"): Metric(
        "arrival of the last chunk with text / number of chunks, the role chunk and the finish"
        " chunk counted, as llmperf f1d6bed computes it: its sum of TTFT and gaps over its"
        " tokens_received",
        "Inter-token latency by llmperf's definition",
        "Arrival of the last chunk / number of chunks: it counts chunks as tokens. With speculation"
        " it is near the time of a step, so it says no gain where TPOT, above, says one.",
    ),
    ("ttft_ms", "ms", "lower"): Metric(
        "from the start of the request to its first token-bearing chunk; the role chunk carries no"
        " token; the time a late open-loop start was overdue is not in it (schedule_delay_ms)",
        "TTFT",
        "From sending a request to its first token: prefill and queue. Speculation is not to"
        " change it.",
        has_speed_up=True,
    ),
    ("output_tokens_per_s", "tokens/s", "higher"): Metric(
        "completion_tokens / E2E of one request (per stream): its wait for the first token is"
        " in it",
        "Output tokens per stream",
        "What one user sees: tokens of a request over its E2E, the wait for the first token"
        " included. Higher is better, so p90 is the fast end.",
        has_speed_up=True,
    ),
    ("system_output_tokens_per_s", "tokens/s", "higher"): Metric(
        "completion tokens of the cell's requests that succeeded / the busy time of the arm, in"
        " which at least one of its requests ran; quantiles are over turns, the mean is all tokens"
        " / the sum of all turns; short turns are biased low by their ends",
        "Output tokens of the system",
        "What one arm puts out in a turn, all streams together; one value a turn. Short turns read"
        " low, since fewer streams run at their ends.",
        has_speed_up=True,
    ),
    ("goodput_per_s", "requests/s", "higher"): Metric(
        "requests that succeeded within every stated limit / the busy time as of"
        " system_output_tokens_per_s; one token meets a limit of TPOT; absent without limits, or"
        " where a limit needs usage and there is none",
        "Goodput",
        "Requests per second that succeeded within every stated limit, one value a turn. Empty"
        " where the run was given no limits.",
        has_speed_up=True,
    ),
    ("goodput_share", "1", "higher"): Metric(
        "requests that succeeded within every stated limit / all requests of the turn; quantiles"
        " are over turns, the mean is over all requests; absent as goodput_per_s",
        "Requests within the limits",
        "Share of the requests that succeeded within every stated limit, one value a turn. Empty"
        " where the run was given no limits. The verdict says whether arms differ in it.",
    ),
    ("acceptance_length", "tokens", "higher"): Metric(
        "tokens committed by one speculative step, the target's own included. Live counters: 1 +"
        " accepted tokens / drafts. Flat counters: tokens after each answer's first / decode steps,"
        " lower by the cut at an answer's end. Quantiles are over turns, the mean is the ratio of"
        " the sums; absent for an arm that does not speculate",
        "Acceptance length",
        "Tokens that one speculative step commits, the target's own included; one value a turn,"
        " where the runtime counts it. TPOT says whether a longer step pays.",
        needs_speculation=True,
    ),
    ("draft_acceptance_rate", "1", "higher"): Metric(
        "accepted tokens / drafted tokens; quantiles and mean as of acceptance_length; falls with"
        " the window by itself, so it compares no two windows"
    ),
    ("target_steps_per_token", "1", "lower"): Metric(
        "steps in which the target ran for an answer, prefill's last one included / output tokens;"
        " 1 without speculation; quantiles and mean as of acceptance_length"
    ),
    ("chunk_gap_ms", "ms", "lower"): Metric(
        "between one token-bearing chunk and the next, every gap of every request in one pool: a"
        " long answer weighs more; under speculation the time of an engine step, not of a token",
        "Chunk gap",
        "Time between streamed chunks. Under speculation that is an engine step, which holds"
        " several tokens: a larger gap is no slower arm.",
    ),
    ("tokens_per_chunk", "tokens", "neither"): Metric(
        "completion_tokens / token-bearing chunks, one value a request; about 1 without"
        " speculation, a little above where the server counts a stop token that it does not send,"
        " or joins chunks"
    ),
    ("prompt_tokens", "tokens", "neither"): Metric(
        "tokens of the prompt, template included, as the server counts",
        "Prompt tokens",
        "As the server counts, template included. Both arms must lie on one line: they were asked"
        " the same.",
    ),
    ("completion_tokens", "tokens", "neither"): Metric(
        "tokens of the answer, reasoning and the stop token included, as the server counts",
        "Completion tokens",
        "As the server counts, stop token included. Greedy arms whose answers differ in length do"
        " not answer alike, and their E2E compares different work.",
    ),
    ("schedule_delay_ms", "ms", "lower"): Metric(
        "open loop only: how much later than planned a request was begun; beyond a few ms the load"
        " was not the one asked for"
    ),
    ("requests", "requests", "neither"): Metric(
        "requests of one round in the cell that have a record, failed ones included; one that an"
        " interrupt cut and that was asked again counts both times",
        "Requests",
        "Requests of the rounds of these minutes, failed ones included. A gap means that no round"
        " was published, not that nothing was asked.",
    ),
    ("failed_requests", "requests", "lower"): Metric(
        "of `requests`, those whose record has an error; 0 is sent where none failed, so that a"
        " share can be computed",
        "Failed requests",
        "Requests whose record has an error: refused, timed out, cut, or not the protocol. What"
        " failed is in records.jsonl; it is in no latency above.",
    ),
    ("unpublished_rounds", "rounds", "lower"): Metric(
        "earlier rounds of the run that are recorded whole and that CloudWatch had not taken whole"
        " when this one was sent; all classes and loads together, the same for every arm",
        "Rounds recorded, not yet published",
        "Earlier rounds that CloudWatch had not taken when a round was sent; all classes and loads"
        " pooled. 0 is sound. It cannot rise once nothing is sent at all: then it ends.",
    ),
}

CATALOGUE = {
    name: replace(metric, name=name, unit=unit, better=better)
    for (name, unit, better), metric in _METRICS.items()
}


@dataclass(frozen=True)
class PostFigure:
    """A figure of the post: the metric that it draws, its title, and what it says and does not."""

    metric: str
    title: str
    sentence: str


POST_FIGURES = (
    PostFigure(
        "e2e_ms",
        "Figure 3: E2E latency",
        "The post: the structured prompt is faster with speculation all along, the open-ended one"
        " is not. E2E alone does not say which part of a request got faster.",
    ),
    PostFigure(
        "ttft_ms",
        "Figure 5: TTFT",
        "The post: unchanged by speculation. A difference here comes from queue or prefill, not"
        " from accepted tokens.",
    ),
    PostFigure(
        "tpot_ms",
        "Figure 4, as time per output token",
        "(E2E - TTFT) / (tokens - 1): each token counts, however many came in one chunk. The post"
        " prints no such figure.",
    ),
    PostFigure(
        "llmperf_inter_token_latency_ms",
        "Figure 4, as llmperf computes it",
        "Arrival of the last chunk / number of chunks: llmperf counts chunks as tokens. Under"
        " speculation a chunk holds several,"
        " so this stays near the time of a step and hides the gain.",
    ),
)

_POSITION = re.compile(r"acceptance_position_([1-9]\d*)")


def acceptance_position(position: int) -> str:
    """Return the name of the acceptance rate at the drafted `position`, which counts from 1."""
    return f"acceptance_position_{position}"


def list_position_rates(read_mean: Callable[[str], float | None]) -> tuple[float, ...]:
    """Return the acceptance rates of the drafted positions, up to the first without one.

    Args:
        read_mean: returns the mean of a metric by its name; None where there is none.
    """
    rates = []
    for position in count(1):
        rate = read_mean(acceptance_position(position))
        if rate is None:
            break
        rates.append(rate)
    return tuple(rates)


def find_metric(name: str) -> Metric:
    """Return the metric called `name`.

    Raises:
        KeyError: no such metric.
    """
    match = _POSITION.fullmatch(name)
    if not match:
        return CATALOGUE[name]
    return Metric(
        f"drafts whose token {match[1]} was accepted / drafts: not conditional on the tokens before"
        " it; quantiles and mean as of acceptance_length",
        name=name,
        unit="1",
        better="higher",
    )


def list_published_metrics() -> tuple[Metric, ...]:
    """Return what the bench sends to CloudWatch, in the order of the dashboard's rows."""
    return tuple(metric for metric in CATALOGUE.values() if metric.title)
