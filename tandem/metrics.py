"""The catalogue of figures: every metric that a record, a report, a dashboard or an alarm may name.

Invariant: standard library only, because a Lambda packs this file; a name means one thing everywhere, and its unit
is its last word (`_ms`, `_per_s`) or a count. What is not here is not a metric of Tandem.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

BetterDirection = Literal["lower", "higher", "neither"]
SpreadUnit = Literal["request", "gap", "turn", "round"]


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
        goes_to_cloudwatch: whether it goes to CloudWatch; what is drawn is published, and the reverse.
    """

    name: str
    unit: str
    definition: str
    source: str
    better: BetterDirection
    spread: SpreadUnit = "request"
    goes_to_cloudwatch: bool = False


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
        goes_to_cloudwatch=True,
    ),
    Metric(
        "tpot_ms",
        "ms",
        "(E2E - TTFT) / (completion_tokens - 1), one value a request, absent below 2 tokens; biased low when the first "
        "chunk holds b > 1 tokens, by the factor (completion_tokens - b) / (completion_tokens - 1): see tpot_exact_ms",
        f"{_CHUNKS}; {_USAGE}",
        "lower",
        goes_to_cloudwatch=True,
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
        goes_to_cloudwatch=True,
    ),
    Metric(
        "e2e_ms",
        "ms",
        "from the start of the request to its last chunk with a choice; the usage chunk and [DONE] do not count",
        _CHUNKS,
        "lower",
        goes_to_cloudwatch=True,
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
        goes_to_cloudwatch=True,
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
        goes_to_cloudwatch=True,
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
        goes_to_cloudwatch=True,
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
        goes_to_cloudwatch=True,
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
        goes_to_cloudwatch=True,
    ),
    Metric(
        "completion_tokens",
        "tokens",
        "tokens of the answer, reasoning and the stop token included, as the server counts",
        _USAGE,
        "neither",
        goes_to_cloudwatch=True,
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
        goes_to_cloudwatch=True,
    ),
    Metric(
        "requests",
        "requests",
        "requests of one round in the cell that have a record, failed ones included; one that an interrupt cut and "
        "that was asked again counts both times; the sum over rounds is the count in summary.json",
        "records of the round",
        "neither",
        spread="round",
        goes_to_cloudwatch=True,
    ),
    Metric(
        "failed_requests",
        "requests",
        "of `requests`, those whose record has an error; 0 is sent where none failed, so that a share can be computed; "
        "the sum over rounds is the count in summary.json",
        "error of the records of the round",
        "lower",
        spread="round",
        goes_to_cloudwatch=True,
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
        goes_to_cloudwatch=True,
    ),
)

CATALOGUE: dict[str, Metric] = {metric.name: metric for metric in _METRICS}

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
        name,
        "1",
        f"drafts whose token {match[1]} was accepted / drafts: not conditional on the tokens before it; quantiles and "
        "mean as of acceptance_length",
        "spec_decode_num_accepted_tokens_per_pos of the server's /metrics, where it counts",
        "higher",
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
        publisher: name of the Publisher.
    """

    name: str
    unit: str
    definition: str
    publisher: str


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


PUBLISHERS: dict[str, MetricPublisher] = {
    publisher.name: publisher
    for publisher in (
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
            (
                ("NodeName", "InstanceId", "ClusterName"),
                ("PodName", "Namespace", "ClusterName"),
                ("Service", "Namespace", "ClusterName"),
                ("Namespace", "ClusterName"),
                ("ClusterName",),
            ),
            "container-insights.json",
            "performance log events in awsdocs/amazon-cloudwatch-user-guide@20a560c1, recorded 2019-08; the agent of "
            "2026-08 still declares the same metrics and dimensions (aws/amazon-cloudwatch-agent@ab55b8da). The "
            "metrics of enhanced observability (replicas_ready, pod_status_*, waiting reasons) have no published "
            "recording, so it is off and nothing of them is drawn",
        ),
        MetricPublisher(
            VLLM_SCRAPE,
            "a CloudWatch agent of its own that reads each server's /metrics once a minute; of counters it sends how "
            "much they grew since, and histograms it cannot send",
            "ContainerInsights/Prometheus",
            (("ClusterName", "Namespace", "Service"),),
            "vllm-scrape.json",
            "pages of a vLLM 0.32.0 recorded here on 2026-11-21 (tests/bench/streams), and an event of the agent's "
            "form in awsdocs/amazon-cloudwatch-user-guide@06faa207. Unproven: that the agent passes on names with a "
            "colon; that vLLM 0.9.1's page has these names (read in its source). Its gpu_cache_usage_perc has no "
            "recording",
        ),
        MetricPublisher(
            NEURON,
            "neuron-monitor, read by the CloudWatch agent: use of NeuronCores and their memory, by device",
            "ContainerInsights",
            (("ClusterName", "InstanceId", "NodeName"), ("ClusterName", "InstanceType", "NeuronDevice", "NeuronCore")),
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
            "each pass of the reaper, every 5 minutes, and each stop; what could not be seen in a pass is left out of "
            "it",
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
            'documented, not recorded: AWS Lambda developer guide, "Viewing metrics for Lambda functions", read '
            "2026-11-21",
        ),
        MetricPublisher(
            SQS,
            "SQS itself, once a minute while a queue is in use; a queue that nobody touched for hours is silent",
            "AWS/SQS",
            (("QueueName",),),
            "sqs.json",
            'documented, not recorded: Amazon SQS developer guide, "Available CloudWatch metrics for Amazon SQS", '
            "read 2026-11-21",
        ),
    )
}
"""By name; a widget or an alarm names one of these."""

CLOUDWATCH_METRICS: dict[tuple[str, str], CloudWatchMetric] = {
    (watched.publisher, watched.name): watched
    for watched in (
        CloudWatchMetric(
            "node_cpu_utilization",
            "percent",
            "processors of a node in use, of all it has; by node, or over all nodes of the cluster, system nodes "
            "included",
            CONTAINER_INSIGHTS,
        ),
        CloudWatchMetric(
            "node_memory_utilization",
            "percent",
            "working set of a node, of its memory; memory of the accelerators is not in it",
            CONTAINER_INSIGHTS,
        ),
        CloudWatchMetric(
            "node_filesystem_utilization",
            "percent",
            "used space of a node's filesystems, one value a device: take the maximum; the array of local disks is one",
            CONTAINER_INSIGHTS,
        ),
        CloudWatchMetric(
            "node_network_total_bytes",
            "bytes/s",
            "received and sent by a node's interfaces; EFA traffic is not in it",
            CONTAINER_INSIGHTS,
        ),
        CloudWatchMetric(
            "cluster_node_count",
            "nodes",
            "nodes that Kubernetes knows, system nodes included; a node stays known for minutes after it died",
            CONTAINER_INSIGHTS,
        ),
        CloudWatchMetric(
            "cluster_failed_node_count",
            "nodes",
            "nodes under pressure of memory, disk or processes, or without network; a node that is merely not Ready "
            "is not counted",
            CONTAINER_INSIGHTS,
        ),
        CloudWatchMetric(
            "service_number_of_running_pods",
            "pods",
            "ready pods behind a Service; a Service without any is not sent at all, so its absence means none",
            CONTAINER_INSIGHTS,
        ),
        CloudWatchMetric(
            "namespace_number_of_running_pods",
            "pods",
            "pods of a namespace in phase Running, ready or not, of every kind; a namespace without any is not sent at "
            "all, so its absence means none",
            CONTAINER_INSIGHTS,
        ),
        CloudWatchMetric(
            "pod_number_of_container_restarts",
            "restarts",
            "restarts of a pod's main containers since the reading before, by the name of its Deployment; sent from "
            "the second reading on for each pod that has a container on a node, so its absence means that none runs",
            CONTAINER_INSIGHTS,
        ),
        CloudWatchMetric(
            "vllm:num_requests_running",
            "requests",
            "requests in the batch at the moment of the reading, once a minute: shorter bursts fall between",
            VLLM_SCRAPE,
        ),
        CloudWatchMetric(
            "vllm:num_requests_waiting",
            "requests",
            "requests that wait to be scheduled at the moment of the reading, once a minute",
            VLLM_SCRAPE,
        ),
        CloudWatchMetric(
            "vllm:kv_cache_usage_perc",
            "1",
            "used share of the KV cache, 1 is all; not sent by vLLM's V0 engine, whose name for it has no recording",
            VLLM_SCRAPE,
        ),
        CloudWatchMetric(
            "vllm:generation_tokens_total",
            "tokens",
            "tokens generated since the reading before; V0 with a draft inside the compiled graph counts 1 a step",
            VLLM_SCRAPE,
        ),
        CloudWatchMetric(
            "vllm:request_success_total",
            "requests",
            "requests that ended since the reading before, one value a reason of the end: take the sum",
            VLLM_SCRAPE,
        ),
        CloudWatchMetric(
            "vllm:num_preemptions_total",
            "requests",
            "requests put back since the reading before, because the KV cache was full",
            VLLM_SCRAPE,
        ),
        CloudWatchMetric(
            "vllm:spec_decode_num_drafts_total",
            "drafts",
            "speculative steps since the reading before; only sent where the runtime counts them (native)",
            VLLM_SCRAPE,
        ),
        CloudWatchMetric(
            "vllm:spec_decode_num_accepted_tokens_total",
            "tokens",
            "drafted tokens accepted since the reading before; 1 + this / drafts is the acceptance length; only sent "
            "where the runtime counts them (native)",
            VLLM_SCRAPE,
        ),
        CloudWatchMetric(
            "accelerator_nodes",
            "nodes",
            "events of accelerator nodes in a minute: take the sum of 60 s. A node whose agent is dead is not seen; "
            "two events of one node may fall into one minute and none into the next",
            LOG_FILTER,
        ),
        CloudWatchMetric(
            "instances_alive",
            "instances",
            "instances of the accelerator node group that EC2 lists and that are not terminated; EC2's own word, so a "
            "node that never joined the cluster counts too",
            GUARD,
        ),
        CloudWatchMetric(
            "oldest_instance_hours",
            "hours",
            "since the launch of the oldest of them; 0 where there is none",
            GUARD,
        ),
        CloudWatchMetric(
            "idle_block_minutes",
            "minutes",
            "5 for each pass in which a Capacity Block was paid for and nothing ran under a live lease, else 0: take "
            "the sum",
            GUARD,
        ),
        CloudWatchMetric(
            "stop_failures",
            "failures",
            "1 for a pass or a stop in which something that was due could not be done or seen, else 0",
            GUARD,
        ),
        CloudWatchMetric(
            "fleet_usd",
            "USD",
            "5 minutes of the instances that were pending or running, at the environment's stated price: take the sum "
            "of the passes; no bill",
            GUARD,
        ),
        CloudWatchMetric(
            "excess_nodes",
            "nodes",
            "nodes above the number that the lease is for, by the larger of the desired size and the instances that "
            "stay longer than a replacement takes; 0 without a lease, which stops the fleet by itself",
            GUARD,
        ),
        CloudWatchMetric(
            "Errors",
            "calls",
            "calls of a function that ended with an error of its own, its time limit included; throttled ones are not "
            "among them",
            LAMBDA,
        ),
        CloudWatchMetric(
            "Throttles",
            "calls",
            "calls of a function that Lambda refused because too many ran at once",
            LAMBDA,
        ),
        CloudWatchMetric(
            "ApproximateNumberOfMessagesVisible",
            "messages",
            "messages that can be read from a queue: take the maximum",
            SQS,
        ),
    )
}
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
    "bytes/s": "Bytes/Second",
    "pods": "Count",
    "restarts": "Count",
    "drafts": "Count",
    "instances": "Count",
    "hours": "None",
    "minutes": "None",
    "failures": "Count",
    "USD": "None",
    "calls": "Count",
    "messages": "Count",
}


def list_published_metrics() -> tuple[Metric, ...]:
    """Return what the bench sends to CloudWatch, in the catalogue's order."""
    return tuple(metric for metric in CATALOGUE.values() if metric.goes_to_cloudwatch)


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
