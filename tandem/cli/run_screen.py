"""What `tandem run` prints of a plan: rows for a person, plain values for a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.cli.console import format_count
from tandem.cli.fleet import TextRow, format_span, path_as_dict
from tandem.cli.money import format_prepayment, format_price
from tandem.cli.raise_check import list_fleet_rows, list_stop_rows
from tandem.cli.run_draft import RunDraft
from tandem.run import run_plan
from tandem.run.run_estimate import RunEstimate, StepEstimate
from tandem.run.run_refusals import find_fleet_fault
from tandem.run.run_values import RunRequest
from tandem.run.starts_options import StartsOption, compare_starts
from tandem.shell_command import build_tandem_command

UNASKED = (
    "the account: quotas and reservation, the fleet and its stops",
    "the bucket: it counts as empty, so every model is staged and every artifact is compiled",
    "the cluster: the runner and the files that it has",
)
# a step of the journal, without its number -> the row of the plan that it is part of
PHASES = {
    "round": "measure",
    "pair": "pairs",
    "raise": "nodes",
    "node": "nodes",
    "park": "nodes",
    "end": "nodes",
    "label": "serve",
    "ready": "serve",
    "check": "serve",
    "restart": "serve",
}


def list_plan_rows(draft: RunDraft) -> Iterator[TextRow]:
    """Yield what will be done, its time and cost and their ground, and what will end it."""
    inputs = draft.inputs
    estimate = draft.estimate
    if inputs.request.measures:
        yield from _list_arm_rows(inputs)
    else:
        yield "until", f"{inputs.request.until}: nothing is served or measured"
    if inputs.needs_nodes:
        yield from list_fleet_rows(inputs.environment.capacity, estimate.nodes, draft.check.notes)
    if draft.findings:
        levels = Counter(finding.level for finding in draft.findings)
        counts = ", ".join(f"{count} {level}" for level, count in sorted(levels.items()))
        yield "doctor", f"{counts}: {build_tandem_command('doctor', inputs.environment.name)}"

    yield from _list_phase_rows(estimate)
    if inputs.needs_nodes:
        yield from _list_money_rows(draft)
    else:
        yield "total", f"{_format_size(estimate)}  no node"
    if draft.is_offline:
        fleet_fault = find_fleet_fault(inputs)
        if fleet_fault is not None:
            yield "before it", f"{fleet_fault.change}: {fleet_fault.problem}"
        for index, unasked in enumerate(_list_unasked(inputs)):
            yield "not asked" if index == 0 else "", unasked


def _list_unasked(inputs: run_plan.RunPlanInputs) -> list[str]:
    """Return what a plan from files alone does not know."""
    traffic = inputs.traffic
    unread_names = [*traffic.stated, *traffic.uncounted]
    if not inputs.request.measures or not unread_names:
        return list(UNASKED)
    unread = f"the prompts of {', '.join(unread_names)}: the files are not at hand"
    return [*UNASKED, unread]


def _list_arm_rows(inputs: run_plan.RunPlanInputs) -> Iterator[TextRow]:
    """Yield what is measured."""
    request = inputs.request
    sweep = inputs.experiment.sweep
    names = ", ".join(arm.name for arm in inputs.arms)
    if sweep:
        count = len(sweep.variants())
        names = f"{inputs.arms[0].name} and each of at most {count} candidates, one after the other"
    rounds = format_count(request.rounds + request.control_rounds, "round")
    starts = format_count(request.starts, "start")
    control = f"{request.control_rounds} of control"
    yield "arms", f"{names}: {rounds}, {control}; {starts} of each server, {request.size} size"
    if sweep:
        yield from _list_sweep_rows(inputs)
    if request.budget_usd:
        budget = f"{request.budget_usd:.2f} USD of nodes"
        yield "budget", f"{budget}: then the sweep decides by its results so far"


def _list_sweep_rows(inputs: run_plan.RunPlanInputs) -> Iterator[TextRow]:
    """Yield what the tasks of a sweep cost, and what keeps its candidates from winning."""
    counts = {task.name: run_plan.count_items(task) for task in inputs.experiment.quality}
    if inputs.request.rounds < FEWEST_ROUNDS:
        yield "rounds", f"fewer than {FEWEST_ROUNDS}: no candidate can win"
    if not counts:
        yield "tasks", "none: a candidate whose output is not that of plain decoding cannot win"
        return

    tasks = [f"{name} ({format_count(count, 'item')})" for name, count in counts.items()]
    cost = f"at most {inputs.quality_minutes:.0f} min and {inputs.quality_usd:.2f} USD for a pair"
    who = "a candidate that leads so far" if inputs.asks_leaders_only else "every candidate"
    yield "tasks", f"{', '.join(tasks)}: {cost}; {who} and plain decoding answer"
    if min(counts.values()) < run_plan.ITEMS_OF_WORD:
        yield "", f"a task of fewer than {run_plan.ITEMS_OF_WORD} items decides nothing"


def _list_phase_rows(estimate: RunEstimate) -> Iterator[TextRow]:
    phases: dict[str, list[StepEstimate]] = {}
    for step in estimate.steps[1:]:  # preflight is a minute, and free
        word = step.step.partition(".")[0].partition("-")[0]
        phases.setdefault(PHASES.get(word, word), []).append(step)
    for phase, rows in phases.items():
        if rows[0].minutes or rows[0].uncounted:
            yield phase, _format_phase(rows)


def _format_phase(steps: Sequence[StepEstimate]) -> str:
    size = _format_size(RunEstimate(steps=tuple(steps), nodes=1))
    bases = "; ".join(dict.fromkeys(step.basis for step in steps))
    rounds = sum(step.step.startswith("round-") for step in steps)
    if rounds:
        bases = f"{format_count(rounds, 'round')}: {bases}"
    deadline_minutes = max(step.deadline_minutes for step in steps)
    end = f"{steps[-1].ending} after {deadline_minutes:.0f} min"
    if len(steps) > 1:
        end += " each"
    return f"{size}  {bases}; {end}"


def _list_money_rows(draft: RunDraft) -> Iterator[TextRow]:
    """Yield the price of all nodes, the leases, the price of other starts, and the stops."""
    estimate = draft.estimate
    request = draft.inputs.request
    capacity = draft.inputs.environment.capacity
    price = f"{format_price(capacity)}{format_prepayment(capacity)}"
    yield (
        "total",
        f"{_format_size(estimate)}  {estimate.node_minutes:.0f} node-minutes at {price}",
    )
    yield "leases", _format_leases(estimate, request)
    if request.kind == "run":
        for option in list_starts_options(draft.inputs):
            yield "" if option.starts > 1 else "starts", _format_starts(option, request.rounds)
    if not draft.is_offline:
        deadline = draft.now + timedelta(hours=request.hours)
        yield from list_stop_rows(deadline, draft.check.paths, draft.now)


def _format_leases(estimate: RunEstimate, request: RunRequest) -> str:
    if estimate.leases == 1:
        hours = f"1 of {request.hours:g} h: --hours {request.hours:g}"
        return f"{hours} + {_name_uncounted(estimate)}" if estimate.uncounted else hours
    resume = build_tandem_command("run", request.environment, "--resume", request.run)
    leases = f"{estimate.leases} of {request.hours:g} h"
    return f"{leases}: between two the run waits for {resume} --hours H"


def list_starts_options(inputs: run_plan.RunPlanInputs) -> Sequence[StartsOption]:
    """Return what other numbers of starts cost; none where the servers start once or never."""
    if inputs.experiment.sweep or not inputs.request.measures:
        return ()
    return compare_starts(inputs)


def _format_starts(option: StartsOption, rounds: int) -> str:
    parts = [format_count(option.starts, "start")]
    if option.rounds != rounds:
        parts.append(f"{option.rounds} rounds")
    if option.estimate.leases > 1:
        parts.append(f"{option.estimate.leases} leases")
    return f"{_format_size(option.estimate)}  {', '.join(parts)}: {option.word_scope}"


def _format_size(estimate: RunEstimate) -> str:
    bound = "at most" if estimate.has_bounds else "about"
    span = format_span(timedelta(minutes=estimate.minutes))
    unpriced = "".join(f" + {text}" for text in estimate.unpriced)
    uncounted = f" + {_name_uncounted(estimate)}" if estimate.uncounted else ""
    return f"{bound} {span:<10} {estimate.usd:>9,.2f} USD{unpriced}{uncounted}"


def _name_uncounted(estimate: RunEstimate) -> str:
    return f"the prompts of {', '.join(estimate.uncounted)}, not counted"


def plan_as_dict(draft: RunDraft) -> dict[str, Any]:
    """Return the plan as `--json` prints it."""
    inputs = draft.inputs
    starts = []
    for option in list_starts_options(inputs):
        size = _size_as_dict(option.estimate)
        row = {"starts": option.starts, "rounds": option.rounds, "word": option.word_scope}
        starts.append(row | size)
    tasks = {
        "items": {task.name: run_plan.count_items(task) for task in inputs.experiment.quality},
        "minutes": round(inputs.quality_minutes, 2),
        "usd": round(inputs.quality_usd, 2),
        "asks_leaders_only": inputs.asks_leaders_only,
    }
    return {
        "environment": inputs.request.environment,
        "run": inputs.request.run,
        "request": msgspec.to_builtins(inputs.request),
        "gaps": msgspec.to_builtins(inputs.gaps),
        "steps": msgspec.to_builtins(draft.estimate.steps),
        **_size_as_dict(draft.estimate),
        "starts": starts,
        "tasks": tasks,
        "stops": [path_as_dict(path) for path in draft.check.paths],
        "not_asked": _list_unasked(inputs) if draft.is_offline else [],
    }


def _size_as_dict(estimate: RunEstimate) -> dict[str, Any]:
    return {
        "minutes": round(estimate.minutes, 2),
        "node_minutes": round(estimate.node_minutes, 2),
        "usd": round(estimate.usd, 2),
        "nodes": estimate.nodes,
        "leases": estimate.leases,
        "is_bound": estimate.has_bounds,
        "unpriced": list(estimate.unpriced),
        "uncounted": list(estimate.uncounted),
    }
