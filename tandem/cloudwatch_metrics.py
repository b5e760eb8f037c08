"""Metrics as CloudWatch holds them: who sends which, their names there, units and dimensions.

Invariant: standard library only, since the bench, publish and monitoring import it. A publisher
names a recorded sample of what it sends; without a sample nothing of it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tandem.metrics import Metric


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


@dataclass(frozen=True, kw_only=True)
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
