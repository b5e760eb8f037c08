"""Whether a variant's CPU, memory and weights fit its share of a node, and the other jobs the system nodes."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import EnvironmentContext, ExperimentContext, HostingContext
from tandem.rules.rule import RuleFinding, RuleList
from tandem.spec.model import ModelConfig
from tandem.spec.system_jobs import sum_job_requests

# what a node's DaemonSets need beside the servers: one job of 190 CPU leaves them 1.45 of a trn2.48xlarge's 191.45
DAEMONS_CPU_M = 1450
# the requests of the CloudWatch agent, Neuron monitor, DRA driver and VPC CNI are 128 MiB each, from their charts
DAEMONS_MEMORY_MIB = 1024
# What a system node's DaemonSets request (CNI 50m, kube-proxy 100m, S3 driver 10m and 40 MiB, CloudWatch agent 250m and
# 128 MiB, Fluent Bit 50m and 25 MiB), and beside them once: CoreDNS 2 x 100m and 70 MiB, the agent's operator 100m and
# 64 MiB, a GitOps tool 500m and 1 GiB; rounded up, since releases change them.
SYSTEM_NODE_CPU_M, SYSTEM_NODE_MEMORY_MIB = 500, 256
CONTROLLERS_CPU_M, CONTROLLERS_MEMORY_MIB = 1000, 1536
BYTES_PER_VALUE = 2  # bfloat16 and float16
GIB = 2**30

_INSTANCES = "karpenter-provider-aws website/content/en/docs/reference/instance-types.md"
RULES = RuleList()


@RULES.refuse("shm-in-memory", "kubernetes.io/docs/concepts/storage/volumes, emptyDir", "2026-11-21")
def _find_large_shm(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Shared memory is smaller than the server's memory, which it counts against."""
    serving = context.experiment.serving
    if serving.shm_gib >= serving.memory_gib:
        yield RuleFinding(
            path="serving.shm_gib", got=f"{serving.shm_gib} of memory_gib {serving.memory_gib}",
            allowed=f"less than {serving.memory_gib}: /dev/shm counts against the server's memory",
            change=f"write {max(1, serving.memory_gib // 4)}, or raise memory_gib",
        )  # fmt: skip


def _device_share(context: HostingContext, allocatable: int | None, daemon_request: int) -> int | None:
    """Return what one variant may request of a node: by its share of the devices, beside the DaemonSets.

    A count that no claim can have is refused by device-count; the share is then that of the count it proposes.
    """
    devices, total = context.bindable_devices(), context.instance.devices.value
    if allocatable is None or not total:
        return None
    return (allocatable - daemon_request) * devices // total


@RULES.refuse("cpu-fits", _INSTANCES, "2026-11-21")
def _find_large_cpu(context: HostingContext) -> Iterable[RuleFinding]:
    """A variant's CPUs are within its devices' share of the node, beside the DaemonSets."""
    figure, cpu = context.instance.allocatable_cpu_m, context.experiment_context.experiment.serving.cpu
    share = _device_share(context, figure.value, DAEMONS_CPU_M)
    if share is not None and cpu * 1000 > share:
        yield RuleFinding(
            path=context.path, got=context.format_value("serving.cpu", cpu),
            allowed=f"at most {share // 1000}, its devices' share of a {context.environment.capacity.instance_type}",
            change=f"write cpu: {share // 1000} in the experiment",
            source=context.catalogue.instances.sources[figure.source],
        )  # fmt: skip


@RULES.refuse("memory-fits", _INSTANCES, "2026-11-21")
def _find_large_memory(context: HostingContext) -> Iterable[RuleFinding]:
    """A variant's memory is within its devices' share of the node, beside the DaemonSets."""
    figure, memory = context.instance.allocatable_memory_mib, context.experiment_context.experiment.serving.memory_gib
    share = _device_share(context, figure.value, DAEMONS_MEMORY_MIB)
    if share is not None and memory * 1024 > share:
        yield RuleFinding(
            path=context.path, got=context.format_value("serving.memory_gib", memory),
            allowed=f"at most {share // 1024}, its devices' share of a {context.environment.capacity.instance_type}",
            change=f"write memory_gib: {share // 1024} in the experiment",
            source=context.catalogue.instances.sources[figure.source],
        )  # fmt: skip


def cache_bytes(model: ModelConfig, *, degree: int, tokens: int) -> int:
    """Return the KV cache of `tokens` tokens over all ranks; fewer KV heads than ranks are replicated.

    Source: neuronx-distributed-inference modules/attention/gqa.py, REPLICATE_TO_TP_DEGREE.
    """
    heads, dimension = model.kv_heads.value, model.head_dim.value
    if heads is None or dimension is None:
        return 0
    return 2 * model.layers.value * max(heads, degree) * dimension * BYTES_PER_VALUE * tokens


@RULES.refuse(
    "device-memory", "aws-neuron/aws-neuron-sdk about-neuron/arch/neuron-hardware/trn2-arch.rst", "2026-08-21"
)
def _find_device_memory_shortage(context: HostingContext) -> Iterable[RuleFinding]:
    """Weights and KV cache of target and largest draft fit the claimed devices' memory."""
    experiment_context, figure = context.experiment_context, context.instance.hbm_gib_per_device
    serving, target = experiment_context.experiment.serving, experiment_context.target
    if target is None or figure.value is None:
        return
    tokens = serving.max_num_seqs * serving.max_model_len
    model_bytes = [
        (model.bytes.value or 0) + cache_bytes(model, degree=serving.tensor_parallel_size, tokens=tokens)
        for model in (target, *{draft.id: draft for _, draft in experiment_context.draft_arms()}.values())
    ]
    needed_bytes, present_bytes = model_bytes[0] + max(model_bytes[1:], default=0), serving.devices * figure.value * GIB
    if needed_bytes > present_bytes:
        counts = context.instance.device_counts.value
        larger = min((count for count in counts if count * figure.value * GIB >= needed_bytes), default=None)
        claim = f"write devices: {larger} in the experiment, or " if larger else ""
        yield RuleFinding(
            path=context.path,
            got=f"{experiment_context.experiment.name!r}, whose weights and KV cache take {needed_bytes / GIB:.0f} GiB",
            allowed=f"at most {present_bytes // GIB} GiB: {serving.devices} devices of {figure.value} GiB",
            change=f"{claim}lower max_num_seqs or max_model_len",
            source=context.catalogue.instances.sources[figure.source],
        )  # fmt: skip


@RULES.warn("system-nodes-hold", _INSTANCES, "2026-11-21")
def _find_system_node_shortage(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The system nodes hold every staging job and llmperf at once, beside the add-ons."""
    nodes = context.environment.cluster.system_nodes
    instance = context.catalogue.instances.instances.get(nodes.instance_type)
    if instance is None or not instance.allocatable_cpu_m.value or not instance.allocatable_memory_mib.value:
        return
    jobs = [sum_job_requests(experiment) for experiment in context.experiments]
    for resource, unit, figure, node_reserve, cluster_reserve, job_total in (
        ("CPU", "m", instance.allocatable_cpu_m, SYSTEM_NODE_CPU_M, CONTROLLERS_CPU_M, sum(cpu for cpu, _ in jobs)),
        (
            "memory", " MiB", instance.allocatable_memory_mib, SYSTEM_NODE_MEMORY_MIB, CONTROLLERS_MEMORY_MIB,
            sum(memory for _, memory in jobs),
        ),
    ):  # fmt: skip
        available = nodes.count * ((figure.value or 0) - node_reserve) - cluster_reserve
        if job_total > available:
            yield RuleFinding(
                path="cluster.system_nodes",
                got=f"{nodes.count} x {nodes.instance_type} for {job_total}{unit} of {resource}",
                allowed=f"at most {max(available, 0)}{unit}: what is left of them beside the add-ons",
                change="raise count or take a larger type, or start staging and llmperf one experiment at a time",
                source=context.catalogue.instances.sources[figure.source],
            )
