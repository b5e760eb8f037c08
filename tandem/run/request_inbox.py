"""Requests of people to the runner: bucket objects; each gets one answer, or a reasoned refusal.

Invariant: the folder that IAM lets a person write to identifies the person, never a word of theirs,
and a folder of STAGE_REQUESTS_PREFIX begins and cancels nothing but runs that only stage. An
answered request is never looked at again. A request that is older than an hour at first sight is
refused, unless it cancels.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from tandem.declarations.experiment import Experiment
from tandem.declarations.spec_digest import compute_spec_digest
from tandem.errors import ExternalError, InputError, TandemError
from tandem.run.bucket_suites import forget_bucket_suites
from tandem.run.engine import PARK, PARK_INDEX
from tandem.run.journal import LostRunError, ObjectFile, RunJournal, StoredValueError
from tandem.run.run_keys import (
    MAX_REQUEST_BYTES,
    REQUESTS_PREFIX,
    STAGE_REQUESTS_PREFIX,
    answer_key,
    find_run_id_fault,
    results_prefix,
    run_record_key,
)
from tandem.run.run_plan import RunPlanInputs, find_gaps
from tandem.run.run_refusals import list_refusals
from tandem.run.run_values import (
    RequestAnswer,
    RunRecord,
    RunRequest,
    estimate_round_s,
    parse_request,
)
from tandem.run.run_world import RunWorld
from tandem.run.step_list import count_rounds

MAX_AGE = timedelta(minutes=60)
_KEY = re.compile(
    rf"(?P<prefix>{REQUESTS_PREFIX}|{STAGE_REQUESTS_PREFIX})(?P<who>[^/]+)/(?P<stem>[^/]{{1,64}})\.json"
)  # a longer stem leaves the answer no key
_CANCEL_STEM = re.compile(r"\.cancel(-\d+)?$")
_STEMS = {"run": "{run}", "cancel": r"{run}\.cancel(-\d+)?", "resume": r"{run}\.resume-\d+"}


@dataclass(frozen=True, kw_only=True)
class InboxItem:
    """One request without an answer.

    Args:
        key: of the request.
        prefix: its first part, REQUESTS_PREFIX or STAGE_REQUESTS_PREFIX.
        size: in bytes.
        written_at: by the clock of S3.
        who: the owner of its folder, an `aws:userid`.
        stem: the name of the object, without its end.
    """

    key: str
    prefix: str
    size: int
    written_at: datetime
    who: str
    stem: str


class RequestInbox:
    """The requests of one environment."""

    def __init__(self, world: RunWorld, file: ObjectFile) -> None:
        self.world = world
        self.file = file

    def find_next(self, delayed_keys: Collection[str]) -> InboxItem | None:
        """Return the request to take next.

        Those that failed at an earlier look come last; then operators' before engineers', cancels
        first, then by age. An engineer may write any number of requests, and requests that nobody
        can read: no operator waits for them.

        Args:
            delayed_keys: of requests that could not be read or answered at an earlier look.

        Raises:
            ExternalError: S3 failed.
        """

        def rank(item: InboxItem) -> tuple[bool, bool, bool]:
            is_cancel = _CANCEL_STEM.search(item.stem) is not None
            return item.key in delayed_keys, item.prefix == STAGE_REQUESTS_PREFIX, not is_cancel

        return min(self.list_open(), key=rank, default=None)

    def list_open(self) -> list[InboxItem]:
        """Return the requests without an answer, the oldest first.

        Raises:
            ExternalError: S3 failed.
        """
        list_keys = self.file.list_keys
        rows = [*list_keys(REQUESTS_PREFIX), *list_keys(STAGE_REQUESTS_PREFIX)]
        keys = {key for key, _, _ in rows}
        items = []
        for key, size, at in rows:
            if key.endswith(".answer.json") or answer_key(key) in keys:
                continue
            match = _KEY.fullmatch(key)
            if match and at:
                items.append(InboxItem(key=key, size=size, written_at=at, **match.groupdict()))
        return sorted(items, key=lambda item: (item.written_at, item.key))

    def take(self, item: InboxItem, active: RunJournal | None) -> RunJournal | None:
        """Carry a request out, then answer it; return the journal of a run that begins or goes on.

        Args:
            item: the request.
            active: the run at work; None if there is none.

        Raises:
            LostRunError: another runner has the run.
            ExternalError: S3 failed; the runner looks at the request again.
        """
        journal = None
        answer_at = self.world.now().isoformat()
        try:
            request = self._read(item)
            journal = self._accept(item, request, active)
            answer = RequestAnswer(is_accepted=True, at=answer_at)
        except TandemError as fault:
            is_lasting = isinstance(fault, StoredValueError)  # waiting makes no object readable
            if isinstance(fault, ExternalError) and not is_lasting:
                raise
            reason = f"{fault.where}: {fault.problem}" if fault.where else fault.problem
            answer = RequestAnswer(
                is_accepted=False, at=answer_at, reason=reason, change=fault.change
            )
            self.world.log(f"{item.key} is refused: {reason}")
        # the answer was written before, and the acknowledgement was lost
        with suppress(LostRunError):
            self.file.write(answer_key(item.key), answer)
        return journal

    def _read(self, item: InboxItem) -> RunRequest:
        """Return a request that is of our form, young enough, and of this environment.

        Raises:
            InputError: the request is not.
            ExternalError: S3 failed.
        """
        if item.size > MAX_REQUEST_BYTES:
            problem = f"{item.size} bytes, and a request has at most {MAX_REQUEST_BYTES}"
            raise InputError(problem, where=item.key, change="write it with `tandem run`")
        request = parse_request(self.file.read_bytes(item.key), item.key)
        stem = _STEMS[request.kind].format(run=re.escape(request.run))
        fault = find_run_id_fault(request.run)
        if fault or not re.fullmatch(stem, item.stem):
            problem = fault or f"its name is not that of a {request.kind} of run {request.run}"
            raise InputError(problem, where=item.key, change="write it with `tandem run`")
        age = self.world.now() - item.written_at
        # a cancel never comes too late
        if request.kind != "cancel" and age > MAX_AGE and not self._is_begun(item, request):
            problem = (
                f"it is of {item.written_at:%Y-%m-%d %H:%M} UTC, more than an hour old when it was"
                " first seen"
            )
            raise InputError(problem, where=item.key, change="ask again")
        if request.environment != self.world.environment.name:
            problem = (
                f"it is for environment {request.environment}, and this is"
                f" {self.world.environment.name}"
            )
            raise InputError(
                problem, where=item.key, change=f"ask the runner of {request.environment}"
            )
        return request

    def _is_begun(self, item: InboxItem, request: RunRequest) -> bool:
        """Return whether this very request began a run, but its answer could not be written."""
        record = self.file.read(run_record_key(request.run), RunRecord)
        return record is not None and (record.request, record.who) == (request, item.who)

    def _accept(
        self, item: InboxItem, request: RunRequest, active: RunJournal | None
    ) -> RunJournal | None:
        if item.prefix == STAGE_REQUESTS_PREFIX:
            self._require_stage(request)
        if request.kind == "cancel":
            self._cancel(item, request, active)
            return None
        experiment = self._find_experiment(request)
        stored = RunJournal.load(self.file, request.run)
        if request.kind == "resume":
            return self._resume(request, stored, active)
        if stored is not None:
            if stored.run.request == request and stored.run.who == item.who:
                return stored  # accepted before the runner could answer
            raise InputError(
                f"run {request.run} exists already", change="take another name for this run"
            )
        _require_idle(active)
        return self._begin(item, request, experiment)

    def _find_experiment(self, request: RunRequest) -> Experiment:
        """Return the experiment of a request, which must be that of the cluster.

        Raises:
            InputError: the runner has no such experiment, or other specs of it.
        """
        world = self.world
        experiment = world.experiments.get(request.experiment)
        if experiment is None:
            hosted = ", ".join(world.experiments) or "none"
            problem = f"the runner knows no experiment {request.experiment!r}"
            raise InputError(problem, change=f"name one of: {hosted}; or deploy or sync first")
        digest = compute_spec_digest(world.environment, experiment, world.catalogue)
        if digest != request.spec_digest:
            problem = f"the specs of {request.experiment} differ from those that the cluster has"
            raise InputError(
                problem, change="deploy or sync first, or ask from the checkout that was deployed"
            )
        return experiment

    def _begin(self, item: InboxItem, request: RunRequest, experiment: Experiment) -> RunJournal:
        """Write the record of a new run.

        Raises:
            InputError: the bucket has results of its name, or its plan is refused.
            ExternalError: S3 failed.
        """
        prefix = results_prefix(request.experiment, request.run)
        if next(self.file.at_root().list_keys(prefix), None) is not None:
            problem = f"{prefix} holds the results of another run of this name, in this bucket"
            raise InputError(problem, change="take another name for this run")
        self._require_plan(experiment, request)
        pair_count = len(experiment.sweep.variants()) if experiment.sweep else 1
        record = RunRecord(
            run=request.run,
            environment=request.environment,
            experiment=request.experiment,
            who=item.who,
            request=request,
            started_at=self.world.now().isoformat(),
            writer=self.world.writer,
            rounds_total=count_rounds(request) * pair_count if request.measures else 0,
        )
        self.file.write(run_record_key(request.run), record)
        return RunJournal(self.file, record)

    def _require_stage(self, request: RunRequest) -> None:
        """Check that a request begins or cancels a run that only stages.

        Raises:
            InputError: it does something else.
            ExternalError: S3 failed.
        """
        until = request.until
        if request.kind == "cancel":
            stored = self.file.read(run_record_key(request.run), RunRecord)
            until = stored.request.until if stored else until
        if until != "stage" or request.kind == "resume":
            raise InputError(
                f"requests below {STAGE_REQUESTS_PREFIX} only stage models",
                change="an operator sends other requests (docs/people.md)",
            )

    def _require_plan(
        self, experiment: Experiment, request: RunRequest, measured_minutes: float = 0
    ) -> None:
        """Check that nothing keeps the run from being done as requested.

        Args:
            experiment: of the request.
            request: to check.
            measured_minutes: of a round, as an earlier lease measured it; 0 if none did.

        Raises:
            InputError: the first obstacle.
            ExternalError: S3 failed.
        """
        gaps = find_gaps(self.world.survey(experiment))
        forget_bucket_suites()
        inputs = RunPlanInputs(
            environment=self.world.environment,
            experiment=experiment,
            catalogue=self.world.catalogue,
            gaps=gaps,
            request=request,
            measured_minutes=measured_minutes,
            file_suites=self.world.read_file_suites(experiment, request),
        )
        refusals = list_refusals(inputs)
        if refusals:
            raise refusals[0]

    def _resume(
        self, request: RunRequest, stored: RunJournal | None, active: RunJournal | None
    ) -> RunJournal:
        if stored is None:
            raise InputError(f"there is no run {request.run}", change="tandem runs lists them")
        before = stored.run.request
        if stored.run.state == "running" and before.at == request.at:
            return stored  # accepted before the runner could answer
        if stored.run.state != "waiting":
            problem = (
                f"run {request.run} is {stored.run.state}, and only a waiting run can be resumed"
            )
            raise InputError(problem, change="start another run")
        if request.spec_digest != before.spec_digest:
            raise InputError("the specs changed since the run began", change="start another run")
        _require_idle(active)
        request = msgspec.structs.replace(
            before, at=request.at, hours=request.hours, accept_unarmed=request.accept_unarmed
        )
        measured_minutes = estimate_round_s(stored.steps.values()) / 60
        self._require_plan(self.world.experiments[request.experiment], request, measured_minutes)
        for name, step in stored.steps.items():
            if name.startswith(PARK) and step.state == "running":
                stored.write_step(
                    PARK_INDEX + int(name.rpartition("-")[2]),
                    msgspec.structs.replace(step, state="done"),
                )
        stored.write_run(
            state="running",
            reason="",
            request=request,
            resumes=len(stored.run.leases),
        )
        return stored

    def _cancel(self, item: InboxItem, request: RunRequest, active: RunJournal | None) -> None:
        is_active = active is not None and active.run.run == request.run
        stored = active if is_active else RunJournal.load(self.file, request.run)
        if stored is None:
            raise InputError(f"there is no run {request.run}", change="tandem runs lists them")
        if stored.run.state == "waiting":
            stored.write_run(
                state="cancelled",
                reason=f"{item.who} cancelled it while it waited",
                cancelled_by=item.who,
                ended_at=self.world.now().isoformat(),
            )
        elif stored.run.state == "running":
            stored.write_run(cancelled_by=item.who)
        else:
            raise InputError(
                f"run {request.run} is {stored.run.state} already",
                change="there is nothing to cancel",
            )


def _require_idle(active: RunJournal | None) -> None:
    if active is not None:
        problem = f"run {active.run.run} of {active.run.who} is at work"
        raise InputError(
            problem, change="ask again when it has ended, or cancel it: tandem runs cancel"
        )
