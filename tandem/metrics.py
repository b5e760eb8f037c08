"""The catalogue of figures: every metric that a record, a report, a dashboard or an alarm may name.

Invariant: standard library only, since all others import it; a name means one thing everywhere, and
its unit is its last word (`_ms`, `_per_s`) or a count. What is not here is not a metric of Tandem.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

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


@dataclass(frozen=True)
class MetricPublisher:
    """Who sends metrics to CloudWatch.

    Args:
        name: as widgets, alarms, the cost and the recording of what it really sent
            (tests/monitoring/samples) name it.
        description: the program, in a sentence.
        namespace: of its metrics; `{environment}` and `{cluster}` stand for the names.
        dimensions: names of the dimensions that it sets, one tuple for each set it sends.
        source: where the recording, or the reason that there is none, is from, with its date.
    """

    name: str
    description: str
    namespace: str
    dimensions: tuple[tuple[str, ...], ...]
    source: str


@dataclass(frozen=True)
class CloudWatchMetric:
    """A metric that CloudWatch holds and somebody else than the bench sends.

    Args:
        sentence: what it counts, what its graph shows, and what it does not.
        title: of its graph, without the unit; empty for what is not drawn by itself.
        drawn_unit: where an expression makes another unit of it; None: its own.
        name: as CloudWatch has it.
        unit: as of Metric, or percent, bytes, bytes/s, nodes, pods, restarts, drafts.
        publisher: name of the MetricPublisher.
        statistic: what is drawn of it.
    """

    sentence: str
    title: str = ""
    drawn_unit: str | None = None
    name: str = ""
    unit: str = ""
    publisher: str = ""
    statistic: str = ""


BENCH = "bench"
CONTAINER_INSIGHTS = "container-insights"
VLLM_SCRAPE = "vllm-scrape"
LOG_FILTER = "log-filter"
GUARD = "guard"
LAMBDA = "lambda"
SQS = "sqs"
BENCH_DIMENSIONS = ("Experiment", "Variant", "PromptClass", "Concurrency")
ALL_VALUES = "all"  # the class or the concurrency of what pools them all
# what is published of all classes at all loads together, for alarms; the last of them is published
# of nothing else
ALL_LOADS = ("requests", "failed_requests", "acceptance_length", "unpublished_rounds")


_RECORDED = "awsdocs/amazon-cloudwatch-user-guide"
_DOCUMENTED = "documented, not recorded: {} developer guide, read 2026-11-21"
_NODE_DIMENSIONS = ("NodeName", "InstanceId", "ClusterName")
_POD_DIMENSIONS = (("PodName", "Namespace", "ClusterName"), ("Service", "Namespace", "ClusterName"))
_CLUSTER_DIMENSIONS = (("Namespace", "ClusterName"), ("ClusterName",))
_PUBLISHERS = (
    MetricPublisher(
        BENCH,
        "the bench, after each round and by `tandem bench publish`: one value a request, a gap, a"
        " turn or a round",
        "Tandem/{environment}",
        (BENCH_DIMENSIONS,),
        "what this program sends; the test of the sample makes it again",
    ),
    MetricPublisher(
        CONTAINER_INSIGHTS,
        "the CloudWatch agent of the add-on amazon-cloudwatch-observability, once a minute:"
        " Container Insights without enhanced observability, a container of it on every node and"
        " one of them for the whole cluster",
        "ContainerInsights",
        (_NODE_DIMENSIONS, *_POD_DIMENSIONS, *_CLUSTER_DIMENSIONS),
        f"events in {_RECORDED}@20a560c1, recorded 2019-08, which the agent of 2026-08 still"
        " declares (aws/amazon-cloudwatch-agent@ab55b8da). Enhanced observability has no published"
        " recording, so it is off",
    ),
    MetricPublisher(
        VLLM_SCRAPE,
        "a CloudWatch agent of its own that reads each server's /metrics once a minute; of counters"
        " it sends how much they grew since, and histograms it cannot send",
        "ContainerInsights/Prometheus",
        (("ClusterName", "Namespace", "Service"),),
        "pages of a vLLM 0.32.0 recorded here on 2026-11-21 (tests/bench/streams), and an event of"
        f" the agent's form in {_RECORDED}@06faa207. Unproven: that the agent passes on names with"
        " a colon; that vLLM 0.9.1's page has these names (read in its source). Its"
        " gpu_cache_usage_perc has no recording",
    ),
    MetricPublisher(
        LOG_FILTER,
        "a metric filter of CloudWatch Logs on Container Insights' performance log: 1 for each"
        " event of an accelerator node, which its agent writes once a minute; 0 in a minute"
        " without any",
        "Tandem/{environment}",
        ((),),
        "the event of container-insights.json; that CloudWatch Logs makes a value of it is"
        " documented (AmazonCloudWatchLogs API Reference, MetricTransformation),"
        " not recorded, 2026-11-21",
    ),
    MetricPublisher(
        GUARD,
        "each pass of the reaper, every 5 minutes, and each stop; without what a pass could"
        " not see",
        "Tandem/Guard/{environment}",
        ((),),
        "what tandem.guard.apply sends, 2026-11-21; the test of the sample makes it again",
    ),
    MetricPublisher(
        LAMBDA,
        "Lambda itself, once a minute in which a function is called",
        "AWS/Lambda",
        (("FunctionName",),),
        _DOCUMENTED.format('"Viewing metrics for Lambda functions", AWS Lambda'),
    ),
    MetricPublisher(
        SQS,
        "SQS itself, once a minute while a queue is in use; a queue that nobody touched for hours"
        " is silent",
        "AWS/SQS",
        (("QueueName",),),
        _DOCUMENTED.format('"Available CloudWatch metrics for Amazon SQS", Amazon SQS'),
    ),
)
PUBLISHERS = {publisher.name: publisher for publisher in _PUBLISHERS}
"""By name; a widget or an alarm names one of these."""

_WATCHED: dict[str, dict[tuple[str, str, str], CloudWatchMetric]] = {
    CONTAINER_INSIGHTS: {
        ("node_cpu_utilization", "percent", "Average"): CloudWatchMetric(
            "Share of a node's processors in use, of all nodes of the cluster. High on an"
            " accelerator node in a run: the host slows both arms. Says nothing of NeuronCores.",
            "CPU of each node",
        ),
        ("node_memory_utilization", "percent", "Maximum"): CloudWatchMetric(
            "Working set, of a node's memory. Loading weights raises it for a while. The"
            " accelerators' own memory is not in it.",
            "Memory of each node",
        ),
        ("node_filesystem_utilization", "percent", "Maximum"): CloudWatchMetric(
            "Fullest filesystem of a node; its local disks are one. A compile fails when it is"
            " full. Local disks are empty again on a new node.",
            "Disk of each node",
        ),
        ("node_network_total_bytes", "bytes/s", "Average"): CloudWatchMetric(
            "Bytes per second in and out. High in a run: a load of weights or an upload beside the"
            " measurement. EFA is not in it.",
            "Network of each node",
        ),
        ("cluster_node_count", "nodes", "Maximum"): CloudWatchMetric(
            "Nodes that Kubernetes knows, system nodes included; a dead one stays known for"
            " minutes. What costs money is on the dashboard of money.",
            "Nodes known",
        ),
        ("cluster_failed_node_count", "nodes", "Maximum"): CloudWatchMetric(
            "Nodes short of memory, disk or processes, or without network. A node that is merely"
            " not Ready is not counted.",
            "Nodes under pressure",
        ),
        ("service_number_of_running_pods", "pods", "Minimum"): CloudWatchMetric(
            "Ready pods behind the arm's Service, least of 5 minutes; nothing sent counts as 0, so"
            " the newest point may read 0 until it is in. Ready is not fast: see the other rows.",
            "Ready servers",
        ),
        ("namespace_number_of_running_pods", "pods", "Minimum"): CloudWatchMetric(
            "Pods of the experiment's namespace in phase Running, ready or not; nothing sent counts"
            " as 0. More than are ready: a server loads, or waits for its artifact.",
            "Pods running",
        ),
        ("pod_number_of_container_restarts", "restarts", "Sum"): CloudWatchMetric(
            "Restarts of a server's containers in 5 minutes; a new pod in the place of one that is"
            " gone counts as none. Any in a run: its rounds around it are suspect.",
            "Restarts",
        ),
    },
    VLLM_SCRAPE: {
        ("vllm:num_requests_running", "requests", "Maximum"): CloudWatchMetric(
            "Requests in the batch, most of 5 readings a minute apart: shorter bursts fall between."
            " In a run it is the concurrency, or max_num_seqs where that is less.",
            "Requests running",
        ),
        ("vllm:num_requests_waiting", "requests", "Maximum"): CloudWatchMetric(
            "Requests not yet scheduled, most of 5 readings. Above 0 while running is flat: more"
            " streams than the batch holds, and TTFT is queue.",
            "Requests waiting",
        ),
        ("vllm:kv_cache_usage_perc", "1", "Maximum"): CloudWatchMetric(
            "Share of the KV cache in use, most of 5 readings; 1 is all of it. What weights and"
            " graphs take is not in it. vLLM's V0 engine has another name, of which there is no"
            " recording.",
            "KV cache used",
        ),
        ("vllm:generation_tokens_total", "tokens", "Sum"): CloudWatchMetric(
            "Counted by the server, mean of 5 minutes, pauses between turns included: lower than"
            " the bench's throughput. On nxdi-v0 a speculating server counts 1 a step, which is too"
            " low.",
            "Generated tokens",
            "tokens/s",
        ),
        ("vllm:request_success_total", "requests", "Sum"): CloudWatchMetric(
            "Requests that the server ended by itself in 5 minutes, whatever the reason; those that"
            " a client cut are not in it. More than the bench asked: somebody else asks too.",
            "Requests ended",
        ),
        ("vllm:num_preemptions_total", "requests", "Sum"): CloudWatchMetric(
            "Requests put back because the KV cache was full, in 5 minutes. Any is a run whose"
            " latency compares nothing.",
            "Requests preempted",
        ),
        ("vllm:spec_decode_num_drafts_total", "drafts", "Sum"): CloudWatchMetric(
            "1 + accepted / drafts, of all that the server answered in 5 minutes, whoever asked;"
            " only where the runtime counts (native). The bench's own length is on the experiment's"
            " dashboard.",
            "Acceptance length by the server",
            "tokens",
        ),
        ("vllm:spec_decode_num_accepted_tokens_total", "tokens", "Sum"): CloudWatchMetric(
            "Drafted tokens accepted since the reading before;"
            " only where the runtime counts (native)."
        ),
    },
    LOG_FILTER: {
        ("accelerator_nodes", "nodes", "Sum"): CloudWatchMetric(
            "Nodes whose agent wrote its event, mean of 5 minutes: 0.8 is one node that missed a"
            " minute. A node whose agent is dead costs money and is not seen: EC2's console is the"
            " last word.",
            "Accelerator nodes alive",
        )
    },
    GUARD: {
        ("instances_alive", "instances", "Maximum"): CloudWatchMetric(
            "Not terminated, by EC2's own word: also nodes that never joined the cluster. Counted"
            " by the reaper every 5 minutes; a gap is a reaper that did not run or could not see.",
            "Instances that EC2 lists",
        ),
        ("oldest_instance_hours", "hours", "Maximum"): CloudWatchMetric(
            "Since its launch. At the line the reaper stops the fleet.",
            "Age of the oldest instance",
        ),
        ("idle_block_minutes", "minutes", "Maximum"): CloudWatchMetric(
            "A Capacity Block was paid for, and nothing ran under a lease. Adds up from the left"
            " edge.",
            "Idle hours of the block since the range began",
            "hours",
        ),
        ("stop_failures", "failures", "Maximum"): CloudWatchMetric(
            "1 for a pass or a stop in which something that was due could not be done or seen,"
            " else 0."
        ),
        ("fleet_usd", "USD", "Maximum"): CloudWatchMetric(
            "Instances of each pass, 5 minutes at {price} USD an hour. Adds up from the left edge;"
            " no bill.",
            "Cost of what EC2 listed since the range began",
        ),
        ("excess_nodes", "nodes", "Maximum"): CloudWatchMetric(
            "Nodes above the number that the lease is for; 0 without a lease, which stops the fleet"
            " by itself."
        ),
    },
    LAMBDA: {
        ("Errors", "calls", "Maximum"): CloudWatchMetric(
            "Calls of a function that ended with an error of its own, its time limit included; not"
            " throttled ones."
        ),
        ("Throttles", "calls", "Maximum"): CloudWatchMetric(
            "Calls of a function that Lambda refused because too many ran at once."
        ),
    },
    SQS: {
        ("ApproximateNumberOfMessagesVisible", "messages", "Maximum"): CloudWatchMetric(
            "Messages that can be read from a queue."
        )
    },
}

CLOUDWATCH_METRICS = {
    (publisher, name): replace(
        metric, name=name, unit=unit, publisher=publisher, statistic=statistic
    )
    for publisher, metrics in _WATCHED.items()
    for (name, unit, statistic), metric in metrics.items()
}
"""What others send, by publisher and name."""

_CLOUDWATCH_UNITS = {"ms": "Milliseconds", "s": "Seconds", "percent": "Percent", "bytes": "Bytes"}
_CLOUDWATCH_UNITS |= {
    "tokens/s": "Count/Second",
    "requests/s": "Count/Second",
    "bytes/s": "Bytes/Second",
}
_CLOUDWATCH_UNITS |= dict.fromkeys(("1", "hours", "minutes", "USD"), "None")


def list_published_metrics() -> tuple[Metric, ...]:
    """Return what the bench sends to CloudWatch, in the order of the dashboard's rows."""
    return tuple(metric for metric in CATALOGUE.values() if metric.title)


def format_namespace(publisher: str, environment_name: str, cluster_name: str) -> str:
    """Return the CloudWatch namespace of a publisher's metrics.

    Raises:
        KeyError: no such publisher.
    """
    return PUBLISHERS[publisher].namespace.format(
        environment=environment_name, cluster=cluster_name
    )


SIMULATED_NAMESPACE = "Tandem/Simulated/{environment}"
"""CloudWatch namespace of what the bench measured of simulated servers, in place of its own."""


def cloudwatch_unit(metric: Metric | CloudWatchMetric) -> str:
    """Return the unit in CloudWatch's own words (StandardUnit of its API), else Count."""
    return _CLOUDWATCH_UNITS.get(metric.unit, "Count")


MINUTE_S = 60
"""What is published lies in calendar minutes."""


class SeriesMinute(NamedTuple):
    """One minute of one series; sorts as batches are filled.

    Args:
        dimensions: name and value of each.
        metric: its name in the catalogue.
        at_s: when the minute began, in seconds of Unix time.
    """

    dimensions: tuple[tuple[str, str], ...]
    metric: str
    at_s: int

    @property
    def prompt_class(self) -> str:
        """The class whose batch it lies in."""
        return dict(self.dimensions)[BENCH_DIMENSIONS[2]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFigures:
    """What is published of a round; `unpublished_rounds` is known only to the publisher.

    Args:
        number: from 0.
        is_complete: whether nothing of it is missing: every planned request has a record that no
            interrupt cut. Where the manifest does not say how many were planned (llmperf): whether
            a later round was begun, or the run has reached its end. Only then its figures are sent.
        values: arrays of float64, in the metric's unit; a control round has none, because it holds
            the baseline against itself alone.
        ranges: bytes of its records in the file: each from the first to the one behind the last.
    """

    number: int
    is_complete: bool
    values: Mapping[SeriesMinute, Any]
    ranges: tuple[tuple[int, int], ...]
