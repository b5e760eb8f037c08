"""Access of a person's commands to runs in the bucket: requests and answers, records, steps, logs.

Invariant: a request's key alone says who sends the request; the key is below the caller's own
`aws:userid`. An object that cannot be read or parsed is a sentence, and a denial names the kind of
people that has the right.

Sources: IAM user guide, "IAM and AWS STS condition context keys" (aws:userid is the UserId of
GetCallerIdentity); CloudWatch Logs user guide, "Filter pattern syntax" (JSON patterns, `*` in a
value); Fluent Bit's record of a container.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from tandem.aws.faults import error_code, explain_fault
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.names import PeopleKind
from tandem.errors import ExternalError, InputError, TandemError
from tandem.ops.account import create_client, create_guard_clients, create_session, iterate_rows
from tandem.ops.faults import ABSENT_CODES, AccessDeniedError, call_operation
from tandem.ops.guard_config import build_guard_config
from tandem.run import run_keys
from tandem.run.journal import RETRY_ADVICE, LostRunError, ObjectFile, list_runs
from tandem.run.run_keys import find_run_id_fault
from tandem.run.run_values import RequestAnswer, RunnerBeat, RunRecord, RunRequest, StepRecord
from tandem.shell_command import build_cdk_command, build_tandem_command

READ_THREADS = 8
MAX_LOG_LINES = 2000  # the last ones
LOG_DELAY = timedelta(minutes=1)  # from a pod's last line to its step's end, and back
BEAT_LIMIT = timedelta(minutes=5)


class LogLine(NamedTuple):
    """One line of a pod's log; `at` is None if only a stored tail has the line."""

    at: datetime | None
    pod: str
    text: str


@contextmanager
def name_people(environment: Environment, kind: PeopleKind) -> Iterator[None]:
    """Name in a denial the people with the right; advise trying again where the runner would.

    Raises:
        AccessDeniedError: the credentials may not do it.
        InputError: the environment is not deployed.
        TandemError: something else failed.
    """
    try:
        yield
    except TandemError as fault:
        # the artifacts' store hides the error that it converts
        cause = fault.__cause__ or fault.__context__
        deploy = build_cdk_command("deploy", environment.name)
        if error_code(cause) == "NoSuchBucket":
            raise InputError(
                "it is not deployed: it has no bucket", where=fault.where, change=deploy
            ) from cause
        if fault.change == RETRY_ADVICE:
            fault = ExternalError(fault.problem, where=fault.where, change="try again")
        if cause is None or explain_fault(cause, "").kind != "denied":
            raise fault from cause
        policy = names.people_policy_name(environment, kind)
        raise AccessDeniedError(
            fault.problem,
            where=fault.where,
            change=(
                f"it takes the rights of {kind}: log in as one, or have {policy} attached"
                " (docs/people.md)"
            ),
        ) from cause


class RunClient:
    """Runs of one environment, as a person outside its cluster sees them.

    Args:
        environment: as declared.
        boto_session: a boto3 session; None makes a new one.

    Every method raises a TandemError if AWS fails, and an AccessDeniedError that names the people
    with the right.
    """

    def __init__(self, environment: Environment, boto_session: Any = None) -> None:
        self.environment = environment
        self.session = boto_session or create_session()
        self.clients = create_guard_clients(environment, self.session)
        self.config = build_guard_config(environment)
        self.file = ObjectFile(self.clients, self.config)
        self._steps: dict[str, tuple[object, StepRecord]] = {}

    def read_user_id(self) -> str:
        """Return the caller's `aws:userid`."""
        sts = create_client(self.environment, "sts", self.session)
        where = f"account {self.environment.account}"
        return str(call_operation(sts, "GetCallerIdentity", where)["UserId"])

    def read_beat(self) -> RunnerBeat | None:
        """Return the runner's last beat; None if no runner ever wrote one."""
        with name_people(self.environment, "viewer"):
            return self.file.read(run_keys.RUNNER_KEY, RunnerBeat)

    def find_run(self, run: str) -> RunRecord | None:
        """Return a run; None if there is none."""
        with name_people(self.environment, "viewer"):
            return self.file.read(run_keys.run_record_key(run), RunRecord)

    def read_run(self, run: str) -> RunRecord:
        """Return a run.

        Raises:
            InputError: there is no run of this name.
        """
        fault = find_run_id_fault(run)
        record = None if fault else self.find_run(run)
        if record is None:
            raise InputError(
                fault or f"it has no run {run}",
                where=f"environment {self.environment.name}",
                change=f"{build_tandem_command('runs', self.environment.name)} lists them",
            )
        return record

    def list_runs(self) -> tuple[list[RunRecord], dict[str, str]]:
        """Return all runs, the newest first, and why others could not be read, by their ids."""
        records = []
        unread = {}
        with name_people(self.environment, "viewer"):
            runs = [run for run in list_runs(self.file) if not find_run_id_fault(run)]

        def read(run: str) -> None:
            try:
                record = self.find_run(run)
                if record:  # a lease by hand has no run
                    records.append(record)
            except TandemError as fault:
                unread[run] = fault.problem

        with ThreadPoolExecutor(READ_THREADS) as pool:
            list(pool.map(read, runs))
        return sorted(records, key=lambda record: record.started_at, reverse=True), unread

    def read_steps(self, run: str) -> tuple[StepRecord, ...]:
        """Return a run's steps in order; ended steps that were read are not read again."""
        steps = []
        with name_people(self.environment, "viewer"):
            for key, size, modified_at in self.file.list_keys(run_keys.steps_prefix(run)):
                stamp = (size, modified_at)
                earlier_stamp, step = self._steps.get(key, (None, None))
                if step is None or earlier_stamp != stamp or step.state == "running":
                    step = self.file.read(key, StepRecord)
                if step is not None:
                    self._steps[key] = (stamp, step)
                    steps.append(step)
        return tuple(steps)

    def write_request(self, request: RunRequest, stem: str) -> str:
        """Write a request below the caller's own id and return its key.

        Raises:
            InputError: the caller has a request under this name already, or the request is too
                large.
        """
        is_stage = request.until == "stage"
        key = run_keys.request_key(self.read_user_id(), stem, is_stage=is_stage)
        where = self.config.url(key)
        limit = run_keys.MAX_REQUEST_BYTES
        if len(msgspec.json.encode(request)) > limit - 1024:  # spaces and the schema are added
            raise InputError(
                f"it is larger than {limit // 1024} KiB", where=where, change="shorten it"
            )
        try:
            with name_people(self.environment, _find_sender_kind(key)):
                self.file.write(key, request)
        except LostRunError:
            change = "take another name (--run), or look how it stands: "
            change += build_tandem_command(f"runs show {request.run}", self.environment.name)
            raise InputError(
                "you have asked for this already", where=where, change=change
            ) from None
        return key

    def read_answer(self, key: str) -> RequestAnswer | None:
        """Return the runner's answer to the request at a key; None if there is none yet."""
        with name_people(self.environment, _find_sender_kind(key)):
            return self.file.read(run_keys.answer_key(key), RequestAnswer)

    def read_pod_logs(
        self, run: str, started_at: datetime, ended_at: datetime, jobs: Collection[str] | None
    ) -> list[LogLine]:
        """Return the last lines of the run's pods in CloudWatch; none if Container Insights is off.

        Args:
            run: its id.
            started_at, ended_at: of the steps in question.
            jobs: names of the only Jobs in question; None for all of the run.
        """
        group = names.container_log_group_name(self.environment, "application")
        mark = run_keys.mark_jobs(run)
        logs = create_client(self.environment, "logs", self.session)
        lines = deque[LogLine](maxlen=MAX_LOG_LINES)
        try:
            with name_people(self.environment, "engineer"):
                for event in iterate_rows(
                    logs,
                    "FilterLogEvents",
                    "events",
                    f"log group {group}",
                    logGroupName=group,
                    filterPattern=f'{{ $.kubernetes.pod_name = "*{mark}*" }}',
                    startTime=int((started_at - LOG_DELAY).timestamp() * 1000),
                    endTime=int((ended_at + LOG_DELAY).timestamp() * 1000),
                ):
                    line = _parse_event(event)
                    if line and mark in line.pod and _is_of_jobs(line.pod, jobs):
                        lines.append(line)
        except TandemError as fault:
            if error_code(fault.__cause__) not in ABSENT_CODES:
                raise
        return list(lines)

    def read_tails(self, run: str, jobs: Collection[str] | None) -> Iterator[LogLine]:
        """Yield the tails of the Jobs' logs that the runner kept, in the order of their names.

        Args:
            run: its id.
            jobs: names of the only Jobs in question; None for all of the run.
        """
        prefix = f"{run_keys.RUNS_PREFIX}{run}/logs/"
        with name_people(self.environment, "engineer"):
            for key, _, _ in self.file.list_keys(prefix):
                job = key.removeprefix(prefix).removesuffix(".txt")
                if jobs is not None and job not in jobs:
                    continue
                for text in self.file.read_bytes(key).decode(errors="replace").splitlines():
                    yield LogLine(None, job, text)


def _is_of_jobs(pod: str, jobs: Collection[str] | None) -> bool:
    """Tell whether a pod is of one of the Jobs; Kubernetes adds a dash and five characters."""
    return jobs is None or pod.rpartition("-")[0] in jobs


def _find_sender_kind(key: str) -> PeopleKind:
    """Return the first kind of people that may write a request at a key."""
    return "engineer" if key.startswith(run_keys.STAGE_REQUESTS_PREFIX) else "operator"


def _parse_event(event: dict[str, Any]) -> LogLine | None:
    """Return a line of Container Insights; None if the event is none."""
    try:
        row = msgspec.json.decode(event["message"], type=dict[str, Any])
        at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
        return LogLine(at, str(row["kubernetes"]["pod_name"]), str(row["log"]).rstrip())
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
