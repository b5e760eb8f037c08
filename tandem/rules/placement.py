"""Rules on cores, devices and groups of a model and instance type, and a variant's node share."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tandem.declarations.disk import GIB
from tandem.declarations.figure import DataFigure
from tandem.declarations.platform import InstanceType
from tandem.declarations.system_jobs import RUNNER_CPU_M, RUNNER_MEMORY_MIB, sum_job_requests
from tandem.rules.contexts import EnvironmentContext, ExperimentContext, HostingContext
from tandem.rules.rule import NEURON_SDK, NXDI, RuleFinding, RuleList, join_values

# for a node's DaemonSets next to the servers: one job of 190 CPU leaves 1.45 of a trn2.48xlarge's
# 191.45
DAEMONS_CPU_M = 1450
# the requests of the CloudWatch agent, Neuron monitor, DRA driver and VPC CNI are 128 MiB each,
# from their charts
DAEMONS_MEMORY_MIB = 1024
# Requests of a system node's DaemonSets (CNI 50m, kube-proxy 100m, S3 driver 10m and 40 MiB,
# CloudWatch agent 250m and 128 MiB, Fluent Bit 50m and 25 MiB), and once per cluster: CoreDNS 2 x
# 100m and 70 MiB, the agent's operator 100m and 64 MiB, a GitOps tool 500m and 1 GiB; rounded up,
# since releases change them; and the runner.
SYSTEM_NODE_CPU_M = 500
SYSTEM_NODE_MEMORY_MIB = 256
CONTROLLERS_CPU_M = 1000 + RUNNER_CPU_M
CONTROLLERS_MEMORY_MIB = 1536 + RUNNER_MEMORY_MIB

_ARCH = f"{NEURON_SDK} about-neuron/arch/neuron-hardware/trn2-arch.rst"
_DRA = f"{NEURON_SDK} deploy/eks/dra.rst"
_LOOKUP = "aws-neuron/connected-device-maps-over-efa-for-neuron lookup/lookup.go"
_LLAMA = f"{NXDI} models/llama/modeling_llama.py"
_INSTANCES = "karpenter-provider-aws website/content/en/docs/reference/instance-types.md"
_DEGREE = "serving.tensor_parallel_size"
RULES = RuleList()


@RULES.refuse("cores-present", _ARCH, "2026-08-21")
def _find_missing_cores(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The TP degree is at most the claimed devices' logical cores at the LNC."""
    serving = context.experiment.serving
    cores = context.logical_cores()
    if serving.tensor_parallel_size > cores:
        of_device = f"{cores // serving.devices} logical cores at LNC {serving.logical_neuron_core}"
        legal = f"at most {cores}: {serving.devices} devices of {of_device}"
        yield RuleFinding(
            _DEGREE, str(serving.tensor_parallel_size), legal, f"write {cores}, or more devices"
        )


@RULES.warn("cores-idle", _ARCH, "2026-08-21")
def _find_idle_cores(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The TP degree uses every logical core it claims."""
    degree = context.experiment.serving.tensor_parallel_size
    cores = context.logical_cores()
    if degree < cores:
        got = (
            f"{degree}: {cores - degree} of {cores} logical"
            f" cores ({1 - degree / cores:.0%}) stay idle"
        )
        change = f"write {cores}, or claim fewer devices, if their cores are enough"
        yield RuleFinding(_DEGREE, got, f"{cores} uses all", change)


@RULES.refuse("degree-divides", f"{_LLAMA}: its MLP is not padded", "2026-07-28")
def _find_indivisible_degree(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The TP degree divides the MLP's width of target and draft."""
    degree = context.experiment.serving.tensor_parallel_size
    models = context.models().values()
    widths = [model.intermediate_size.value for model in models if model.intermediate_size.value]
    common = math.gcd(*widths)
    highest = min(degree, context.logical_cores())
    fits = [value for value in range(1, highest + 1) if common % value == 0]
    change = f"write {fits[-1]}"
    for model in models:
        width = model.intermediate_size
        if width.value is not None and width.value % degree:
            legal = f"a divisor of its MLP's width, {width.value}"
            yield RuleFinding(_DEGREE, f"{degree} with {model.id}", legal, change, width)


@RULES.warn("degree-pads", _LLAMA, "2026-07-28")
def _find_padding(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The TP degree divides the target's attention heads and vocabulary, else they are padded."""
    degree = context.experiment.serving.tensor_parallel_size
    target = context.target
    for figure, part in (
        (target.attention_heads, "attention heads"),
        (target.vocabulary, "rows of the vocabulary"),
    ):
        if figure.value is not None and figure.value % degree:
            padded_count = -(-figure.value // degree) * degree
            got = f"{degree} with {figure.value} {part}, padded to {padded_count}"
            change = "write a divisor, or accept the padded work"
            yield RuleFinding(_DEGREE, got, f"a divisor of {figure.value}", change, figure)


@RULES.refuse("group-holds", _DRA, "2026-08-21")
def _find_small_group(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The connected group holds all claimed devices."""
    group = context.experiment.serving.device_group
    devices = context.experiment.serving.devices
    if group is not None and devices > group:
        fitting = [size for size in (4, 8) if size >= devices]
        change = f"write {min(fitting, default=16)}"
        yield RuleFinding(
            "serving.device_group", f"{group} for {devices} devices", f"{devices} or more", change
        )


@RULES.refuse("device-count", _DRA, "2026-08-21")
def _find_unbindable_count(context: HostingContext) -> Iterable[RuleFinding]:
    """The instance type can bind a claim of so many devices."""
    devices = context.experiment.serving.devices
    counts = context.instance.device_counts
    if devices not in counts.value:
        legal = f"{join_values(counts.value)} on {context.instance_name}"
        change = (
            "host an experiment with devices:"
            f" {context.bindable_devices()}, or another instance type"
        )
        yield context.find("serving.devices", devices, legal, change, counts)


@RULES.refuse("cores-bound", _DRA, "2026-08-21")
def _find_unbindable_degree(context: HostingContext) -> Iterable[RuleFinding]:
    """The TP degree is at most the logical cores of the instance type's largest bindable claim."""
    serving = context.experiment.serving
    devices = context.bindable_devices()
    per_device = context.logical_cores() // serving.devices
    cores = devices * per_device
    degree = serving.tensor_parallel_size
    counts = context.instance.device_counts
    if devices < serving.devices and degree > cores:
        legal = (
            f"at most {cores}: a {context.instance_name} binds"
            f" {devices} devices of {per_device} logical cores"
        )
        change = f"host an experiment with tensor_parallel_size: {cores}, or another instance type"
        yield context.find(_DEGREE, degree, legal, change, counts)


@RULES.refuse("group-published", _LOOKUP, "2026-08-21")
def _find_unpublished_group(context: HostingContext) -> Iterable[RuleFinding]:
    """The instance type publishes groups of the size claimed."""
    group = context.experiment.serving.device_group
    groups = context.instance.device_groups
    if group is not None and group not in groups.value:
        legal = f"{join_values((*groups.value, 'null'))} on {context.instance_name}"
        change = (
            "host an experiment with one of these:"
            " a claim for this group would stay pending for ever"
        )
        yield context.find("serving.device_group", group, legal, change, groups)


@RULES.warn("group-named", _DRA, "2026-08-21")
def _find_missing_group(context: HostingContext) -> Iterable[RuleFinding]:
    """A claim of several devices names the smallest connected group that holds them."""
    devices = context.experiment.serving.devices
    group = context.experiment.serving.device_group
    groups = context.instance.device_groups
    fitting = min((size for size in groups.value if size >= devices), default=None)
    is_bindable = devices in context.instance.device_counts.value  # device-count refuses the rest
    if devices > 1 and is_bindable and fitting is not None and (group is None or group > fitting):
        got = f"{group or 'null'} for {devices} devices"
        legal = f"the smallest group that holds them: {fitting}"
        change = (
            f"write device_group: {fitting};"
            " without it they may not be neighbours, and may come from both halves"
        )
        yield context.find("serving.device_group", got, legal, change, groups)


@RULES.refuse(
    "shm-in-memory", "kubernetes.io/docs/concepts/storage/volumes, emptyDir", "2026-11-21"
)
def _find_large_shm(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Shared memory is smaller than the server's memory, which it counts against."""
    shm = context.experiment.serving.shm_gib
    memory = context.experiment.serving.memory_gib
    if shm >= memory:
        legal = f"less than {memory}: /dev/shm counts against the server's memory"
        change = f"write {max(1, memory // 4)}, or raise memory_gib"
        yield RuleFinding("serving.shm_gib", f"{shm} of memory_gib {memory}", legal, change)


def allocatable_limits(instance: InstanceType) -> dict[str, tuple[int, int]]:
    """Return setting -> (limit of all requests on a node next to the DaemonSets, unit size).

    In millicores and MiB; a setting is missing if the node's allocatable amount is unknown.
    """
    cpu = instance.allocatable_cpu_m.value
    memory = instance.allocatable_memory_mib.value
    limits = {}
    if cpu:
        limits["cpu"] = (cpu - DAEMONS_CPU_M, 1000)
    if memory:
        limits["memory_gib"] = (memory - DAEMONS_MEMORY_MIB, 1024)
    return limits


def _find_large_request(
    context: HostingContext, setting: str, figure: DataFigure[int | None]
) -> Iterable[RuleFinding]:
    """Compare a request with the devices' node share; device-count refuses a count no claim has."""
    limit = allocatable_limits(context.instance).get(setting)
    total = context.instance.devices.value
    value = getattr(context.experiment.serving, setting)
    if limit and total:
        share = limit[0] * context.bindable_devices() // total
        if value * limit[1] > share:
            legal = f"at most {share // limit[1]}, its devices' share of a {context.instance_name}"
            change = f"write {setting}: {share // limit[1]} in the experiment"
            yield context.find(f"serving.{setting}", value, legal, change, figure)


@RULES.refuse("cpu-fits", _INSTANCES, "2026-11-21")
def _find_large_cpu(context: HostingContext) -> Iterable[RuleFinding]:
    """A variant's CPUs fit its devices' share of what the DaemonSets leave of a node."""
    yield from _find_large_request(context, "cpu", context.instance.allocatable_cpu_m)


@RULES.refuse("memory-fits", _INSTANCES, "2026-11-21")
def _find_large_memory(context: HostingContext) -> Iterable[RuleFinding]:
    """A variant's memory fits its devices' share of what the DaemonSets leave of a node."""
    yield from _find_large_request(context, "memory_gib", context.instance.allocatable_memory_mib)


@RULES.refuse("device-memory", _ARCH, "2026-08-21")
def _find_device_memory_shortage(context: HostingContext) -> Iterable[RuleFinding]:
    """Weights and KV cache of target and largest draft fit the claimed devices' memory."""
    serving = context.experiment.serving
    figure = context.instance.hbm_gib_per_device
    tokens = serving.max_num_seqs * serving.max_model_len
    per_device = (figure.value or 0) * GIB
    target_bytes, *draft_bytes = (
        (model.bytes.value or 0)
        + (model.count_kv_bytes(serving.tensor_parallel_size) or 0) * tokens
        for model in context.list_pair()
    )
    needed_bytes = target_bytes + max(draft_bytes, default=0)
    present_bytes = serving.devices * per_device
    if figure.value is not None and needed_bytes > present_bytes:
        counts = context.instance.device_counts.value
        larger_counts = [count for count in counts if count * per_device >= needed_bytes]
        got = (
            f"{context.experiment.name!r}, whose weights and KV cache take"
            f" {needed_bytes / GIB:.0f} GiB"
        )
        legal = (
            f"at most {present_bytes // GIB} GiB: {serving.devices} devices of {figure.value} GiB"
        )
        change = "lower max_num_seqs or max_model_len"
        if larger_counts:
            change = f"write devices: {min(larger_counts)} in the experiment, or {change}"
        yield RuleFinding(context.path, got, legal, change, figure)


@RULES.warn("system-nodes-hold", _INSTANCES, "2026-11-21")
def _find_system_node_shortage(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The system nodes have room for runner, add-ons, staging jobs and what measures at once."""
    nodes = context.environment.cluster.system_nodes
    table = context.catalogue.instances
    instance = table.instances.get(nodes.instance_type)
    if instance is None:
        return
    requests = [sum_job_requests(experiment) for experiment in context.experiments]
    cpu_m = sum(cpu for cpu, _ in requests)
    memory_mib = sum(memory for _, memory in requests)
    for needs, figure, node_reserve, cluster_reserve, unit in (
        (cpu_m, instance.allocatable_cpu_m, SYSTEM_NODE_CPU_M, CONTROLLERS_CPU_M, "m of CPU"),
        (
            memory_mib,
            instance.allocatable_memory_mib,
            SYSTEM_NODE_MEMORY_MIB,
            CONTROLLERS_MEMORY_MIB,
            " MiB of memory",
        ),
    ):
        available = nodes.count * ((figure.value or 0) - node_reserve) - cluster_reserve
        if figure.value and needs > available:
            got = f"{nodes.count} x {nodes.instance_type} for {needs}{unit}"
            legal = f"at most {max(available, 0)}{unit}: what runner and add-ons leave of them"
            change = (
                "raise count or take a larger type, or stage and measure one experiment at a time"
            )
            yield RuleFinding("cluster.system_nodes", got, legal, change, figure)
