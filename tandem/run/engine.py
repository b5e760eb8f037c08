"""One look at the first step of a run that is not done.

Invariant: a look does the missing work and nothing twice; a decision is in the journal before the
next look. Any end of a run leads to the step `end`, and the end of a lease to `park`. Both set
servers, Jobs and fleet to zero, and the engine looks at both until nothing is left.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tandem.declarations.experiment import Experiment
from tandem.declarations.spec_digest import compute_spec_digest
from tandem.errors import ExternalError, TandemError
from tandem.guard.notify import notify_subscribers
from tandem.guard.observe import observe_fleet
from tandem.guard.values import CALL_ERRORS, describe_error
from tandem.run import fleet_steps, round_steps
from tandem.run.cluster import RefusedCallError
from tandem.run.experiment_arms import build_pair
from tandem.run.jobs import close_jobs
from tandem.run.journal import RunJournal
from tandem.run.run_keys import ROUND_STEP, strip_pair
from tandem.run.run_values import StepRecord, count_paid_s, estimate_round_s
from tandem.run.run_world import (
    LeaseEndError,
    RunEndError,
    RunWorld,
    StepProgress,
    StepWork,
    describe_fault,
)
from tandem.run.step_list import StepSpec, list_steps
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
# the last step of a run -> its state at the end, and why it ended
EARLY_ENDS = {
    "stage": ("staged", "the bucket has every model"),
    "compile": ("compiled", "the bucket has every model and artifact"),
}


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

        self.work = self._find_work(spec, record)
        try:
            progress = self._take_look(spec)
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

    def _find_work(self, spec: StepSpec, record: StepRecord) -> StepWork:
        """Return the work of a step as the journal has it: that of its pair, else of the run."""
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
        work.attempts = record.attempts
        work.result = dict(record.result)
        work.jobs = record.jobs
        started_at = record.started_at
        if work.has_lease:  # the hours that a run waited belong to no step
            started_at = max(started_at, work.leases[-1].raised_at)
        work.started_at = datetime.fromisoformat(started_at)
        return work

    def _take_look(self, spec: StepSpec) -> StepProgress:
        """Look at one step; try external faults again until the step's deadline.

        Raises:
            RunEndError: the run must end, or wait.
        """
        is_late = self._is_late(spec)
        try:
            if not spec.is_end:
                self._check_run(spec)
            progress = spec.advance(self.work)
        except ExternalError as fault:
            return self._wait_on_fault(spec, fault, is_late=is_late)
        except TandemError as error:
            return self._give_up(spec, describe_fault(error), error)
        except OWN_FAULTS as error:
            return self._give_up(spec, f"{type(error).__name__}: {error}", error)

        self._refused_at = None
        if progress.state != "running" or not is_late:
            return progress
        reason = f"{spec.name} did not end in {spec.deadline_s / 60:.0f} min: {progress.note}"
        if spec.pair:
            return StepProgress(state="failed", note=reason, result=progress.result)
        raise RunEndError(reason)

    def _is_late(self, spec: StepSpec) -> bool:
        """Tell whether a step's deadline is over and this runner watched it long enough."""
        now = self.work.world.now()
        if self._watched_step != spec.name:
            self._watched_step = spec.name
            self._watched_since = now
        if spec.is_end or self.work.count_elapsed_s() <= spec.deadline_s:
            return False
        watched_s = (now - self._watched_since).total_seconds()
        return watched_s >= min(WATCH_S, spec.deadline_s)

    def _wait_on_fault(
        self, spec: StepSpec, fault: ExternalError, *, is_late: bool
    ) -> StepProgress:
        """Leave a step to the next look, unless its deadline is over or the fault will stay.

        Raises:
            RunEndError: the run ends with the fault.
        """
        if is_late or self._is_refused_for_good(spec, fault):
            self._refused_at = None
            if spec.is_optional:
                return StepProgress(state="skipped", note=describe_fault(fault))
            raise RunEndError(describe_fault(fault), "failed") from fault
        return self._try_again(spec, fault.problem)

    def _is_refused_for_good(self, spec: StepSpec, fault: ExternalError) -> bool:
        """Tell whether Kubernetes has refused for too long while nodes or other runs wait."""
        if spec.is_end or not isinstance(fault, RefusedCallError):
            self._refused_at = None
            return False
        work = self.work
        now = work.world.now()
        self._refused_at = self._refused_at or now
        is_waited_for = work.has_lease or work.request.until == "stage"
        return is_waited_for and now - self._refused_at > REFUSAL_WAIT

    def _give_up(self, spec: StepSpec, reason: str, error: Exception) -> StepProgress:
        """End the run by a fault of its specs, or of ours: waiting repairs none.

        Raises:
            RunEndError: always, but on the way to zero, which nothing stops.
        """
        if spec.is_end:
            return self._try_again(spec, reason)
        self.work.world.log(f"{spec.name}: {reason}")
        raise RunEndError(reason, "failed") from error

    def _try_again(self, spec: StepSpec, reason: str) -> StepProgress:
        self.work.world.log(f"{spec.name}: {reason}")
        return self.work.keep_running(f"tries again: {reason}")

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
            # the judge has and needs no lease
            is_behind_judge = spec.name != "judge" and "judge" in journal.steps
            if is_open and not spec.is_over and not is_behind_judge:
                return index, spec
        return len(steps), end_spec

    def _begin_next_step(self, index: int, spec: StepSpec) -> StepRecord:
        result = self._describe_normal_end() if spec.is_end else {}
        return self._begin_step(index, spec.name, result)

    def _describe_normal_end(self) -> dict[str, str]:
        """Return the state of a run whose steps are all done, and its verdict."""
        journal = self.work.journal
        until = journal.run.request.until
        if until in EARLY_ENDS:
            state, reason = EARLY_ENDS[until]
            return {"state": state, "reason": reason}
        judgment = journal.steps["judge"].result
        state = "void" if judgment["is_void"] else "judged"
        return {"state": state, "reason": "", "verdict": judgment["sentence"]}

    def _begin_step(self, index: int, name: str, result: dict[str, str]) -> StepRecord:
        record = StepRecord(
            run=self.work.run,
            step=name,
            state="running",
            started_at=self.work.world.now().isoformat(),
            result=result,
        )
        return self.work.journal.write_step(index, record)

    def _write_progress(self, index: int, record: StepRecord, progress: StepProgress) -> StepRecord:
        is_over = progress.state != "running"
        self.note = progress.note
        new_record = msgspec.structs.replace(
            record,
            state=progress.state,
            note=progress.note,
            result=progress.result,
            jobs=self.work.jobs,
            attempts=record.attempts if progress.attempts is None else progress.attempts,
            ended_at=self.work.world.now().isoformat() if is_over else None,
        )
        return self.work.journal.write_step(index, new_record)

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
        needed_s = self._estimate_round_s() if is_new_round else 0
        work.require_lease_s(needed_s, spec.name)
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
        name = self.work.leases[-1].name
        fleet = observe_fleet(world.clients, world.guard, now)
        self._fleet_looked_at = now
        if fleet.fence is not None and fleet.is_fenced:
            raise RunEndError(f"{fleet.fence.who} stopped the fleet: {fleet.fence.why}")
        if "lease" not in fleet.unknown and (fleet.lease is None or fleet.lease.run != name):
            holder = "somebody ended it"
            if fleet.lease:
                holder = f"run {fleet.lease.run} has the fleet"
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
        return longest_s or 60 * self.work.count_round_minutes()

    def _begin_end(self, index: int, record: StepRecord, end: RunEndError) -> None:
        """Begin the end or the park that follows; then write why the step does not go on.

        The order matters: the decision must be in the journal if the runner is killed between the
        two.
        """
        journal = self.work.journal
        if end.state == "waiting":
            lease_count = len(journal.run.leases)
            at = PARK_INDEX + lease_count
            name = f"{PARK}-{lease_count}"
            # the step's look at its servers ends with it
            changes: dict[str, Any] = {"result": {}}
            if record.note:  # the reason why the lease was too short
                end = LeaseEndError(f"{end.reason}; {record.step} was at: {record.note}")
        else:
            at = len(list_steps(self.run_work))
            name = END
            changes = {"state": "failed", "ended_at": self.work.world.now().isoformat()}

        self._begin_step(at, name, {"state": end.state, "reason": end.reason})
        changes |= {"note": end.reason, "jobs": self.work.jobs}
        journal.write_step(index, msgspec.structs.replace(record, **changes))
        self.work.world.log(f"{record.step}: {end.reason}")

    def _advance_end(self, work: StepWork) -> StepProgress:
        """Stop everything that the run may have started, then notify people."""
        if work.request.until == "stage":
            close_jobs(work)
        elif not fleet_steps.release_fleet(work):
            return work.keep_running("the fleet goes to zero")
        state = work.result["state"]
        sentence = work.result.get("verdict") or work.result["reason"]
        title = f"run {work.run} {state}"
        text = f"{work.world.environment.name}: {title}. {sentence}"
        note = "nothing runs any more"
        try:
            notify_subscribers(work.world.clients, work.world.guard, title, text)
        except CALL_ERRORS as error:
            if work.count_elapsed_s() < NOTIFY_WAIT_S:
                return work.keep_running(f"people are not told yet: {describe_error(error)}")
            note = f"{note}; people were not told: {describe_error(error)}"
        return StepProgress(state="done", note=note, result=work.result)

    def _finish(self, record: StepRecord) -> bool:
        """Write how the run ended, or that it waits."""
        journal = self.work.journal
        state = record.result["state"]
        reason = record.result["reason"]
        if state == "waiting" and journal.run.cancelled_by:
            state = "cancelled"
            reason = f"cancelled by {journal.run.cancelled_by}"
        journal.write_run(
            state=state,
            reason=reason,
            verdict=record.result.get("verdict", ""),
            ended_at=None if state == "waiting" else record.ended_at,
            used_node_s=self._sum_used_s(),
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
