"""The ordered steps of a run with minutes, USD and deadlines.

Invariant: pure. A figure gives its basis, and is marked as a bound if nothing better is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from tandem.artifacts.survey import SurveyRow
from tandem.bench.plan.estimate import FIRST_TOKEN_S, TOKEN_S, estimate_turn_s
from tandem.bench.plan.run_size import SIZES
from tandem.bench.plan.schedule import assign_starts, control_numbers
from tandem.bench.plan.settings import build_settings
from tandem.bench.records.manifest import ManifestArm
from tandem.bench.suites.suite import Suite
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import (
    CompileSettings,
    Experiment,
    QualityTask,
    ServingSettings,
    Sweep,
)
from tandem.declarations.prices import count_model_gb, find_price, has_nat
from tandem.guard.fleet_start import MIN_HOURS
from tandem.rules.placement import allocatable_limits
from tandem.run.experiment_arms import build_arms, build_pair
from tandem.run.round_traffic import RoundTraffic, plan_traffic
from tandem.run.run_estimate import ASSUMED, RunEstimate, StepEstimate
from tandem.run.run_values import ROUND_SLACK, RunRequest

STAGE_MB_PER_S = 25  # assumed: line, hub and disk decide; 65 GB take three quarters of an hour
# assumed, as no source gives them: EC2's launch and the node's join; image and weights of the
# servers; a restart
NODE_MINUTES = 10.0
SERVE_MINUTES = 8.0
READY_MINUTES = 20.0
RESTART_MINUTES = 20.0
ROUND_EXTRA_MINUTES = 3.0  # a Job's pod, its warm-up, its uploads
LLMPERF_MINUTES = 40.0  # charts/llmperf.py: 25 calls of 70 s, and Ray's start
OWN_ITEMS = 400  # tandem/bench/suites/tasks/sums.jsonl
# MAX_ANSWER_TOKENS and CONCURRENCY of tandem.bench.suites.task_items
OWN_ANSWER_TOKENS = 64
QUALITY_STREAMS = 4
JUDGE_MINUTES = 5.0
END_MINUTES = 5.0
MAX_QUALITY_MINUTES = 240.0  # of all tasks
# then the runner ends their Job, a second attempt too; below the step's deadline
QUALITY_WAIT_MINUTES = 285.0
# the end of a lease, in which nothing new begins: all goes to zero, so that no stop has to act
LEASE_MARGIN_MINUTES = 10.0
COMPILE_EXTRA_MINUTES = 90.0  # for nodes and transfers, in addition to compile.deadline_hours
ITEMS_OF_WORD = 200  # tandem.judge.quality.FEWEST_ITEMS, which is loaded with scipy


@dataclass(frozen=True, kw_only=True)
class BucketGaps:
    """Models and artifacts an experiment needs and the bucket lacks: ids, key names, each once."""

    models: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunPlanInputs:
    """Inputs of a plan.

    Args:
        environment, experiment, catalogue: as declared; the rules admit them.
        gaps: models to stage and artifacts to compile.
        request: of the run.
        done_steps: names of steps that an earlier lease of the run has done.
        measured_minutes: of a round, by the rounds that an earlier lease measured; 0 if there are
            none.
        file_suites: the experiment's files of prompts that were read, by the suite's name.
    """

    environment: Environment
    experiment: Experiment
    catalogue: Catalogue
    gaps: BucketGaps
    request: RunRequest
    done_steps: frozenset[str] = frozenset()
    measured_minutes: float = 0
    file_suites: Mapping[str, Suite] = field(default_factory=dict)

    def count_slots(self, settings: ServingSettings | CompileSettings) -> int:
        """Return how many servers or compiles a node holds; a compile's default is a server's."""
        instance = self.catalogue.instances.instances[self.environment.capacity.instance_type]
        serving = self.experiment.serving
        counts = [(instance.devices.value or 0) // serving.devices]
        for setting, (limit, unit) in allocatable_limits(instance).items():
            counts.append(
                limit // (unit * (getattr(settings, setting) or getattr(serving, setting)))
            )
        return min(counts)

    @property
    def needs_nodes(self) -> bool:
        """Whether the run raises nodes: it measures, or compiles what the bucket lacks."""
        request = self.request
        return request.measures or (request.until == "compile" and bool(self.gaps.artifacts))

    @cached_property
    def arms(self) -> tuple[ManifestArm, ...]:
        """The variants that are served at once, the baseline first; of a sweep the first pair."""
        experiment = self.experiment
        sweep = self.experiment.sweep
        served = experiment
        if sweep:
            served = build_pair(experiment, sweep.variants()[0].name)
        return build_arms(self.environment, served, self.catalogue)

    @cached_property
    def nodes(self) -> int:
        """Number of nodes that hold all arms at once; 0 if a node holds none."""
        slots = self.count_slots(self.experiment.serving)
        if not slots:
            return 0
        return math.ceil(len(self.arms) / slots)

    @cached_property
    def traffic(self) -> RoundTraffic:
        """What a round sends."""
        return plan_traffic(SIZES[self.request.size], self.experiment, self.file_suites)

    @cached_property
    def round_minutes(self) -> tuple[float, float]:
        """Minutes of a round and of a control round; 0 where nothing of it is counted."""
        if not self.traffic.suites:
            return 0.0, 0.0
        experiment = self.experiment
        request = self.request
        size = SIZES[request.size]
        fields = {
            "arms": self.arms,
            "schedule": experiment.schedule,
            "seed": request.seed,
            "api": "chat",
            "rounds": request.rounds,
            "control_rounds": request.control_rounds,
        }
        plan = build_settings(
            size,
            self.traffic.suites,
            fields,
            most_tokens=experiment.max_output_tokens,
            concurrency=experiment.concurrency or None,
        ).plan()
        minutes = []
        for number in (plan.first_round, *plan.control_round_numbers[:1]):
            turns_s = map(estimate_turn_s, plan.round(number))
            minutes.append(sum(turns_s) / 60 + ROUND_EXTRA_MINUTES)
        return minutes[0], minutes[-1]

    @property
    def quality_minutes(self) -> float:
        """Most minutes to answer all tasks, each answer as long as allowed; 0 without tasks."""
        tasks = self.experiment.quality
        answers_s = sum(count_items(task) * self._bound_answer_s(task) for task in tasks)
        if not tasks:
            return 0.0
        return answers_s / QUALITY_STREAMS / 60 + ROUND_EXTRA_MINUTES

    @property
    def quality_usd(self) -> float:
        """Most USD of the nodes in these minutes."""
        return (
            self.quality_minutes / 60 * max(self.nodes, 1) * self.environment.capacity.usd_per_hour
        )

    @property
    def asks_leaders_only(self) -> bool:
        """Whether a sweep asks tasks only of a candidate that leads so far, as it is cheaper.

        To know whether it leads takes another judgment. Of the pairs of a sweep, 59 % do not lead
        (3.6 pairs, 1.5 of them leaders, in the worlds of tests/plan/sweep_worlds.py), so it pays
        from 1.7 judgments on.
        """
        return self.experiment.sweep is not None and self.quality_minutes > 2 * JUDGE_MINUTES

    def _bound_answer_s(self, task: QualityTask) -> float:
        """Return the longest time of an answer; a staged set's items may not be lm-eval's."""
        most_tokens = self.experiment.max_output_tokens
        if task.sha256 is None:
            most_tokens = min(most_tokens, OWN_ANSWER_TOKENS)
        return FIRST_TOKEN_S + TOKEN_S * most_tokens


def count_items(task: QualityTask) -> int:
    """Return the most items of a task that are asked."""
    if task.sha256:
        return task.items
    return min(task.items, OWN_ITEMS)


def find_gaps(rows: Iterable[SurveyRow]) -> BucketGaps:
    """Return the models to stage and the artifacts to compile.

    Args:
        rows: of `tandem.artifacts.survey.survey_bucket`, for the needs of one experiment.
    """
    missing_rows = [row for row in rows if row.used_by and row.state != "present"]
    return BucketGaps(
        models=tuple(row.name.partition("@")[0] for row in missing_rows if row.kind == "model"),
        artifacts=tuple(row.name for row in missing_rows if row.kind == "artifact"),
    )


def complete_hours(inputs: RunPlanInputs) -> RunPlanInputs:
    """Return the inputs with the hours of their lease; unchanged if the request names them."""
    if inputs.request.hours or not inputs.needs_nodes:
        return inputs
    hours = find_lease_hours(inputs)
    return replace(inputs, request=msgspec.structs.replace(inputs.request, hours=hours))


def find_lease_hours(inputs: RunPlanInputs) -> float:
    """Return the hours of one lease that holds the run, at most guard.max_hours, in quarters."""
    endless_request = msgspec.structs.replace(inputs.request, hours=math.inf)
    estimate = estimate_run(replace(inputs, request=endless_request))
    minutes = sum(step.minutes for step in estimate.steps if step.lease) + LEASE_MARGIN_MINUTES
    hours = math.ceil(minutes / 15) / 4
    return min(max(hours, MIN_HOURS), inputs.environment.guard.max_hours)


def estimate_run(inputs: RunPlanInputs) -> RunEstimate:
    """Return the steps of a run, each in the lease that holds it."""
    nodes = max(inputs.nodes, 1)
    usd_per_hour = inputs.environment.capacity.usd_per_hour
    lease_steps = _pack_leases(list_work_steps(inputs), inputs.request.hours * 60)
    priced_steps = (
        replace(step, usd=step.minutes / 60 * nodes * usd_per_hour) for step in lease_steps
    )
    free_steps = (_estimate_step("preflight"), _estimate_stage(inputs))
    if not inputs.needs_nodes:
        return RunEstimate(steps=free_steps, nodes=0)
    return RunEstimate(steps=(*free_steps, *priced_steps), nodes=nodes)


# step, without the suffix of its name -> title, minutes, minutes to its deadline, which the runner
# watches; 0 where another rule ends the step
_STEP_ROWS = {
    "preflight": ("look at account, bucket and cluster", 1.0, 30.0),
    "stage": ("bring the models into the bucket", 0.0, 420.0),
    "raise": ("arm the stop, raise the nodes", 1.0, 15.0),
    "node": ("wait for nodes and their devices", NODE_MINUTES, 60.0),
    "choose": ("choose the next candidate", 0.0, 60.0),
    "clear": ("set the servers to 0", 0.0, 30.0),
    "compile": ("compile artifacts side by side", 0.0, 0.0),
    "label": ("admit the servers to the nodes", 1.0, 30.0),
    "serve": ("start the servers, one after the other", SERVE_MINUTES, 60.0),
    "ready": ("wait until they answer", READY_MINUTES, 120.0),
    "check": ("compare them with their declarations", 1.0, 90.0),
    "restart": ("restart the servers, halves swapped", RESTART_MINUTES, 240.0),
    "round": ("measure a round", 0.0, 480.0),
    "rank": ("judge what is measured", JUDGE_MINUTES, 120.0),
    "quality": ("ask the quality tasks", 0.0, 300.0),
    "llmperf": ("run the post's own generator", LLMPERF_MINUTES, 120.0),
    "pair": ("measure a candidate and plain decoding", 0.0, 0.0),
    "judge": ("judge, write the report", JUDGE_MINUTES, 120.0),
    "park": ("go to zero, wait for tandem run --resume", END_MINUTES, 0.0),
    "end": ("go to zero", END_MINUTES, 0.0),
}


def find_deadline_minutes(step: str) -> float:
    """Return after how many minutes the runner ends a step."""
    _, _, deadline_minutes = _find_row(step)
    return deadline_minutes


def _find_row(step: str) -> tuple[str, float, float]:
    return _STEP_ROWS[step.partition(".")[0].partition("-")[0]]


def _estimate_step(step: str, **changes: Any) -> StepEstimate:
    title, minutes, deadline_minutes = _find_row(step)
    fields = {"title": title, "minutes": minutes, "deadline_minutes": deadline_minutes, **changes}
    return StepEstimate(step=step, **fields)


def _estimate_stage(inputs: RunPlanInputs) -> StepEstimate:
    size_gb = count_model_gb(inputs.catalogue, inputs.gaps.models)
    minutes = size_gb * 1000 / STAGE_MB_PER_S / 60
    if not inputs.gaps.models:
        return _estimate_step("stage", minutes=minutes, basis="the bucket has every model")
    basis = (
        f"{size_gb:.1f} GB ({', '.join(inputs.gaps.models)}) at {STAGE_MB_PER_S} MB/s, {ASSUMED}"
    )
    if not has_nat(inputs.environment):
        return _estimate_step("stage", minutes=minutes, basis=basis)
    price = find_price(inputs.environment, inputs.catalogue, "nat_gb")
    unpriced = ""
    if price.usd is None:
        unpriced = f"staging through NAT: no price for {inputs.environment.region}"
    return _estimate_step(
        "stage", minutes=minutes, basis=basis, usd=size_gb * (price.usd or 0.0), unpriced=unpriced
    )


def list_work_steps(inputs: RunPlanInputs) -> Iterator[StepEstimate]:
    """Yield the missing steps that need nodes, without the first and last steps of each lease."""
    return (step for step in _list_all_work_steps(inputs) if step.step not in inputs.done_steps)


def _list_all_work_steps(inputs: RunPlanInputs) -> Iterator[StepEstimate]:
    """Yield all such steps, done ones too."""
    if inputs.request.until == "compile":
        yield from _list_compile_steps(inputs)
        return
    if inputs.experiment.sweep:
        yield from _list_pair_steps(inputs, inputs.experiment.sweep)
        return
    request = inputs.request
    round_minutes, control_minutes = inputs.round_minutes
    yield from _list_compile_steps(inputs)
    controls = control_numbers(request.rounds, request.control_rounds)
    start = 1
    basis = f"{FIRST_TOKEN_S:g} s and {TOKEN_S * 1000:.0f} ms a token, answers as long as allowed"
    basis += inputs.traffic.describe()
    uncounted = inputs.traffic.uncounted
    if inputs.measured_minutes:
        round_minutes = control_minutes = inputs.measured_minutes
        basis = f"{ROUND_SLACK:g} times the longest round so far"
        uncounted = ()
    for number, own_start in enumerate(
        assign_starts(request.rounds, request.control_rounds, request.starts)
    ):
        if own_start != start:
            start = own_start
            yield _estimate_step(f"restart-{start}")
        minutes = control_minutes if number in controls else round_minutes
        yield _estimate_step(
            f"round-{number:05}", minutes=minutes, basis=basis, uncounted=uncounted
        )
    if minutes := inputs.quality_minutes:
        yield _estimate_step(
            "quality",
            minutes=minutes,
            basis="every answer as long as allowed",
            is_bound=True,
            deadline_minutes=QUALITY_WAIT_MINUTES,
            ending="skips it with a note",
        )
    if request.llmperf:
        basis = "25 calls of about 70 s at 45 ms a token"
        yield _estimate_step("llmperf", basis=basis, ending="skips it with a note")
    yield _estimate_step("judge")


def _list_compile_steps(inputs: RunPlanInputs) -> Iterator[StepEstimate]:
    """Yield one compile for each set of artifacts that the nodes take at once."""
    slots = max(inputs.nodes * inputs.count_slots(inputs.experiment.compile), 1)
    hours = inputs.experiment.compile.deadline_hours
    for _ in range(0, len(inputs.gaps.artifacts), slots):
        yield _estimate_step(
            "compile",
            minutes=hours * 60,
            basis=f"compile.deadline_hours {hours}: no source says more",
            is_bound=True,
            deadline_minutes=hours * 60 + COMPILE_EXTRA_MINUTES,
        )


def _list_pair_steps(inputs: RunPlanInputs, sweep: Sweep) -> Iterator[StepEstimate]:
    """Yield a step for each candidate of a sweep, as if none were eliminated, then the decision."""
    request = inputs.request
    round_minutes, control_minutes = inputs.round_minutes
    hours = inputs.experiment.compile.deadline_hours if inputs.gaps.artifacts else 0
    minutes = request.rounds * round_minutes + request.control_rounds * control_minutes
    minutes += hours * 60 + SERVE_MINUTES + READY_MINUTES + inputs.quality_minutes + END_MINUTES
    minutes += JUDGE_MINUTES * inputs.asks_leaders_only
    basis = (
        f"a start, {request.rounds + request.control_rounds} rounds"
        + f", {hours} h of compile" * bool(hours)
    )
    basis += inputs.traffic.describe()
    basis += "; most sweeps measure less than half of their candidates (docs/sweep.md)"
    for number, _ in enumerate(sweep.variants(), 1):
        yield _estimate_step(
            f"pair-{number:02}-judge",
            minutes=minutes,
            basis=basis,
            is_bound=True,
            deadline_minutes=2 * minutes,
            uncounted=inputs.traffic.uncounted,
        )
    yield _estimate_step("judge")


def list_lease_steps(lease: int, *, has_nodes: bool, is_serving: bool) -> Iterator[StepEstimate]:
    """Yield the missing first steps of a lease: its nodes, then its servers."""
    steps: list[str] = []
    if not has_nodes:
        steps += ("raise", "node")
    if is_serving:
        steps += ("label", "serve", "ready", "check")
    for step in steps:
        name = f"{step}.{lease}" if lease > 1 else step
        yield _estimate_step(name, lease=lease)


def _pack_leases(
    work_steps: Iterable[StepEstimate], lease_minutes: float
) -> Iterator[StepEstimate]:
    """Yield the steps in leases of so many minutes; one that does not fit begins the next."""
    lease = 0
    left_minutes = 0.0
    is_served = False
    restart = tuple[StepEstimate, ...]()
    for step in work_steps:
        if step.step.startswith("restart"):  # it belongs to the lease of the round after it
            restart = (step,)
            continue
        needs_servers = step.step != "compile"
        steps = (*restart, step)
        begins = list(
            list_lease_steps(lease, has_nodes=True, is_serving=needs_servers and not is_served)
        )
        if lease == 0 or sum(row.minutes for row in (*begins, *steps)) > left_minutes:
            if lease:
                yield _estimate_step(f"park-{lease}", lease=lease)
            # a new lease starts its servers anew, so a restart just after that is none
            lease = lease + 1
            left_minutes = lease_minutes - END_MINUTES - LEASE_MARGIN_MINUTES
            steps = (step,)
            begins = list(list_lease_steps(lease, has_nodes=False, is_serving=needs_servers))
        left_minutes -= sum(row.minutes for row in (*begins, *steps))
        yield from (*begins, *(replace(row, lease=lease) for row in steps))
        is_served = needs_servers
        restart = ()
    yield _estimate_step("end", lease=lease)
