"""Reasons why a run cannot be done as it is requested.

Invariant: pure. A step that no lease of the requested hours can hold is refused; the rest of a plan
is no reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tandem.errors import InputError
from tandem.guard.fleet_start import MIN_HOURS
from tandem.run.run_plan import (
    END_MINUTES,
    LEASE_MARGIN_MINUTES,
    MAX_QUALITY_MINUTES,
    RunPlanInputs,
    list_lease_steps,
    list_work_steps,
)
from tandem.run.run_values import RunRequest


def list_refusals(inputs: RunPlanInputs) -> tuple[InputError, ...]:
    """Return why this run cannot be done as requested; empty if it can."""
    fleet_fault = find_fleet_fault(inputs)
    plan_faults = tuple(list_plan_faults(inputs))
    return (fleet_fault, *plan_faults) if fleet_fault else plan_faults


def find_fleet_fault(inputs: RunPlanInputs) -> InputError | None:
    """Return why the environment has no nodes to raise yet; None where it has or needs none."""
    environment = inputs.environment
    if not inputs.needs_nodes or not environment.capacity.awaits_reservation:
        return None
    return InputError(
        "it has no Fleet stack yet",
        where=f"environment {environment.name}",
        change="write capacity.reservation_id, deploy Fleet",
    )


def list_plan_faults(inputs: RunPlanInputs) -> Iterator[InputError]:
    """Yield why no fleet of the environment could do this run."""
    request = inputs.request
    max_hours = inputs.environment.guard.max_hours
    if not request.measures:
        yield from _find_unused_flags(request)
    if not inputs.needs_nodes:
        return

    yield from _find_capacity_faults(inputs)
    if request.measures:
        yield from _find_measuring_faults(inputs)

    if not 1 <= request.starts <= request.rounds:
        problem = f"{request.starts} starts of each server, and {request.rounds} rounds"
        yield InputError(
            problem,
            where="--starts",
            change=f"ask for 1 to {request.rounds} starts, or for more rounds",
        )
    elif not MIN_HOURS <= request.hours <= max_hours:
        yield InputError(
            f"{request.hours:g} hours are asked for",
            where=f"environment {request.environment}",
            change=f"ask for {MIN_HOURS:g} to {max_hours} (guard.max_hours)",
        )
    else:
        yield from _find_long_steps(inputs)


def _find_unused_flags(request: RunRequest) -> Iterator[InputError]:
    """Yield a refusal of each flag that changes nothing before a measurement."""
    fields = {
        "--hours": request.until == "stage" and request.hours > 0,
        "--accept-unarmed": request.until == "stage" and request.accept_unarmed,
        "--quick or --full": request.size != "default",
        "--starts": request.starts > 1,
        "--llmperf": request.llmperf,
        "--budget-usd": request.budget_usd > 0,
    }
    for flag, is_given in fields.items():
        if is_given:
            problem = f"no effect with --until {request.until}"
            yield InputError(problem, where=flag, change="leave the flag out")


def _find_capacity_faults(inputs: RunPlanInputs) -> Iterator[InputError]:
    """Yield why the declared capacity cannot hold or compile the experiment."""
    experiment = inputs.experiment
    capacity = inputs.environment.capacity
    where = f"experiment {experiment.name}"
    if not 1 <= inputs.nodes <= capacity.nodes:
        arms = len(inputs.arms)
        slots = inputs.count_slots(experiment.serving)
        fit = (
            f"a {capacity.instance_type} holds {slots} at once, and capacity.nodes is"
            f" {capacity.nodes}"
        )
        change = (
            f"name another experiment or environment, or raise capacity.nodes to {inputs.nodes} and"
            " deploy Fleet"
        )
        yield InputError(f"its {arms} servers do not fit: {fit}", where=where, change=change)
    if inputs.gaps.artifacts and experiment.compile.where == "cpu":
        change = "write compile.where: device, or compile by hand (docs/run-by-hand.md)"
        problem = (
            f"{len(inputs.gaps.artifacts)} artifacts are to be compiled on a node without devices;"
            " there is none"
        )
        yield InputError(problem, where=where, change=change)


def _find_measuring_faults(inputs: RunPlanInputs) -> Iterator[InputError]:
    """Yield why the run cannot be measured as requested, apart from its starts and hours."""
    experiment = inputs.experiment
    request = inputs.request
    if experiment.sweep and (request.starts > 1 or request.llmperf):
        flag = "--llmperf" if request.llmperf else "--starts"
        yield InputError(
            "a sweep starts each pair once, and runs no llmperf",
            where=flag,
            change="leave the flag out",
        )
    if inputs.quality_minutes > MAX_QUALITY_MINUTES:
        limit = f"the Job ends after {MAX_QUALITY_MINUTES:.0f}"
        problem = f"its tasks take up to {inputs.quality_minutes:.0f} min, and {limit}"
        yield InputError(
            problem,
            where=f"experiment {experiment.name}",
            change="write fewer items in its quality",
        )
    if request.budget_usd and not experiment.sweep:
        yield InputError(
            "only a sweep has a budget",
            where="--budget-usd",
            change="leave the flag out: --hours limits",
        )


def _find_long_steps(inputs: RunPlanInputs) -> Iterator[InputError]:
    """Yield a refusal of the longest step if no lease of these hours holds it and its start."""
    hours = inputs.request.hours
    max_hours = inputs.environment.guard.max_hours
    needs = []
    for step in list_work_steps(inputs):
        begins = list_lease_steps(1, has_nodes=False, is_serving=step.step != "compile")
        needs.append(
            (sum(row.minutes for row in (*begins, step)) + END_MINUTES + LEASE_MARGIN_MINUTES, step)
        )
    if not needs:
        return
    minutes, step = max(needs, key=lambda need: need[0])
    if minutes <= hours * 60:
        return
    needed_hours = math.ceil(minutes / 15) / 4
    change = f"ask for --hours {needed_hours:g}"
    if needed_hours > max_hours:
        changes = {
            "compile": "lower compile.deadline_hours",
            "quality": "write fewer items in its quality",
        }
        lower = changes.get(step.step, "ask for --quick")
        change = (
            f"{lower}, or raise guard.max_hours (now {max_hours})"
            f" to {needed_hours:g} and deploy Guard"
        )
    size = f"{'at most' if step.is_bound else 'about'} {step.minutes:.0f} min"
    problem = (
        f"step {step.step} takes {size} ({step.basis}), with nodes that come and go"
        f" {minutes:.0f} min"
    )
    yield InputError(
        f"{problem}; a lease of {hours:g} h does not hold it", where="--hours", change=change
    )
