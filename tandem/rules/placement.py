"""How logical cores, devices and connected groups fit a model and an instance type."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date
from typing import Any

from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Hosting, Trial


def _smallest_claim(trial: Trial) -> int | None:
    """Return the fewest devices whose logical cores hold the TP degree; None where none do."""
    serving = trial.experiment.serving
    per_device = trial.logical_cores() // serving.devices
    return next((count for count in trial.claims() if count * per_device >= serving.tensor_parallel_size), None)


def _cores(trial: Trial) -> Iterable[Finding]:
    serving, cores = trial.experiment.serving, trial.logical_cores()
    if serving.tensor_parallel_size > cores:
        larger = _smallest_claim(trial)
        yield Finding(
            path="serving.tensor_parallel_size", got=str(serving.tensor_parallel_size),
            allowed=f"at most {cores}: {serving.devices} devices of {cores // serving.devices} logical cores "
            f"at LNC {serving.logical_neuron_core}",
            change=f"write {cores}" + (f", or devices: {larger}" if larger else ""),
        )  # fmt: skip


def _idle(trial: Trial) -> Iterable[Finding]:
    serving, cores = trial.experiment.serving, trial.logical_cores()
    idle, claim = cores - serving.tensor_parallel_size, _smallest_claim(trial)
    fewer = (
        f"devices: {claim}" if claim and claim < serving.devices else "accept it: no smaller claim holds this degree"
    )
    if idle > 0:
        yield Finding(
            path="serving.tensor_parallel_size",
            got=f"{serving.tensor_parallel_size}: {idle} of {cores} logical cores ({idle / cores:.0%}) stay idle",
            allowed=f"{cores} uses all", change=f"write {cores}, or {fewer}",
        )  # fmt: skip


def _divides(trial: Trial) -> Iterable[Finding]:
    degree = trial.experiment.serving.tensor_parallel_size
    widths = [model.intermediate_size.value for _, model in trial.models() if model.intermediate_size.value]
    common, highest = math.gcd(*widths), min(degree, trial.logical_cores())
    below = next(value for value in range(highest, 0, -1) if common % value == 0)
    for _, model in trial.models():
        width = model.intermediate_size
        if width.value is not None and width.value % degree:
            yield Finding(
                path="serving.tensor_parallel_size", got=f"{degree} with {model.id}",
                allowed=f"a divisor of its MLP's width, {width.value}", change=f"write {below}",
                source=model.sources[width.source],
            )  # fmt: skip


def _padding(trial: Trial) -> Iterable[Finding]:
    degree, target = trial.experiment.serving.tensor_parallel_size, trial.target
    if target is None:
        return
    for figure, what in ((target.attention_heads, "attention heads"), (target.vocabulary, "rows of the vocabulary")):
        if figure.value is not None and figure.value % degree:
            padded = -(-figure.value // degree) * degree
            yield Finding(
                path="serving.tensor_parallel_size", got=f"{degree} with {figure.value} {what}, padded to {padded}",
                allowed=f"a divisor of {figure.value}", change="write a divisor, or accept the padded work",
                source=target.sources[figure.source],
            )  # fmt: skip


def _group_holds(trial: Trial) -> Iterable[Finding]:
    serving = trial.experiment.serving
    if serving.device_group is not None and serving.devices > serving.device_group:
        group = next((size for size in (4, 8, 16) if size >= serving.devices), 16)
        yield Finding(
            path="serving.device_group", got=f"{serving.device_group} for {serving.devices} devices",
            allowed=f"{serving.devices} or more", change=f"write {group}",
        )  # fmt: skip


def _counts(hosting: Hosting) -> Iterable[Finding]:
    devices, counts = hosting.trial.experiment.serving.devices, hosting.instance.device_counts
    legal = hosting.bindable_devices()
    if devices not in counts.value:
        yield Finding(
            path=hosting.path, got=hosting.said("serving.devices", devices),
            allowed=f"{listed(counts.value)} on {hosting.environment.capacity.instance_type}",
            change=f"host an experiment with devices: {legal}, or another instance type",
            source=hosting.catalogue.instances.sources[counts.source],
        )  # fmt: skip


def _hosted_cores(hosting: Hosting) -> Iterable[Finding]:
    """Find a TP degree that no claim on the instance type can hold, where the claimed count is more than it binds."""
    serving, devices = hosting.trial.experiment.serving, hosting.bindable_devices()
    per_device = hosting.trial.logical_cores() // serving.devices
    cores = devices * per_device
    if devices < serving.devices and serving.tensor_parallel_size > cores:
        yield Finding(
            path=hosting.path, got=hosting.said("serving.tensor_parallel_size", serving.tensor_parallel_size),
            allowed=f"at most {cores}: a claim on {hosting.environment.capacity.instance_type} holds {devices} devices "
            f"of {per_device} logical cores",
            change=f"host an experiment with tensor_parallel_size: {cores}, or another instance type",
            source=hosting.catalogue.instances.sources[hosting.instance.device_counts.source],
        )  # fmt: skip


def _published(hosting: Hosting) -> Iterable[Finding]:
    group, groups = hosting.trial.experiment.serving.device_group, hosting.instance.device_groups
    if group is not None and group not in groups.value:
        yield Finding(
            path=hosting.path, got=hosting.said("serving.device_group", group),
            allowed=f"{listed((*groups.value, 'null'))} on {hosting.environment.capacity.instance_type}",
            change="a claim for this group would stay pending for ever: host an experiment with device_group: "
            + ("null" if not groups.value else listed(groups.value)),
            source=hosting.catalogue.instances.sources[groups.source],
        )  # fmt: skip


def _ungrouped(hosting: Hosting) -> Iterable[Finding]:
    serving, groups = hosting.trial.experiment.serving, hosting.instance.device_groups
    counted = serving.devices in hosting.instance.device_counts.value  # another rule refuses the rest
    fitting = min((size for size in groups.value if size >= serving.devices), default=None) if counted else None
    group = serving.device_group
    larger = group is not None and fitting is not None and group > fitting
    if serving.devices > 1 and fitting is not None and (group is None or larger):
        yield Finding(
            path=hosting.path,
            got=hosting.said("serving.device_group", group or "null") + f" for {serving.devices} devices",
            allowed=f"the smallest group that holds them: {fitting}",
            change=f"write device_group: {fitting}; devices taken anywhere are not neighbours, and split both halves",
            source=hosting.catalogue.instances.sources[groups.source],
        )  # fmt: skip


_ARCH = "aws-neuron/aws-neuron-sdk about-neuron/arch/neuron-hardware/trn2-arch.rst"
_DRA = "aws-neuron/aws-neuron-sdk deploy/eks/dra.rst"
_LOOKUP = "aws-neuron/connected-device-maps-over-efa-for-neuron lookup/lookup.go"

RULES: tuple[Rule[Any], ...] = (
    Rule(
        id="cores-present", of=Trial, severity="refusal", find=_cores,
        sentence="the TP degree is at most the claimed devices' logical cores at the LNC", source=_ARCH,
        date=date(2026, 8, 21),
    ),
    Rule(
        id="cores-idle", of=Trial, severity="warning", find=_idle,
        sentence="the TP degree uses every logical core it claims", source=_ARCH, date=date(2026, 8, 21),
    ),
    Rule(
        id="degree-divides", of=Trial, severity="refusal", find=_divides,
        sentence="the TP degree divides the MLP's width of target and draft",
        source="aws-neuron/neuronx-distributed-inference models/llama/modeling_llama.py: its MLP is not padded",
        date=date(2026, 7, 28),
    ),
    Rule(
        id="degree-pads", of=Trial, severity="warning", find=_padding,
        sentence="the TP degree divides the target's attention heads and vocabulary, which are padded otherwise",
        source="aws-neuron/neuronx-distributed-inference models/llama/modeling_llama.py", date=date(2026, 7, 28),
    ),
    Rule(
        id="group-holds", of=Trial, severity="refusal", find=_group_holds,
        sentence="the connected group holds all claimed devices", source=_DRA, date=date(2026, 8, 21),
    ),
    Rule(
        id="device-count", of=Hosting, severity="refusal", find=_counts,
        sentence="the instance type can bind a claim of so many devices", source=_DRA, date=date(2026, 8, 21),
    ),
    Rule(
        id="cores-bound", of=Hosting, severity="refusal", find=_hosted_cores,
        sentence="the TP degree is at most the logical cores of the largest claim that the instance type can bind",
        source=_DRA, date=date(2026, 8, 21),
    ),
    Rule(
        id="group-published", of=Hosting, severity="refusal", find=_published,
        sentence="the instance type publishes groups of the size claimed", source=_LOOKUP, date=date(2026, 8, 21),
    ),
    Rule(
        id="group-named", of=Hosting, severity="warning", find=_ungrouped,
        sentence="a claim of several devices names the smallest connected group that holds them",
        source=_DRA, date=date(2026, 8, 21),
    ),
)  # fmt: skip
