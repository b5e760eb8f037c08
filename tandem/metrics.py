"""The catalogue of figures: every metric that a record, a report, a dashboard or an alarm may name.

Invariant: standard library only, since all others import it; a name means one thing everywhere, and its unit
is its last word (`_ms`, `_per_s`) or a count. What is not here is not a metric of Tandem.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

BetterDirection = Literal["lower", "higher", "neither"]
SpreadUnit = Literal["request", "gap", "turn", "round"]


@dataclass(frozen=True)
class PostFigure:
    """A figure of the post that draws the metric: its place among them, its title, and what it says and does not."""

    place: int
    title: str
    sentence: str


@dataclass(frozen=True)
class MetricDisplay:
    """How people see a published metric.

    Args:
        row: its place on the dashboard of an experiment, from 1.
        title: of its graphs, without statistic and unit.
        sentence: what a graph of it shows and what it does not.
        has_speed_up: whether a speed-up of it means anything.
        needs_speculation: whether only arms that speculate have it.
        post_figure: the post's figure of it; None: the post draws none.
    """

    row: int
    title: str
    sentence: str
    has_speed_up: bool = True
    needs_speculation: bool = False
    post_figure: PostFigure | None = None


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
        display: how it is drawn; None: it is not published. What is drawn is published, and the reverse.
    """

    definition: str
    source: str
    display: MetricDisplay | None = None
    name: str = ""
    unit: str = ""
    better: BetterDirection = "neither"
    spread: SpreadUnit = "request"


_CHUNKS = "arrival times of the response's SSE chunks"
_USAGE = "the server's usage"

_METRICS: dict[tuple[str, str, BetterDirection, SpreadUnit], Metric] = {
    ("ttft_ms", "ms", "lower", "request"): Metric(
        "from the start of the request to its first token-bearing chunk: the role chunk, which carries no token, does "
        "not count; the time a late open-loop start was overdue is not in it (schedule_delay_ms)",
        _CHUNKS,
        MetricDisplay(
            4,
            "TTFT",
            "From sending a request to its first token: prefill and queue. Speculation is not to change it; the time "
            "that a late open-loop start was overdue is not in it.",
            post_figure=PostFigure(
                2,
                "Figure 5: TTFT",
                "The post: unchanged by speculation. A difference here comes from queue or prefill, not from accepted "
                "tokens.",
            ),
        ),
    ),
    ("tpot_ms", "ms", "lower", "request"): Metric(
        "(E2E - TTFT) / (completion_tokens - 1), one value a request, absent below 2 tokens; biased low when the first "
        "chunk holds b > 1 tokens, by the factor (completion_tokens - b) / (completion_tokens - 1): see tpot_exact_ms",
        f"{_CHUNKS}; {_USAGE}",
        MetricDisplay(
            2,
            "TPOT",
            "Time per output token after the first: what speculation is to lower. Not the time between chunks, and "
            "biased low where the first chunk holds several tokens.",
            post_figure=PostFigure(
                3,
                "Figure 4, as time per output token",
                "(E2E - TTFT) / (tokens - 1): each token counts, however many came in one chunk. The post prints no "
                "such figure.",
            ),
        ),
    ),
    ("tpot_exact_ms", "ms", "lower", "request"): Metric(
        "(last - first token-bearing chunk) / (tokens - tokens in the first), one value a request; absent where the "
        "server does not say how many tokens each chunk holds, or all came in one",
        f"{_CHUNKS}; running usage or token ids in each chunk",
    ),
    ("chunk_gap_ms", "ms", "lower", "gap"): Metric(
        "between one token-bearing chunk and the next, every gap of every request in one pool: a long answer weighs "
        "more; under speculation this is the time of an engine step, not of a token",
        _CHUNKS,
        MetricDisplay(
            9,
            "Chunk gap",
            "Time between streamed chunks. Under speculation that is an engine step, which holds several tokens: a "
            "larger gap is no slower arm, so no speed-up is drawn.",
            has_speed_up=False,
        ),
    ),
    ("e2e_ms", "ms", "lower", "request"): Metric(
        "from the start of the request to its last chunk with a choice; the usage chunk and [DONE] do not count",
        _CHUNKS,
        MetricDisplay(
            1,
            "E2E latency",
            "From sending a request to its last chunk. Grows with the answer's length: compare it only between arms "
            "whose answers are as long (completion tokens, below).",
            post_figure=PostFigure(
                1,
                "Figure 3: E2E latency",
                "The post: the structured prompt is faster with speculation all along, the open-ended one is not. E2E "
                "alone does not say which part of a request got faster.",
            ),
        ),
    ),
    ("tokens_per_chunk", "tokens", "neither", "request"): Metric(
        "completion_tokens / token-bearing chunks, one value a request; about 1 without speculation, a little above "
        "where the server counts a stop token that it does not send in a chunk of its own, or joins chunks",
        f"{_CHUNKS}; {_USAGE}",
    ),
    ("output_tokens_per_s", "tokens/s", "higher", "request"): Metric(
        "completion_tokens / E2E of one request (per stream): its wait for the first token is in it",
        f"{_CHUNKS}; {_USAGE}",
        MetricDisplay(
            5,
            "Output tokens per stream",
            "What one user sees: tokens of a request over its E2E, the wait for the first token included. Higher is "
            "better, so p90 is the fast end.",
        ),
    ),
    ("system_output_tokens_per_s", "tokens/s", "higher", "turn"): Metric(
        "completion tokens of the cell's requests that succeeded / the busy time of the arm, which for one turn is "
        "from its first start to its last end, failed requests included; quantiles are over turns (n counts turns), "
        "the mean is all tokens / the sum of all turns; short turns are biased low by their ends, where fewer run",
        f"start and end of every request; {_USAGE}",
        MetricDisplay(
            6,
            "Output tokens of the system",
            "What one arm puts out in a turn, all streams together; one value a turn, so few values. Short turns read "
            "low, since fewer streams run at their ends.",
        ),
    ),
    ("goodput_per_s", "requests/s", "higher", "turn"): Metric(
        "requests that succeeded within every stated limit / the busy time as of system_output_tokens_per_s; a limit "
        "on a figure that one token cannot have is met; absent without limits, or where a limit needs usage and there "
        "is none",
        f"the limits in manifest.json; {_CHUNKS}; {_USAGE}",
        MetricDisplay(
            7,
            "Goodput",
            "Requests per second that succeeded within every stated limit, one value a turn. Empty where the run was "
            "given no limits; how far beyond them the others were is not in it.",
        ),
    ),
    ("acceptance_length", "tokens", "higher", "turn"): Metric(
        "tokens committed by one speculative step, the target's own included. Live counters: 1 + accepted tokens / "
        "drafts. Flat counters: tokens after each answer's first / decode steps, lower by the cut at an answer's end. "
        "Quantiles are over turns, the mean is the ratio of the sums; absent for an arm that does not speculate",
        "differences of the server's /metrics before and after each turn",
        MetricDisplay(
            8,
            "Acceptance length",
            "Tokens that one speculative step commits, the target's own included; one value a turn, where the runtime "
            "counts it. A longer step is no faster one by itself: TPOT says whether it pays.",
            has_speed_up=False,
            needs_speculation=True,
        ),
    ),
    ("draft_acceptance_rate", "1", "higher", "turn"): Metric(
        "accepted tokens / drafted tokens; quantiles and mean as of acceptance_length; falls with the window by "
        "itself, so it compares no two windows",
        "spec_decode counters of the server's /metrics, where they count",
    ),
    ("target_steps_per_token", "1", "lower", "turn"): Metric(
        "steps in which the target ran for an answer, prefill's last one included / output tokens; 1 without "
        "speculation; quantiles and mean as of acceptance_length",
        "differences of the server's /metrics before and after each turn",
    ),
    ("prompt_tokens", "tokens", "neither", "request"): Metric(
        "tokens of the prompt, template included, as the server counts",
        _USAGE,
        MetricDisplay(
            10,
            "Prompt tokens",
            "As the server counts, template included. Both arms must lie on one line: they were asked the same. It "
            "says nothing of what a client sent beside the prompt.",
            has_speed_up=False,
        ),
    ),
    ("completion_tokens", "tokens", "neither", "request"): Metric(
        "tokens of the answer, reasoning and the stop token included, as the server counts",
        _USAGE,
        MetricDisplay(
            11,
            "Completion tokens",
            "As the server counts, stop token included. Greedy arms whose answers differ in length do not answer "
            "alike, and their E2E compares different work.",
            has_speed_up=False,
        ),
    ),
    ("schedule_delay_ms", "ms", "lower", "request"): Metric(
        "open loop only: how much later than planned a request was begun; beyond a few ms the load was not the one "
        "asked for",
        "due_s and start_s of the records",
    ),
    ("llmperf_inter_token_latency_ms", "ms", "lower", "request"): Metric(
        "arrival of the last chunk with text / number of chunks, the role chunk and the finish chunk counted: "
        "llmperf's sum of TTFT and gaps over its tokens_received. Under speculation it is near the time of a step, not "
        "of a token",
        f"{_CHUNKS}; llmperf f1d6bed, token_benchmark_ray.py and openai_chat_completions_client.py, by definition",
        MetricDisplay(
            3,
            "Inter-token latency by llmperf's definition",
            "Arrival of the last chunk / number of chunks: it counts chunks as tokens. Without speculation it is near "
            "TPOT; with it, near the time of a step, so it says no gain where TPOT, above, says one.",
            has_speed_up=False,
            post_figure=PostFigure(
                4,
                "Figure 4, as llmperf computes it",
                "Arrival of the last chunk / number of chunks: llmperf counts chunks as tokens. Under speculation a "
                "chunk holds several, so this stays near the time of a step and hides the gain.",
            ),
        ),
    ),
    ("requests", "requests", "neither", "round"): Metric(
        "requests of one round in the cell that have a record, failed ones included; one that an interrupt cut and "
        "that was asked again counts both times; the sum over rounds is the count in summary.json",
        "records of the round",
        MetricDisplay(
            12,
            "Requests",
            "Requests of the rounds of these minutes, failed ones included. A gap means that no round was published, "
            "not that nothing was asked.",
            has_speed_up=False,
        ),
    ),
    ("failed_requests", "requests", "lower", "round"): Metric(
        "of `requests`, those whose record has an error; 0 is sent where none failed, so that a share can be computed; "
        "the sum over rounds is the count in summary.json",
        "error of the records of the round",
        MetricDisplay(
            13,
            "Failed requests",
            "Requests whose record has an error: refused, timed out, cut, or not the protocol. What failed is in "
            "records.jsonl; it is in no latency above.",
            has_speed_up=False,
        ),
    ),
    ("unpublished_rounds", "rounds", "lower", "round"): Metric(
        "earlier rounds of the run that are recorded whole and that CloudWatch had not taken whole when this one was "
        "sent: 0 while publishing keeps up; all classes and loads together, the same for every arm; says nothing once "
        "nothing is sent at all",
        "the run's folder and its markers of what was published",
        MetricDisplay(
            14,
            "Rounds recorded, not yet published",
            "Earlier rounds of the run that CloudWatch had not taken when a round was sent; all classes and loads "
            "pooled. 0 is sound. It cannot rise once nothing at all is sent: then it ends.",
            has_speed_up=False,
        ),
    ),
}

CATALOGUE = {
    name: replace(metric, name=name, unit=unit, better=better, spread=spread)
    for (name, unit, better, spread), metric in _METRICS.items()
}

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
        f"drafts whose token {match[1]} was accepted / drafts: not conditional on the tokens before it; quantiles and "
        "mean as of acceptance_length",
        "spec_decode_num_accepted_tokens_per_pos of the server's /metrics, where it counts",
        name=name,
        unit="1",
        better="higher",
    )


@dataclass(frozen=True)
class MetricPublisher:
    """Who sends metrics to CloudWatch.

    Args:
        name: as widgets, alarms and the cost name it.
        description: the program, in a sentence.
        namespace: of its metrics; `{environment}` and `{cluster}` stand for the names.
        dimensions: names of the dimensions that it sets, one tuple for each set it sends.
        sample: file in tests/monitoring/samples that holds what it really sent; None: nothing of it may be drawn.
        source: where the sample, or the reason that there is none, is from, with its date.
    """

    name: str
    description: str
    namespace: str
    dimensions: tuple[tuple[str, ...], ...]
    sample: str | None
    source: str


@dataclass(frozen=True)
class CloudWatchMetric:
    """A metric that CloudWatch holds and somebody else than the bench sends.

    Args:
        name: as CloudWatch has it.
        unit: as of Metric, or percent, bytes, bytes/s, nodes, pods, restarts, drafts.
        definition: what it counts and what it does not.
        publisher: name of the MetricPublisher.
        title: of its graph, without the unit; empty for what is not drawn by itself.
        sentence: what the graph shows and what it does not.
        statistic: what is drawn of it.
        drawn_unit: where an expression makes another unit of it; None: its own.
    """

    definition: str
    title: str = ""
    sentence: str = ""
    drawn_unit: str | None = None
    name: str = ""
    unit: str = ""
    publisher: str = ""
    statistic: str = ""


BENCH = "bench"
CONTAINER_INSIGHTS = "container-insights"
VLLM_SCRAPE = "vllm-scrape"
NEURON = "neuron"
LOG_FILTER = "log-filter"
GUARD = "guard"
LAMBDA = "lambda"
SQS = "sqs"
BENCH_DIMENSIONS = ("Experiment", "Variant", "PromptClass", "Concurrency")
ALL_VALUES = "all"  # the class or the concurrency of what pools them all
# what is published of all classes at all loads together, for alarms; the last of them is published of nothing else
ALL_LOADS = ("requests", "failed_requests", "acceptance_length", "unpublished_rounds")


_RECORDED = "awsdocs/amazon-cloudwatch-user-guide"
_DOCUMENTED = "documented, not recorded: {} developer guide, read 2026-11-21"
_NODE_DIMENSIONS = ("NodeName", "InstanceId", "ClusterName")
_POD_DIMENSIONS = (("PodName", "Namespace", "ClusterName"), ("Service", "Namespace", "ClusterName"))
_CLUSTER_DIMENSIONS = (("Namespace", "ClusterName"), ("ClusterName",))
_NEURON_DIMENSIONS = (
    ("ClusterName", "InstanceId", "NodeName"),
    ("ClusterName", "InstanceType", "NeuronDevice", "NeuronCore"),
)
_PUBLISHERS = (
    MetricPublisher(
        BENCH,
        "the bench, after each round and by `tandem bench publish`: one value a request, a gap, a turn or a round",
        "Tandem/{environment}",
        (BENCH_DIMENSIONS,),
        "bench.json",
        "what this program sends; the test of the sample makes it again",
    ),
    MetricPublisher(
        CONTAINER_INSIGHTS,
        "the CloudWatch agent of the add-on amazon-cloudwatch-observability, once a minute: Container Insights "
        "without enhanced observability, a container of it on every node and one of them for the whole cluster",
        "ContainerInsights",
        (_NODE_DIMENSIONS, *_POD_DIMENSIONS, *_CLUSTER_DIMENSIONS),
        "container-insights.json",
        f"events in {_RECORDED}@20a560c1, recorded 2019-08, which the agent of 2026-08 still declares "
        "(aws/amazon-cloudwatch-agent@ab55b8da). Enhanced observability has no published recording, so it is off",
    ),
    MetricPublisher(
        VLLM_SCRAPE,
        "a CloudWatch agent of its own that reads each server's /metrics once a minute; of counters it sends how "
        "much they grew since, and histograms it cannot send",
        "ContainerInsights/Prometheus",
        (("ClusterName", "Namespace", "Service"),),
        "vllm-scrape.json",
        "pages of a vLLM 0.32.0 recorded here on 2026-11-21 (tests/bench/streams), and an event of the agent's "
        f"form in {_RECORDED}@06faa207. Unproven: that the agent passes on names with a colon; that vLLM 0.9.1's page "
        "has these names (read in its source). Its gpu_cache_usage_perc has no recording",
    ),
    MetricPublisher(
        NEURON,
        "neuron-monitor, read by the CloudWatch agent: use of NeuronCores and their memory, by device",
        "ContainerInsights",
        _NEURON_DIMENSIONS,
        None,
        "aws-neuron/aws-neuron-sdk deploy/infrastructure/monitoring.rst of 2026-08: Neuron Monitor is not "
        "supported where the Neuron DRA driver gives out the devices, so it is off",
    ),
    MetricPublisher(
        LOG_FILTER,
        "a metric filter of CloudWatch Logs on Container Insights' performance log: 1 for each event of an "
        "accelerator node, which its agent writes once a minute; 0 in a minute without any",
        "Tandem/{environment}",
        ((),),
        "log-filter.json",
        "the event of container-insights.json; that CloudWatch Logs makes a value of it is documented "
        "(AmazonCloudWatchLogs API Reference, MetricTransformation), not recorded, 2026-11-21",
    ),
    MetricPublisher(
        GUARD,
        "each pass of the reaper, every 5 minutes, and each stop; without what a pass could not see",
        "Tandem/Guard/{environment}",
        ((),),
        "guard.json",
        "what tandem.guard.apply sends, 2026-11-21; the test of the sample makes it again",
    ),
    MetricPublisher(
        LAMBDA,
        "Lambda itself, once a minute in which a function is called",
        "AWS/Lambda",
        (("FunctionName",),),
        "lambda.json",
        _DOCUMENTED.format('"Viewing metrics for Lambda functions", AWS Lambda'),
    ),
    MetricPublisher(
        SQS,
        "SQS itself, once a minute while a queue is in use; a queue that nobody touched for hours is silent",
        "AWS/SQS",
        (("QueueName",),),
        "sqs.json",
        _DOCUMENTED.format('"Available CloudWatch metrics for Amazon SQS", Amazon SQS'),
    ),
)
PUBLISHERS = {publisher.name: publisher for publisher in _PUBLISHERS}
"""By name; a widget or an alarm names one of these."""

_WATCHED: dict[str, dict[tuple[str, str, str], CloudWatchMetric]] = {
    CONTAINER_INSIGHTS: {
        ("node_cpu_utilization", "percent", "Average"): CloudWatchMetric(
            "processors in use of all that a node has, or all nodes of the cluster, system nodes included",
            "CPU of each node",
            "Share of a node's processors in use. High on an accelerator node in a run: the host slows both arms, and "
            "TPOT is not the chip's alone. Says nothing of NeuronCores.",
        ),
        ("node_memory_utilization", "percent", "Maximum"): CloudWatchMetric(
            "working set of a node, of its memory; memory of the accelerators is not in it",
            "Memory of each node",
            "Working set, of a node's memory. Loading weights raises it for a while. The accelerators' own memory is "
            "not in it.",
        ),
        ("node_filesystem_utilization", "percent", "Maximum"): CloudWatchMetric(
            "used space of a node's filesystems, one value a device: take the maximum",
            "Disk of each node",
            "Fullest filesystem of a node; its local disks are one. A compile fails when it is full. Local disks are "
            "empty again on a new node.",
        ),
        ("node_network_total_bytes", "bytes/s", "Average"): CloudWatchMetric(
            "received and sent by a node's interfaces; EFA traffic is not in it",
            "Network of each node",
            "Bytes per second in and out. High in a run: a load of weights or an upload beside the measurement. EFA is "
            "not in it.",
        ),
        ("cluster_node_count", "nodes", "Maximum"): CloudWatchMetric(
            "nodes that Kubernetes knows, system nodes included; a node stays known for minutes after it died",
            "Nodes known",
            "Nodes that Kubernetes knows, system nodes included; a dead one stays known for minutes. What costs money "
            "is on the dashboard of money.",
        ),
        ("cluster_failed_node_count", "nodes", "Maximum"): CloudWatchMetric(
            "nodes under pressure of memory, disk or processes, or without network; not those merely not Ready",
            "Nodes under pressure",
            "Nodes short of memory, disk or processes, or without network. A node that is merely not Ready is not "
            "counted.",
        ),
        ("service_number_of_running_pods", "pods", "Minimum"): CloudWatchMetric(
            "ready pods behind a Service; without any nothing is sent, so its absence means none",
            "Ready servers",
            "Ready pods behind the arm's Service, least of 5 minutes; nothing sent counts as 0, so the newest point "
            "may read 0 until it is in. Ready is not fast: see the other rows.",
        ),
        ("namespace_number_of_running_pods", "pods", "Minimum"): CloudWatchMetric(
            "pods of a namespace in phase Running, ready or not; without any nothing is sent: none",
            "Pods running",
            "Pods of the experiment's namespace in phase Running, ready or not, jobs and the bench included; nothing "
            "sent counts as 0. More than are ready: a server loads, or waits for its artifact.",
        ),
        ("pod_number_of_container_restarts", "restarts", "Sum"): CloudWatchMetric(
            "restarts of a pod's main containers since the reading before, by the name of its Deployment; sent from "
            "the second reading on, so its absence means that none runs",
            "Restarts",
            "Restarts of a server's containers in 5 minutes; a new pod in the place of one that is gone counts as "
            "none. Any in a run: its rounds around it are suspect.",
        ),
    },
    VLLM_SCRAPE: {
        ("vllm:num_requests_running", "requests", "Maximum"): CloudWatchMetric(
            "requests in the batch at the moment of the reading, once a minute: shorter bursts fall between",
            "Requests running",
            "Requests in the batch, most of 5 readings a minute apart: shorter bursts fall between. In a run it is the "
            "concurrency, or max_num_seqs where that is less.",
        ),
        ("vllm:num_requests_waiting", "requests", "Maximum"): CloudWatchMetric(
            "requests that wait to be scheduled at the moment of the reading, once a minute",
            "Requests waiting",
            "Requests not yet scheduled, most of 5 readings. Above 0 while running is flat: more streams than the "
            "batch holds, and TTFT is queue.",
        ),
        ("vllm:kv_cache_usage_perc", "1", "Maximum"): CloudWatchMetric(
            "used share of the KV cache, 1 is all; vLLM's V0 engine has another name, of which there is no recording",
            "KV cache used",
            "Share of the KV cache in use, most of 5 readings; 1 is all of it. It is no memory of the accelerator: "
            "what weights and graphs take is not in it.",
        ),
        ("vllm:generation_tokens_total", "tokens", "Sum"): CloudWatchMetric(
            "tokens generated since the reading before; V0 with a draft inside the compiled graph counts 1 a step",
            "Generated tokens",
            "Counted by the server, mean of 5 minutes, pauses between turns included: lower than the bench's "
            "throughput. On nxdi-v0 a speculating server counts 1 a step, which is too low.",
            "tokens/s",
        ),
        ("vllm:request_success_total", "requests", "Sum"): CloudWatchMetric(
            "requests that ended since the reading before, one value a reason of the end: take the sum",
            "Requests ended",
            "Requests that the server ended by itself in 5 minutes, whatever the reason; those that a client cut are "
            "not in it. More than the bench asked: somebody else asks too.",
        ),
        ("vllm:num_preemptions_total", "requests", "Sum"): CloudWatchMetric(
            "requests put back since the reading before, because the KV cache was full",
            "Requests preempted",
            "Requests put back because the KV cache was full, in 5 minutes. Any is a run whose latency compares "
            "nothing.",
        ),
        ("vllm:spec_decode_num_drafts_total", "drafts", "Sum"): CloudWatchMetric(
            "speculative steps since the reading before; only sent where the runtime counts them (native)",
            "Acceptance length by the server",
            "1 + accepted / drafts, of all that the server answered in 5 minutes, whoever asked: the bench's own "
            "length, by class, is on the experiment's dashboard.",
            "tokens",
        ),
        ("vllm:spec_decode_num_accepted_tokens_total", "tokens", "Sum"): CloudWatchMetric(
            "drafted tokens accepted since the reading before; where the runtime counts them (native)"
        ),
    },
    LOG_FILTER: {
        ("accelerator_nodes", "nodes", "Sum"): CloudWatchMetric(
            "events of accelerator nodes in a minute: take the sum of 60 s. A node whose agent is dead is not seen",
            "Accelerator nodes alive",
            "Nodes whose agent wrote its event, mean of 5 minutes: 0.8 is one node that missed a minute. A node whose "
            "agent is dead costs money and is not seen: EC2's console is the last word.",
        )
    },
    GUARD: {
        ("instances_alive", "instances", "Maximum"): CloudWatchMetric(
            "instances of the accelerator node group that are not terminated, by EC2's own word: joined or not",
            "Instances that EC2 lists",
            "What the reaper counted, every 5 minutes; also nodes that never joined the cluster. A gap is a reaper "
            "that did not run or could not see.",
        ),
        ("oldest_instance_hours", "hours", "Maximum"): CloudWatchMetric(
            "since the launch of the oldest of them; 0 where there is none",
            "Age of the oldest instance",
            "Since its launch. At the line the reaper stops the fleet.",
        ),
        ("idle_block_minutes", "minutes", "Maximum"): CloudWatchMetric(
            "5 for each pass in which a Capacity Block was paid for and no lease lived, else 0: take the sum",
            "Idle hours of the block since the range began",
            "Paid for, and nothing ran under a lease. Adds up from the left edge.",
            "hours",
        ),
        ("stop_failures", "failures", "Maximum"): CloudWatchMetric(
            "1 for a pass or a stop in which something that was due could not be done or seen, else 0"
        ),
        ("fleet_usd", "USD", "Maximum"): CloudWatchMetric(
            "5 minutes of the instances pending or running, at the stated price: take the sum of the passes; no bill",
            "Cost of what EC2 listed since the range began",
            "Instances of each pass, 5 minutes at {price} USD an hour. Adds up from the left edge; no bill.",
        ),
        ("excess_nodes", "nodes", "Maximum"): CloudWatchMetric(
            "nodes above the number that the lease is for, by the larger of the desired size and the instances that "
            "stay longer than a replacement takes; 0 without a lease, which stops the fleet by itself"
        ),
    },
    LAMBDA: {
        ("Errors", "calls", "Maximum"): CloudWatchMetric(
            "calls of a function that ended with an error of its own, its time limit included; not throttled ones"
        ),
        ("Throttles", "calls", "Maximum"): CloudWatchMetric(
            "calls of a function that Lambda refused because too many ran at once"
        ),
    },
    SQS: {
        ("ApproximateNumberOfMessagesVisible", "messages", "Maximum"): CloudWatchMetric(
            "messages that can be read from a queue: take the maximum"
        )
    },
}

CLOUDWATCH_METRICS = {
    (publisher, name): replace(metric, name=name, unit=unit, publisher=publisher, statistic=statistic)
    for publisher, metrics in _WATCHED.items()
    for (name, unit, statistic), metric in metrics.items()
}
"""What others send, by publisher and name."""

_CLOUDWATCH_UNITS = {"ms": "Milliseconds", "s": "Seconds", "percent": "Percent", "bytes": "Bytes"}
_CLOUDWATCH_UNITS |= {"tokens/s": "Count/Second", "requests/s": "Count/Second", "bytes/s": "Bytes/Second"}
_CLOUDWATCH_UNITS |= dict.fromkeys(("1", "hours", "minutes", "USD"), "None")
_COUNTED = ("tokens", "requests", "rounds", "nodes", "pods", "restarts", "drafts", "instances", "failures", "calls")
_CLOUDWATCH_UNITS |= dict.fromkeys((*_COUNTED, "messages"), "Count")


def list_published_metrics() -> tuple[Metric, ...]:
    """Return what the bench sends to CloudWatch, in the catalogue's order."""
    return tuple(metric for metric in CATALOGUE.values() if metric.display)


def list_dashboard_rows() -> list[tuple[Metric, MetricDisplay]]:
    """Return what the bench sends with how it is drawn, in the order of the dashboard's rows."""
    rows = [(metric, metric.display) for metric in CATALOGUE.values() if metric.display]
    return sorted(rows, key=lambda row: row[1].row)


def list_post_figures() -> list[tuple[Metric, PostFigure]]:
    """Return the post's figures with the metric that each draws, in their order."""
    figures = [
        (metric, metric.display.post_figure)
        for metric in CATALOGUE.values()
        if metric.display and metric.display.post_figure
    ]
    return sorted(figures, key=lambda figure: figure[1].place)


def format_namespace(publisher: str, environment_name: str, cluster_name: str) -> str:
    """Return the CloudWatch namespace of a publisher's metrics.

    Raises:
        KeyError: no such publisher.
    """
    return PUBLISHERS[publisher].namespace.format(environment=environment_name, cluster=cluster_name)


SIMULATED_NAMESPACE = "Tandem/Simulated/{environment}"
"""CloudWatch namespace of what the bench measured of simulated servers, in place of its own."""


def cloudwatch_unit(metric: Metric | CloudWatchMetric) -> str:
    """Return the unit in CloudWatch's own words (StandardUnit of its API).

    Raises:
        KeyError: a unit that CloudWatch has no word for.
    """
    return _CLOUDWATCH_UNITS[metric.unit]
