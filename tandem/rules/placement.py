"""How logical cores, devices and connected groups fit a model and an instance type."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tandem.rules.contexts import ExperimentContext, HostingContext
from tandem.rules.rule import RuleFinding, RuleList, join_values

_ARCH = "aws-neuron/aws-neuron-sdk about-neuron/arch/neuron-hardware/trn2-arch.rst"
_DRA = "aws-neuron/aws-neuron-sdk deploy/eks/dra.rst"
_LOOKUP = "aws-neuron/connected-device-maps-over-efa-for-neuron lookup/lookup.go"
RULES = RuleList()


def _smallest_claim(context: ExperimentContext) -> int | None:
    """Return the fewest devices whose logical cores hold the TP degree; None where none do."""
    serving = context.experiment.serving
    per_device = context.logical_cores() // serving.devices
    return next((count for count in context.claims() if count * per_device >= serving.tensor_parallel_size), None)


@RULES.refuse("cores-present", _ARCH, "2026-08-21")
def _find_missing_cores(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The TP degree is at most the claimed devices' logical cores at the LNC."""
    serving, cores = context.experiment.serving, context.logical_cores()
    if serving.tensor_parallel_size > cores:
        larger = _smallest_claim(context)
        yield RuleFinding(
            path="serving.tensor_parallel_size", got=str(serving.tensor_parallel_size),
            allowed=f"at most {cores}: {serving.devices} devices of {cores // serving.devices} logical cores "
            f"at LNC {serving.logical_neuron_core}",
            change=f"write {cores}" + (f", or devices: {larger}" if larger else ""),
        )  # fmt: skip


@RULES.warn("cores-idle", _ARCH, "2026-08-21")
def _find_idle_cores(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The TP degree uses every logical core it claims."""
    serving, cores = context.experiment.serving, context.logical_cores()
    idle, claim = cores - serving.tensor_parallel_size, _smallest_claim(context)
    fewer = (
        f"devices: {claim}" if claim and claim < serving.devices else "accept it: no smaller claim holds this degree"
    )
    if idle > 0:
        yield RuleFinding(
            path="serving.tensor_parallel_size",
            got=f"{serving.tensor_parallel_size}: {idle} of {cores} logical cores ({idle / cores:.0%}) stay idle",
            allowed=f"{cores} uses all", change=f"write {cores}, or {fewer}",
        )  # fmt: skip


@RULES.refuse(
    "degree-divides",
    "aws-neuron/neuronx-distributed-inference models/llama/modeling_llama.py: its MLP is not padded",
    "2026-07-28",
)
def _find_indivisible_degree(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The TP degree divides the MLP's width of target and draft."""
    degree = context.experiment.serving.tensor_parallel_size
    widths = [model.intermediate_size.value for _, model in context.models() if model.intermediate_size.value]
    common, highest = math.gcd(*widths), min(degree, context.logical_cores())
    divisor = next(value for value in range(highest, 0, -1) if common % value == 0)
    for _, model in context.models():
        width = model.intermediate_size
        if width.value is not None and width.value % degree:
            yield RuleFinding(
                path="serving.tensor_parallel_size", got=f"{degree} with {model.id}",
                allowed=f"a divisor of its MLP's width, {width.value}", change=f"write {divisor}",
                source=model.sources[width.source],
            )  # fmt: skip


@RULES.warn("degree-pads", "aws-neuron/neuronx-distributed-inference models/llama/modeling_llama.py", "2026-07-28")
def _find_padding(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The TP degree divides the target's attention heads and vocabulary, which are padded otherwise."""
    degree, target = context.experiment.serving.tensor_parallel_size, context.target
    if target is None:
        return
    for figure, part_name in (
        (target.attention_heads, "attention heads"),
        (target.vocabulary, "rows of the vocabulary"),
    ):
        if figure.value is not None and figure.value % degree:
            padded_size = -(-figure.value // degree) * degree
            yield RuleFinding(
                path="serving.tensor_parallel_size",
                got=f"{degree} with {figure.value} {part_name}, padded to {padded_size}",
                allowed=f"a divisor of {figure.value}",
                change="write a divisor, or accept the padded work",
                source=target.sources[figure.source],
            )


@RULES.refuse("group-holds", _DRA, "2026-08-21")
def _find_small_group(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The connected group holds all claimed devices."""
    serving = context.experiment.serving
    if serving.device_group is not None and serving.devices > serving.device_group:
        group = next((size for size in (4, 8, 16) if size >= serving.devices), 16)
        yield RuleFinding(
            path="serving.device_group", got=f"{serving.device_group} for {serving.devices} devices",
            allowed=f"{serving.devices} or more", change=f"write {group}",
        )  # fmt: skip


@RULES.refuse("device-count", _DRA, "2026-08-21")
def _find_unbindable_count(context: HostingContext) -> Iterable[RuleFinding]:
    """The instance type can bind a claim of so many devices."""
    devices, counts = context.experiment_context.experiment.serving.devices, context.instance.device_counts
    legal = context.bindable_devices()
    if devices not in counts.value:
        yield RuleFinding(
            path=context.path, got=context.format_value("serving.devices", devices),
            allowed=f"{join_values(counts.value)} on {context.environment.capacity.instance_type}",
            change=f"host an experiment with devices: {legal}, or another instance type",
            source=context.catalogue.instances.sources[counts.source],
        )  # fmt: skip


@RULES.refuse("cores-bound", _DRA, "2026-08-21")
def _find_unbindable_degree(context: HostingContext) -> Iterable[RuleFinding]:
    """The TP degree is at most the logical cores of the largest claim that the instance type can bind."""
    serving, devices = context.experiment_context.experiment.serving, context.bindable_devices()
    per_device = context.experiment_context.logical_cores() // serving.devices
    cores = devices * per_device
    if devices < serving.devices and serving.tensor_parallel_size > cores:
        yield RuleFinding(
            path=context.path, got=context.format_value("serving.tensor_parallel_size", serving.tensor_parallel_size),
            allowed=f"at most {cores}: a claim on {context.environment.capacity.instance_type} holds {devices} devices "
            f"of {per_device} logical cores",
            change=f"host an experiment with tensor_parallel_size: {cores}, or another instance type",
            source=context.catalogue.instances.sources[context.instance.device_counts.source],
        )  # fmt: skip


@RULES.refuse("group-published", _LOOKUP, "2026-08-21")
def _find_unpublished_group(context: HostingContext) -> Iterable[RuleFinding]:
    """The instance type publishes groups of the size claimed."""
    group, groups = context.experiment_context.experiment.serving.device_group, context.instance.device_groups
    if group is not None and group not in groups.value:
        yield RuleFinding(
            path=context.path, got=context.format_value("serving.device_group", group),
            allowed=f"{join_values((*groups.value, 'null'))} on {context.environment.capacity.instance_type}",
            change="a claim for this group would stay pending for ever: host an experiment with device_group: "
            + ("null" if not groups.value else join_values(groups.value)),
            source=context.catalogue.instances.sources[groups.source],
        )  # fmt: skip


@RULES.warn("group-named", _DRA, "2026-08-21")
def _find_missing_group(context: HostingContext) -> Iterable[RuleFinding]:
    """A claim of several devices names the smallest connected group that holds them."""
    serving, groups = context.experiment_context.experiment.serving, context.instance.device_groups
    is_bindable = serving.devices in context.instance.device_counts.value  # another rule refuses the rest
    fitting = min((size for size in groups.value if size >= serving.devices), default=None) if is_bindable else None
    group = serving.device_group
    is_larger = group is not None and fitting is not None and group > fitting
    if serving.devices > 1 and fitting is not None and (group is None or is_larger):
        yield RuleFinding(
            path=context.path,
            got=context.format_value("serving.device_group", group or "null") + f" for {serving.devices} devices",
            allowed=f"the smallest group that holds them: {fitting}",
            change=f"write device_group: {fitting}; devices taken anywhere are not neighbours, and split both halves",
            source=context.catalogue.instances.sources[groups.source],
        )  # fmt: skip
