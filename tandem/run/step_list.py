"""The ordered list of a run's steps; that of a sweep grows with each candidate it chooses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from tandem.bench.plan.schedule import assign_starts
from tandem.run import artifact_steps, fleet_steps, round_steps, serving_steps, sweep_steps
from tandem.run.run_keys import RANK_STEP, ROUND_STEP, pair_step
from tandem.run.run_plan import COMPILE_EXTRA_MINUTES, find_deadline_minutes
from tandem.run.run_values import RunRequest
from tandem.run.run_world import StepProgress, StepWork
from tandem.run.sweep_pairs import PairState, list_pairs

Advance = Callable[[StepWork], StepProgress]


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """One step.

    Args:
        name: in the journal; a step that each lease takes anew has the lease's number behind its
            name.
        advance: looks at the world, does the missing work, and returns the progress of the step.
        deadline_s: from its start; then the run ends.
        needs_node: whether the step is pointless after the lease's end.
        is_end: whether the step ends the run or parks it, so that nothing ends the step.
        is_optional: whether the run goes on without the step if an external service fails for too
            long.
        pair: of a sweep, whose work the step does; 0 for that of the run.
        is_over: whether the step's pair is over, so that no later lease takes the step.
    """

    name: str
    advance: Advance
    deadline_s: float
    needs_node: bool = True
    is_end: bool = False
    is_optional: bool = False
    pair: int = 0
    is_over: bool = False


def count_rounds(request: RunRequest) -> int:
    """Return the rounds of a run, control rounds included."""
    return request.rounds + request.control_rounds


def list_steps(work: StepWork) -> list[StepSpec]:
    """Return a run's steps in order, up to its last; a sweep's as far as its pairs are chosen."""
    match work.request.until:
        case "stage":
            return list(_list_free_steps(artifact_steps.check_bucket))
        case "compile":
            raise_nodes = _raise_if_missing
            wait_for_nodes = _wait_if_raised
            work_steps = iter([_build_compile_step(work)])
        case "judge":
            raise_nodes = fleet_steps.raise_nodes
            wait_for_nodes = fleet_steps.wait_for_nodes
            is_sweep = work.experiment.sweep is not None
            work_steps = _list_sweep_steps(work) if is_sweep else _list_measuring_steps(work)
    return [
        *_list_free_steps(artifact_steps.check_before_money),
        _build_lease_step(work, "raise", raise_nodes),
        _build_lease_step(work, "node", wait_for_nodes),
        *work_steps,
    ]


def _build_step(name: str, advance: Advance, *, is_free: bool = False) -> StepSpec:
    """Return a step with the deadline that the plan shows."""
    deadline_s = 60 * find_deadline_minutes(name)
    return StepSpec(name=name, advance=advance, deadline_s=deadline_s, needs_node=not is_free)


def _build_lease_step(work: StepWork, name: str, advance: Advance) -> StepSpec:
    """Return a step that each lease takes anew."""
    lease = work.lease_number
    return _build_step(name if lease == 1 else f"{name}.{lease}", advance)


def _list_free_steps(check: Advance) -> Iterator[StepSpec]:
    yield _build_step("preflight", check, is_free=True)
    yield _build_step("stage", artifact_steps.stage_models, is_free=True)


def _build_compile_step(work: StepWork) -> StepSpec:
    """Return the compile, with the time of as many waves as its artifacts take."""
    hours = _count_compile_waves(work) * work.experiment.compile.deadline_hours
    return StepSpec(
        name="compile",
        advance=artifact_steps.compile_artifacts,
        deadline_s=60 * (60 * hours + COMPILE_EXTRA_MINUTES),
    )


def _count_compile_waves(work: StepWork) -> int:
    """Return how many sets of Jobs, as many as nodes hold, compile every artifact of the step."""
    inputs = work.plan_inputs
    experiment = work.experiment
    is_pair = experiment.sweep is not None and work.request.measures
    artifacts = 2 if is_pair else len(experiment.all_variants())
    slots = max(1, inputs.nodes * inputs.count_slots(experiment.compile))
    return math.ceil(artifacts / slots)


def _list_measuring_steps(work: StepWork) -> Iterator[StepSpec]:
    """Yield what an ordinary run does with its nodes, and its judgment."""
    yield _build_compile_step(work)
    yield _build_lease_step(work, "label", _label_if_compiled)
    yield _build_lease_step(work, "serve", serving_steps.start_servers)
    yield from _list_answer_steps(work)

    request = work.request
    starts = assign_starts(request.rounds, request.control_rounds, request.starts)
    for number, round_step in enumerate(_list_round_steps(request)):
        if number and starts[number] != starts[number - 1]:
            yield _build_step(f"restart-{starts[number]}", serving_steps.restart_servers)
        yield round_step

    if work.experiment.quality:
        yield replace(_build_step("quality", round_steps.ask_tasks), is_optional=True)
    if request.llmperf:
        llmperf_step = _build_step("llmperf", round_steps.run_llmperf, is_free=True)
        yield replace(llmperf_step, is_optional=True)
    yield _build_step("judge", round_steps.judge_run, is_free=True)


def _list_answer_steps(work: StepWork) -> Iterator[StepSpec]:
    yield _build_lease_step(work, "ready", serving_steps.wait_until_ready)
    yield _build_lease_step(work, "check", serving_steps.check_servers)


def _list_round_steps(request: RunRequest) -> Iterator[StepSpec]:
    for number in range(count_rounds(request)):
        yield _build_step(f"{ROUND_STEP}{number:05}", round_steps.measure_round)


def _list_sweep_steps(work: StepWork) -> Iterator[StepSpec]:
    """Yield the steps of each pair so far, the next choice, and after the last the decision."""
    pairs = list(list_pairs(work.journal.steps))
    for pair in pairs:
        yield _build_choice(pair.number)
        yield from _list_pair_steps(work, pair)
    if pairs and not pairs[-1].is_over:
        return

    last_choice = _build_choice(len(pairs) + 1)
    yield last_choice
    record = work.journal.steps.get(last_choice.name)
    if record is not None and record.state == "done":
        yield _build_step("judge", sweep_steps.decide_winner, is_free=True)


def _build_choice(pair: int) -> StepSpec:
    choice = _build_step("choose", sweep_steps.choose_candidate, is_free=True)
    return replace(choice, name=pair_step(pair, choice.name))


def _list_pair_steps(work: StepWork, pair: PairState) -> Iterator[StepSpec]:
    """Yield the steps of a pair; no later lease takes its first ones once it is measured."""
    start_steps = [
        # the compile needs the devices
        _build_lease_step(work, "clear", artifact_steps.park_servers),
        _build_compile_step(work),
        _build_lease_step(work, "serve", sweep_steps.start_pair),
        *_list_answer_steps(work),
    ]
    measure_steps = list(_list_round_steps(work.request))
    if work.plan_inputs.asks_leaders_only:  # a cheaper judgment comes before the tasks
        measure_steps.append(_build_step(RANK_STEP, round_steps.judge_run))
    if work.experiment.quality:
        quality_step = _build_step("quality", sweep_steps.ask_leader)
        measure_steps.append(replace(quality_step, is_optional=True))

    ended = {name for name, step in pair.steps.items() if step.state != "running"}
    is_measured = ended.issuperset(step.name for step in measure_steps)
    judge_step = _build_step("judge", sweep_steps.judge_pair)
    for step in (*start_steps, *measure_steps, judge_step):
        yield replace(
            step,
            name=pair_step(pair.number, step.name),
            pair=pair.number,
            advance=partial(sweep_steps.try_candidate, step.advance),
            is_over=pair.is_over or (is_measured and step in start_steps),
        )


def _raise_if_missing(work: StepWork) -> StepProgress:
    """Raise the nodes of a run that only compiles, unless the bucket has every artifact already."""
    is_decided = "labels" in work.result
    if is_decided or artifact_steps.list_missing_jobs(work, "artifact"):
        return fleet_steps.raise_nodes(work)
    return StepProgress(state="skipped", note="the bucket has every artifact")


def _wait_if_raised(work: StepWork) -> StepProgress:
    """Wait for the nodes, if any were raised."""
    if work.has_lease:
        return fleet_steps.wait_for_nodes(work)
    return StepProgress(state="skipped", note="no node was raised")


def _label_if_compiled(work: StepWork) -> StepProgress:
    raise_step = fleet_steps.find_raise_step(work)
    if raise_step.result["labels"] == fleet_steps.choose_serving_admission(work).labels:
        return StepProgress(state="skipped", note="the nodes have the servers' labels already")
    return fleet_steps.label_for_serving(work)
