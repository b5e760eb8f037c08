"""The catalogue of figures: every metric that a record, a report, a dashboard or an alarm may name.

Invariant: standard library only, because a Lambda packs this file; a name means one thing everywhere, and its unit
is its last word (`_ms`, `_per_s`) or a count. What is not here is not a metric of Tandem.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher", "neither"]
Spread = Literal["request", "gap", "turn", "round"]


@dataclass(frozen=True)
class Metric:
    """One figure.

    Args:
        name: as it stands in summary.json and everywhere else.
        unit: ms, 1 (a plain number), tokens, tokens/s, requests, requests/s, rounds.
        definition: the formula and its known bias, in the words of docs/measurement.md.
        source: what it is computed from, and whose definition it is where it is not ours.
        better: which way is better; `neither` for what only describes.
        spread: what one value of it belongs to; quantiles are over these. A count of a round has one value a round and
            cell and no cell in summary.json, which has the counts of the whole run elsewhere.
        published: whether it goes to CloudWatch; what is drawn is published, and the reverse.
    """

    name: str
    unit: str
    definition: str
    source: str
    better: Better
    spread: Spread = "request"
    published: bool = False


_CHUNKS = "arrival times of the response's SSE chunks"
_USAGE = "the server's usage"

_METRICS = (
    Metric(
        "ttft_ms",
        "ms",
        "from the start of the request to its first token-bearing chunk: the role chunk, which carries no token, does "
        "not count; the time a late open-loop start was overdue is not in it (schedule_delay_ms)",
        _CHUNKS,
        "lower",
        published=True,
    ),
    Metric(
        "tpot_ms",
        "ms",
        "(E2E - TTFT) / (completion_tokens - 1), one value a request, absent below 2 tokens; biased low when the first "
        "chunk holds b > 1 tokens, by the factor (completion_tokens - b) / (completion_tokens - 1): see tpot_exact_ms",
        f"{_CHUNKS}; {_USAGE}",
        "lower",
        published=True,
    ),
    Metric(
        "tpot_exact_ms",
        "ms",
        "(last - first token-bearing chunk) / (tokens - tokens in the first), one value a request; absent where the "
        "server does not say how many tokens each chunk holds, or all came in one",
        f"{_CHUNKS}; running usage or token ids in each chunk",
        "lower",
    ),
    Metric(
        "chunk_gap_ms",
        "ms",
        "between one token-bearing chunk and the next, every gap of every request in one pool: a long answer weighs "
        "more; under speculation this is the time of an engine step, not of a token",
        _CHUNKS,
        "lower",
        spread="gap",
        published=True,
    ),
    Metric(
        "e2e_ms",
        "ms",
        "from the start of the request to its last chunk with a choice; the usage chunk and [DONE] do not count",
        _CHUNKS,
        "lower",
        published=True,
    ),
    Metric(
        "tokens_per_chunk",
        "tokens",
        "completion_tokens / token-bearing chunks, one value a request; about 1 without speculation, a little above "
        "where the server counts a stop token that it does not send in a chunk of its own, or joins chunks",
        f"{_CHUNKS}; {_USAGE}",
        "neither",
    ),
    Metric(
        "output_tokens_per_s",
        "tokens/s",
        "completion_tokens / E2E of one request (per stream): its wait for the first token is in it",
        f"{_CHUNKS}; {_USAGE}",
        "higher",
        published=True,
    ),
    Metric(
        "system_output_tokens_per_s",
        "tokens/s",
        "completion tokens of the cell's requests that succeeded / the busy time of the arm, which for one turn is "
        "from its first start to its last end, failed requests included; quantiles are over turns (n counts turns), "
        "the mean is all tokens / the sum of all turns; short turns are biased low by their ends, where fewer run",
        f"start and end of every request; {_USAGE}",
        "higher",
        spread="turn",
        published=True,
    ),
    Metric(
        "goodput_per_s",
        "requests/s",
        "requests that succeeded within every stated limit / the busy time as of system_output_tokens_per_s; a limit "
        "on a figure that one token cannot have is met; absent without limits, or where a limit needs usage and there "
        "is none",
        f"the limits in manifest.json; {_CHUNKS}; {_USAGE}",
        "higher",
        spread="turn",
        published=True,
    ),
    Metric(
        "acceptance_length",
        "tokens",
        "tokens committed by one speculative step, the target's own included. Live counters: 1 + accepted tokens / "
        "drafts. Flat counters: tokens after each answer's first / decode steps, lower by the cut at an answer's end. "
        "Quantiles are over turns, the mean is the ratio of the sums; absent for an arm that does not speculate",
        "differences of the server's /metrics before and after each turn",
        "higher",
        spread="turn",
        published=True,
    ),
    Metric(
        "draft_acceptance_rate",
        "1",
        "accepted tokens / drafted tokens; quantiles and mean as of acceptance_length; falls with the window by "
        "itself, so it compares no two windows",
        "spec_decode counters of the server's /metrics, where they count",
        "higher",
        spread="turn",
    ),
    Metric(
        "target_steps_per_token",
        "1",
        "steps in which the target ran for an answer, prefill's last one included / output tokens; 1 without "
        "speculation; quantiles and mean as of acceptance_length",
        "differences of the server's /metrics before and after each turn",
        "lower",
        spread="turn",
    ),
    Metric(
        "prompt_tokens",
        "tokens",
        "tokens of the prompt, template included, as the server counts",
        _USAGE,
        "neither",
        published=True,
    ),
    Metric(
        "completion_tokens",
        "tokens",
        "tokens of the answer, reasoning and the stop token included, as the server counts",
        _USAGE,
        "neither",
        published=True,
    ),
    Metric(
        "schedule_delay_ms",
        "ms",
        "open loop only: how much later than planned a request was begun; beyond a few ms the load was not the one "
        "asked for",
        "due_s and start_s of the records",
        "lower",
    ),
    Metric(
        "llmperf_inter_token_latency_ms",
        "ms",
        "arrival of the last chunk with text / number of chunks, the role chunk and the finish chunk counted: "
        "llmperf's sum of TTFT and gaps over its tokens_received. Under speculation it is near the time of a step, "
        "not of a token",
        f"{_CHUNKS}; llmperf f1d6bed, token_benchmark_ray.py and openai_chat_completions_client.py, by definition",
        "lower",
        published=True,
    ),
    Metric(
        "requests",
        "requests",
        "requests of one round in the cell that have a record, failed ones included; one that an interrupt cut and "
        "that was asked again counts both times; the sum over rounds is the count in summary.json",
        "records of the round",
        "neither",
        spread="round",
        published=True,
    ),
    Metric(
        "failed_requests",
        "requests",
        "of `requests`, those whose record has an error; 0 is sent where none failed, so that a share can be computed; "
        "the sum over rounds is the count in summary.json",
        "error of the records of the round",
        "lower",
        spread="round",
        published=True,
    ),
    Metric(
        "unpublished_rounds",
        "rounds",
        "earlier rounds of the run that are recorded whole and that CloudWatch had not taken whole when this one was "
        "sent: 0 while publishing keeps up; all classes and loads together, the same for every arm; says nothing once "
        "nothing is sent at all",
        "the run's folder and its journal of what was published",
        "lower",
        spread="round",
        published=True,
    ),
)

CATALOGUE: dict[str, Metric] = {metric.name: metric for metric in _METRICS}

_POSITION = re.compile(r"acceptance_position_([1-9]\d*)")


def acceptance_position(position: int) -> str:
    """Return the name of the acceptance rate at the drafted `position`, which counts from 1."""
    return f"acceptance_position_{position}"


def metric(name: str) -> Metric:
    """Return the metric called `name`.

    Raises:
        KeyError: no such metric.
    """
    found = _POSITION.fullmatch(name)
    if not found:
        return CATALOGUE[name]
    return Metric(
        name,
        "1",
        f"drafts whose token {found[1]} was accepted / drafts: not conditional on the tokens before it; quantiles and "
        "mean as of acceptance_length",
        "spec_decode_num_accepted_tokens_per_pos of the server's /metrics, where it counts",
        "higher",
    )


@dataclass(frozen=True)
class Publisher:
    """Who sends metrics to CloudWatch.

    Args:
        name: as widgets, alarms and the cost name it.
        what: the program, in a sentence.
        namespace: of its metrics; `{environment}` and `{cluster}` stand for the names.
        dimensions: names of the dimensions that it sets, one tuple for each set it sends.
        sample: file in tests/watch/samples that holds what it really sent; None: nothing of it may be drawn.
        source: where the sample, or the reason that there is none, is from, with its date.
    """

    name: str
    what: str
    namespace: str
    dimensions: tuple[tuple[str, ...], ...]
    sample: str | None
    source: str


@dataclass(frozen=True)
class Watched:
    """A metric that CloudWatch holds and somebody else than the bench sends.

    Args:
        name: as CloudWatch has it.
        unit: as of Metric, or percent, bytes.
        definition: what it counts and what it does not.
        publisher: name of the Publisher.
    """

    name: str
    unit: str
    definition: str
    publisher: str


BENCH = "bench"
BENCH_DIMENSIONS = ("Experiment", "Variant", "PromptClass", "Concurrency")
EVERY = "all"  # the class or the concurrency of what pools them all


PUBLISHERS: dict[str, Publisher] = {
    publisher.name: publisher
    for publisher in (
        Publisher(
            BENCH,
            "the bench, after each round and by `tandem bench publish`: one value a request, a gap, a turn or a round",
            "Tandem/{environment}",
            (BENCH_DIMENSIONS,),
            "bench.json",
            "what this program sends; the test of the sample makes it again",
        ),
    )
}
"""By name; a widget or an alarm names one of these."""

WATCHED: dict[tuple[str, str], Watched] = {}
"""What others send, by publisher and name."""

_CLOUDWATCH_UNITS = {
    "ms": "Milliseconds",
    "s": "Seconds",
    "1": "None",
    "tokens": "Count",
    "tokens/s": "Count/Second",
    "requests": "Count",
    "requests/s": "Count/Second",
    "rounds": "Count",
    "nodes": "Count",
    "percent": "Percent",
    "bytes": "Bytes",
}


def published() -> tuple[Metric, ...]:
    """Return what the bench sends to CloudWatch, in the catalogue's order."""
    return tuple(one for one in CATALOGUE.values() if one.published)


def namespace(publisher: str, environment_name: str, cluster_name: str) -> str:
    """Return the CloudWatch namespace of a publisher's metrics.

    Raises:
        KeyError: no such publisher.
    """
    return PUBLISHERS[publisher].namespace.format(environment=environment_name, cluster=cluster_name)


def cloudwatch_unit(metric: Metric | Watched) -> str:
    """Return the unit in CloudWatch's own words (StandardUnit of its API).

    Raises:
        KeyError: a unit that CloudWatch has no word for.
    """
    return _CLOUDWATCH_UNITS[metric.unit]
