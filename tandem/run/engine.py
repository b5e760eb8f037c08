"""The ordered list of a run's steps, and one look at the first that is not done.

Invariant: a look does the missing work and nothing twice; a decision is in the journal before the
next look. Any end of a run leads to the step `end`, and the end of a lease to `park`. Both set
servers, Jobs and fleet to zero, and the engine looks at both until nothing is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from tandem.declarations.experiment import Experiment
from tandem.declarations.spec_digest import compute_spec_digest
from tandem.errors import ExternalError, TandemError
from tandem.guard.notify import notify_subscribers
from tandem.guard.observe import observe_fleet
from tandem.guard.values import CALL_ERRORS, describe_error
from tandem.run import artifact_steps, fleet_steps, round_steps, serving_steps, sweep_steps
from tandem.run.cluster import RefusedCallError
from tandem.run.experiment_arms import build_pair
from tandem.run.jobs import close_jobs
from tandem.run.journal import RunJournal
from tandem.run.run_keys import RANK_STEP, ROUND_STEP, pair_step, strip_pair
from tandem.run.run_plan import assign_starts
from tandem.run.run_values import RunRequest, StepRecord, count_paid_s, estimate_round_s
from tandem.run.run_world import RunEndError, RunWorld, StepProgress, StepWork, describe_fault
from tandem.run.sweep_pairs import list_pairs

FLEET_LOOK = timedelta(seconds=30)
NOTIFY_WAIT_S = 900
# a runner looks at a step for so long before the step is late: hours without a runner are not its
WATCH_S = 30 * 60
REFUSAL_WAIT = timedelta(minutes=10)  # nodes cost money while Kubernetes refuses a call
# faults of the program itself end the run, not the runner with its nodes up
OWN_FAULTS = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
# in the journal a park comes after all steps
END = "end"
PARK = "park"
PARK_INDEX = 900
HOUR_S = 3600
COMPILE_MARGIN_S = 1.5 * HOUR_S  # for nodes and transfers


@dataclass(frozen=True, slots=True, kw_only=True)
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
    advance: Callable[[StepWork], StepProgress]
    deadline_s: float
    needs_node: bool = True
    is_end: bool = False
    is_optional: bool = False
    pair: int = 0
    is_over: bool = False


def count_rounds(request: RunRequest) -> int:
    """Return the rounds of a run, control rounds included."""
    return request.rounds + request.control_rounds


def list_restart_rounds(request: RunRequest) -> dict[int, int]:
    """Return the number of each start but the first, by the round before which it comes."""
    starts = assign_starts(request.rounds, request.control_rounds, request.starts)
    return {starts.index(start): start for start in sorted(set(starts)) if start > 1}


def list_steps(work: StepWork) -> list[StepSpec]:
    """Return a run's steps in order, up to its last; a sweep's as far as its pairs are chosen."""
    request = work.journal.run.request
    lease = work.lease_number
    experiment = work.experiment

    def name_step(step: str) -> str:
        return step if lease == 1 else f"{step}.{lease}"

    preflight = (
        artifact_steps.check_bucket
        if request.until == "stage"
        else artifact_steps.check_before_money
    )
    steps = [
        StepSpec(name="preflight", advance=preflight, deadline_s=1800, needs_node=False),
        StepSpec(
            name="stage",
            advance=artifact_steps.stage_models,
            deadline_s=7 * HOUR_S,
            needs_node=False,
        ),
    ]
    if request.until == "stage":
        return steps
    raise_nodes = _raise_if_missing if request.until == "compile" else fleet_steps.raise_nodes
    wait_for_nodes = _wait_if_raised if request.until == "compile" else fleet_steps.wait_for_nodes
    steps += [
        StepSpec(name=name_step("raise"), advance=raise_nodes, deadline_s=fleet_steps.RAISE_WAIT_S),
        StepSpec(name=name_step("node"), advance=wait_for_nodes, deadline_s=HOUR_S),
    ]
    compile_s = (
        _count_compile_waves(work) * experiment.compile.deadline_hours * HOUR_S + COMPILE_MARGIN_S
    )
    compile_step = StepSpec(
        name="compile", advance=artifact_steps.compile_artifacts, deadline_s=compile_s
    )
    if request.until == "compile":
        return [*steps, compile_step]
    serve_step = StepSpec(
        name=name_step("serve"), advance=serving_steps.start_servers, deadline_s=HOUR_S
    )
    answer_steps = [
        StepSpec(
            name=name_step("ready"), advance=serving_steps.wait_until_ready, deadline_s=2 * HOUR_S
        ),
        StepSpec(
            name=name_step("check"), advance=serving_steps.check_servers, deadline_s=1.5 * HOUR_S
        ),
    ]
    round_specs = [
        StepSpec(
            name=f"{ROUND_STEP}{number:05}",
            advance=round_steps.measure_round,
            deadline_s=8 * HOUR_S,
        )
        for number in range(count_rounds(request))
    ]
    quality_step = StepSpec(
        name="quality", advance=round_steps.ask_tasks, deadline_s=5 * HOUR_S, is_optional=True
    )
    quality_steps = [quality_step] if experiment.quality else []
    judge_step = StepSpec(
        name="judge", advance=round_steps.judge_run, deadline_s=2 * HOUR_S, needs_node=False
    )
    if experiment.sweep:
        # the compile needs the devices
        clear_step = StepSpec(
            name=name_step("clear"), advance=artifact_steps.park_servers, deadline_s=0.5 * HOUR_S
        )
        pair_serve_step = replace(serve_step, advance=sweep_steps.start_pair)
        start_steps = [clear_step, compile_step, pair_serve_step, *answer_steps]
        served_judge_step = replace(judge_step, needs_node=True)
        measure_steps = [*round_specs, *_list_task_steps(work, quality_steps, served_judge_step)]
        pair_judge_step = replace(served_judge_step, advance=sweep_steps.judge_pair)
        return [*steps, *_list_sweep_steps(work, start_steps, measure_steps, pair_judge_step)]
    label_step = StepSpec(
        name=name_step("label"), advance=_label_if_compiled, deadline_s=0.5 * HOUR_S
    )
    steps += [compile_step, label_step, serve_step, *answer_steps]
    restarts = list_restart_rounds(request)
    for number, round_step in enumerate(round_specs):
        if number in restarts:
            restart = f"restart-{restarts[number]}"
            steps.append(
                StepSpec(name=restart, advance=serving_steps.restart_servers, deadline_s=4 * HOUR_S)
            )
        steps.append(round_step)
    steps += quality_steps
    if request.llmperf:
        llmperf_step = StepSpec(
            name="llmperf",
            advance=round_steps.run_llmperf,
            deadline_s=2 * HOUR_S,
            needs_node=False,
            is_optional=True,
        )
        steps.append(llmperf_step)
    return [*steps, judge_step]


def _list_task_steps(
    work: StepWork, quality_steps: Sequence[StepSpec], judge_step: StepSpec
) -> Iterator[StepSpec]:
    """Yield the steps that ask a pair's servers the tasks; a cheaper judgment comes first."""
    if work.plan_inputs.asks_leaders_only:
        yield replace(judge_step, name=RANK_STEP)
    for step in quality_steps:
        yield replace(step, advance=sweep_steps.ask_leader)


def _list_sweep_steps(
    work: StepWork,
    start_steps: Sequence[StepSpec],
    measure_steps: Sequence[StepSpec],
    judge_step: StepSpec,
) -> Iterator[StepSpec]:
    """Yield the steps of each pair so far, the next choice, and after the last the decision.

    Args:
        work: of the sweep.
        start_steps: of a pair; no later lease takes them once the pair is measured.
        measure_steps, judge_step: of a pair.
    """

    def choose(pair: int) -> StepSpec:
        name = pair_step(pair, "choose")
        return StepSpec(
            name=name, advance=sweep_steps.choose_candidate, deadline_s=HOUR_S, needs_node=False
        )

    pairs = list(list_pairs(work.journal.steps))
    for pair in pairs:
        yield choose(pair.number)
        ended = {name for name, step in pair.steps.items() if step.state != "running"}
        is_measured = ended.issuperset(step.name for step in measure_steps)
        for step in (*start_steps, *measure_steps, judge_step):
            yield replace(
                step,
                name=pair_step(pair.number, step.name),
                pair=pair.number,
                advance=partial(sweep_steps.try_candidate, step.advance),
                is_over=pair.is_over or (is_measured and step in start_steps),
            )
    if pairs and not pairs[-1].is_over:
        return
    last_choice = choose(len(pairs) + 1)
    yield last_choice
    record = work.journal.steps.get(last_choice.name)
    if record is not None and record.state == "done":
        yield StepSpec(
            name="judge", advance=sweep_steps.decide_winner, deadline_s=2 * HOUR_S, needs_node=False
        )


def _count_compile_waves(work: StepWork) -> int:
    """Return how many sets of Jobs, as many as nodes hold, compile every artifact of the step."""
    inputs = work.plan_inputs
    experiment = work.experiment
    is_pair = experiment.sweep is not None and work.journal.run.request.until == "judge"
    artifacts = 2 if is_pair else len(experiment.all_variants())
    slots = max(1, inputs.nodes * inputs.count_slots(experiment.compile))
    return math.ceil(artifacts / slots)


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


class RunEngine:
    """One run at work.

    Args:
        world: of the run.
        journal: of the run.
        experiment: as the runner declares it.
    """

    def __init__(self, world: RunWorld, journal: RunJournal, experiment: Experiment) -> None:
        self.run_work = self.work = StepWork(world=world, journal=journal, experiment=experiment)
        digest = compute_spec_digest(world.environment, experiment, world.catalogue)
        self._has_other_specs = digest != journal.run.request.spec_digest
        self._fleet_looked_at: datetime | None = None
        self._refused_at: datetime | None = None
        self._watched_step = ""
        self._watched_since = world.now()
        self.step = ""
        self.note = ""

    def advance(self) -> bool:
        """Take one look at the run; return whether there is more to do.

        Raises:
            LostRunError: another runner has the run.
            ExternalError: S3 failed, so the journal could not be written; the next look goes on.
        """
        journal = self.work.journal
        if journal.run.state != "running":
            return False
        index, spec = self._find_step()
        self.step = spec.name
        record = journal.steps.get(spec.name) or self._begin_next_step(index, spec)
        if record.state != "running":  # its run was not written
            return self._finish(record)
        self.work = work = self._find_work(spec)
        work.attempts, work.result = record.attempts, dict(record.result)
        starts = [
            record.started_at,
            *([work.journal.run.leases[-1].raised_at] if work.has_lease else []),
        ]
        # the hours that a run waited belong to no step
        work.started_at = datetime.fromisoformat(max(starts))
        try:
            progress = self._take_look(spec, is_late=self._is_late(spec))
        except RunEndError as end:
            self._begin_end(index, record, self._find_first_cause(spec, end))
            return True
        record = self._write_progress(index, record, progress)
        if record.state != "running" and spec.is_end:
            return self._finish(record)
        return True

    def watch_anew(self) -> None:
        """Count the time for which this runner looks at its step from now on."""
        self._watched_step = ""

    def _is_late(self, spec: StepSpec) -> bool:
        """Tell whether a step's deadline is over and this runner watched it long enough."""
        now = self.work.world.now()
        if self._watched_step != spec.name:
            self._watched_step = spec.name
            self._watched_since = now
        watched_s = (now - self._watched_since).total_seconds()
        is_over = self.work.count_elapsed_s() > spec.deadline_s and watched_s >= min(
            WATCH_S, spec.deadline_s
        )
        return is_over and not spec.is_end

    def _take_look(self, spec: StepSpec, *, is_late: bool) -> StepProgress:
        """Look at one step; try external faults again until the step's deadline.

        Raises:
            RunEndError: the run must end, or wait.
        """
        work = self.work
        try:
            if not spec.is_end:
                self._check_run(spec)
            progress = spec.advance(work)
            self._refused_at = None
        except ExternalError as fault:
            now = work.world.now()
            is_refused = isinstance(fault, RefusedCallError) and not spec.is_end
            self._refused_at = (self._refused_at or now) if is_refused else None
            is_lasting = self._refused_at is not None and now - self._refused_at > REFUSAL_WAIT
            # others wait for the runner meanwhile
            is_idle = work.journal.run.request.until == "stage"
            if is_late or (is_lasting and (work.has_lease or is_idle)):
                self._refused_at = None
                if spec.is_optional:
                    return StepProgress(state="skipped", note=describe_fault(fault))
                raise RunEndError(describe_fault(fault), "failed") from fault
            work.world.log(f"{spec.name}: {fault.problem}")
            return StepProgress(note=f"tries again: {fault.problem}", result=work.result)
        # of the specs, or of ours: waiting repairs none
        except (TandemError, *OWN_FAULTS) as error:
            text = (
                describe_fault(error)
                if isinstance(error, TandemError)
                else f"{type(error).__name__}: {error}"
            )
            work.world.log(f"{spec.name}: {text}")
            if spec.is_end:  # nothing stops the way to zero
                return StepProgress(note=f"tries again: {text}", result=work.result)
            raise RunEndError(text, "failed") from error
        if progress.state == "running" and is_late:
            reason = f"{spec.name} did not end in {spec.deadline_s / 60:.0f} min: {progress.note}"
            if spec.pair:
                return StepProgress(state="failed", note=reason, result=progress.result)
            raise RunEndError(reason)
        return progress

    def _find_work(self, spec: StepSpec) -> StepWork:
        """Return the work of a step: that of its pair, else that of the run."""
        work = self.run_work
        if spec.pair and spec.pair == self.work.pair:
            work = self.work
        elif spec.pair:
            pairs = {pair.number: pair.variant for pair in list_pairs(work.journal.steps)}
            experiment = build_pair(work.experiment, pairs[spec.pair])
            work = StepWork(
                world=work.world, journal=work.journal, experiment=experiment, pair=spec.pair
            )
        work.name = strip_pair(spec.name)
        return work

    def _find_step(self) -> tuple[int, StepSpec]:
        """Return the first step that is not done; an end or park that has begun goes first."""
        steps = list_steps(self.run_work)
        journal = self.work.journal
        end_spec = StepSpec(
            name=END, advance=self._advance_end, deadline_s=0, needs_node=False, is_end=True
        )
        if END in journal.steps:
            return len(steps), end_spec
        for number in range(journal.run.resumes + 1, len(journal.run.leases) + 1):
            if f"{PARK}-{number}" in journal.steps:
                return PARK_INDEX + number, replace(end_spec, name=f"{PARK}-{number}")
        for index, spec in enumerate(steps):
            record = journal.steps.get(spec.name)
            is_open = record is None or record.state == "running"
            if (
                is_open
                and not spec.is_over
                and (spec.name == "judge" or "judge" not in journal.steps)
            ):  # the judge has and needs no lease
                return index, spec
        return len(steps), end_spec

    def _begin_next_step(self, index: int, spec: StepSpec) -> StepRecord:
        if not spec.is_end:
            return self._begin_step(index, spec.name)
        match self.work.journal.run.request.until:
            case "stage":
                end = RunEndError("the bucket has every model", "staged")
            case "compile":
                end = RunEndError("the bucket has every model and artifact", "compiled")
            case "judge":
                judgment = self.work.journal.steps["judge"].result
                end = RunEndError("", "void" if judgment["is_void"] else "judged")
                return self._begin_step(index, spec.name, end, verdict=judgment["sentence"])
        return self._begin_step(index, spec.name, end)

    def _begin_step(
        self, index: int, name: str, end: RunEndError | None = None, **details: str
    ) -> StepRecord:
        world = self.work.world
        result = {"state": end.state, "reason": end.reason, **details} if end else {}
        record = StepRecord(
            run=self.work.run,
            step=name,
            state="running",
            started_at=world.now().isoformat(),
            result=result,
            writer=world.writer,
        )
        self.work.journal.write_step(index, record)
        return record

    def _write_progress(self, index: int, record: StepRecord, progress: StepProgress) -> StepRecord:
        now = self.work.world.now().isoformat()
        is_over = progress.state != "running"
        self.note = progress.note
        new_record = msgspec.structs.replace(
            record,
            state=progress.state,
            note=progress.note,
            result=progress.result,
            attempts=record.attempts if progress.attempts is None else progress.attempts,
            ended_at=now if is_over else None,
            writer=self.work.world.writer,
        )
        self.work.journal.write_step(index, new_record)
        return new_record

    def _check_run(self, spec: StepSpec) -> None:
        """Check that the run is not cancelled, its lease lives, and the next step fits into it.

        Raises:
            RunEndError, LeaseEndError: the run must end, or wait.
        """
        work = self.work
        world = self.work.world
        run = self.work.journal.run
        if run.cancelled_by and not (spec.name == "judge" and self._has_verdict()):
            raise RunEndError(f"cancelled by {run.cancelled_by}", "cancelled")
        if self._has_other_specs:
            raise RunEndError(
                "the runner has other specs than the run began with:"
                " a deploy or sync came in between"
            )
        if not work.has_lease or not spec.needs_node:
            return
        is_new_round = work.name.startswith(ROUND_STEP) and not work.result.get("before")
        work.require_lease_s(self._estimate_round_s() if is_new_round else 0, spec.name)
        if self._fleet_looked_at is None or world.now() - self._fleet_looked_at >= FLEET_LOOK:
            self._check_fleet()

    def _has_verdict(self) -> bool:
        """Tell whether the last step only has to write what is known; sweeps use the journal.

        Raises:
            ExternalError: S3 failed.
        """
        return (
            self.work.experiment.sweep is not None
            or round_steps.read_judgment(self.work) is not None
        )

    def _check_fleet(self) -> None:
        """Check that nobody stopped the fleet, and that its lease is still the run's.

        Raises:
            RunEndError: the run has the fleet no longer.
        """
        world = self.work.world
        now = world.now()
        name = self.work.journal.run.leases[-1].name
        fleet = observe_fleet(world.clients, world.guard, now)
        self._fleet_looked_at = now
        if fleet.fence is not None and fleet.is_fenced:
            raise RunEndError(f"{fleet.fence.who} stopped the fleet: {fleet.fence.why}")
        if "lease" not in fleet.unknown and (fleet.lease is None or fleet.lease.run != name):
            holder = f"run {fleet.lease.run} has the fleet" if fleet.lease else "somebody ended it"
            raise RunEndError(f"its lease {name} is gone: {holder}")

    def _find_first_cause(self, spec: StepSpec, end: RunEndError) -> RunEndError:
        """Return why the run ends: a stop of its fleet, if any, as all else follows from it."""
        if end.state in {"waiting", "cancelled"} or not (self.work.has_lease and spec.needs_node):
            return end
        try:
            self._check_fleet()
        except RunEndError as cause:
            return cause
        return end

    def _estimate_round_s(self) -> float:
        """Return the longest time of a round: a bit over the longest so far, else as planned."""
        longest_s = estimate_round_s(self.work.steps.values())
        return longest_s or 60 * max(self.work.plan_inputs.round_minutes)

    def _begin_end(self, index: int, record: StepRecord, end: RunEndError) -> None:
        """Begin the end or the park that follows; then write why the step does not go on.

        The order matters: the decision must be in the journal if the runner is killed between the
        two.
        """
        journal = self.work.journal
        lease_count = len(self.work.journal.run.leases)
        is_wait = end.state == "waiting"
        name = f"{PARK}-{lease_count}"
        at = PARK_INDEX + lease_count
        if is_wait and record.note:  # the reason why the lease was too short
            end = RunEndError(f"{end.reason}; {record.step} was at: {record.note}", end.state)
        self._begin_step(*((at, name) if is_wait else (len(list_steps(self.run_work)), END)), end)
        failure = {"state": "failed", "ended_at": self.work.world.now().isoformat()}
        # the step's look at its servers ends with it
        changes: dict[str, Any] = {"note": end.reason, **({"result": {}} if is_wait else failure)}
        journal.write_step(
            index, msgspec.structs.replace(record, writer=self.work.world.writer, **changes)
        )
        self.work.world.log(f"{record.step}: {end.reason}")

    def _advance_end(self, work: StepWork) -> StepProgress:
        """Stop everything that the run may have started, then notify people."""
        if work.journal.run.request.until == "stage":
            close_jobs(work)
        elif not fleet_steps.release_fleet(work):
            return StepProgress(note="the fleet goes to zero", result=work.result)
        state, reason, verdict = (
            str(work.result.get(name, "")) for name in ("state", "reason", "verdict")
        )
        note = "nothing runs any more"
        try:
            text = f"{work.world.environment.name}: run {work.run} {state}. {verdict or reason}"
            notify_subscribers(
                work.world.clients, work.world.guard, f"run {work.run} {state}", text
            )
        except CALL_ERRORS as error:
            if work.count_elapsed_s() < NOTIFY_WAIT_S:
                return StepProgress(
                    note=f"people are not told yet: {describe_error(error)}", result=work.result
                )
            note = f"{note}; people were not told: {describe_error(error)}"
        return StepProgress(state="done", note=note, result=work.result)

    def _finish(self, record: StepRecord) -> bool:
        """Write how the run ended, or that it waits."""
        work = self.work
        result = dict(record.result)
        if result["state"] == "waiting" and work.journal.run.cancelled_by:
            result |= {
                "state": "cancelled",
                "reason": f"cancelled by {work.journal.run.cancelled_by}",
            }
        ended_at = None if result["state"] == "waiting" else record.ended_at
        work.journal.write_run(
            state=result["state"],
            reason=result["reason"],
            verdict=result.get("verdict", ""),
            ended_at=ended_at,
            used_node_s=self._sum_used_s(),
            writer=work.world.writer,
        )
        return False

    def _sum_used_s(self) -> float:
        """Return the node seconds in which something compiled or was measured."""
        journal = self.work.journal
        used_s = 0.0
        for full_name, step in journal.steps.items():
            name = strip_pair(full_name)
            if name.startswith(ROUND_STEP):
                used_s += step.result.get("used_s", 0)
            elif name in {"compile", "llmperf", "quality"} and step.state == "done":
                start = step.result.get("since", step.started_at)  # of the attempt that counts
                used_s += count_paid_s(
                    [msgspec.structs.replace(step, started_at=start)], journal.run.leases
                )
        return used_s * max((lease.nodes for lease in journal.run.leases), default=0)
