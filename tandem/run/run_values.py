"""Stored values of a run in the bucket: request, answer, run, step, beat; and its Jobs' tasks.

Invariant: frozen, typed, and refused at the border if a key is unknown, a type is wrong or the
schema is another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from tandem.bench.records.json_file import require_schema
from tandem.bench.records.manifest import ManifestArm
from tandem.errors import InputError
from tandem.judge.sweep_record import PairEvidence, PairVerdict
from tandem.run.run_keys import ROUND_STEP, pair_step, strip_pair

SCHEMA = 1
ROUND_SLACK = 1.25  # a round may take so much longer than the longest before it
SizeName = Literal["quick", "default", "full"]
RequestKind = Literal["run", "resume", "cancel"]
StepState = Literal["running", "done", "skipped", "failed"]
RunState = Literal[
    "running", "waiting", "staged", "compiled", "judged", "void", "ended", "cancelled", "failed"
]
LastStep = Literal["stage", "compile", "judge"]


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Request of a person to the runner; the key alone says who sends it, never the body.

    Args:
        kind: `run` starts a run, `resume` continues a waiting one, `cancel` ends one.
        run: its id.
        environment, experiment: as declared.
        spec_digest: of the person's files, by `tandem.declarations.spec_digest`; empty for a
            cancel.
        at: when it was written, ISO 8601 in UTC.
        until: the last step of the run; `judge` is a whole run, and only `stage` has no nodes.
        hours: of the lease; 0 for a run that only stages.
        starts: how often each server is started over all rounds.
        size: of a round.
        rounds: rounds without control rounds.
        control_rounds: rounds in which the baseline is also its own variant.
        seed: of the plan.
        llmperf: whether the post's own generator runs after the rounds.
        budget_usd: most USD for the nodes of a sweep; then the sweep decides by its results so far.
            0 is no budget.
        accept_unarmed: whether a path that would not stop the fleet is accepted.
    """

    schema: Literal[1] = 1
    kind: RequestKind
    run: str
    environment: str
    experiment: str
    spec_digest: str = ""
    at: str
    until: LastStep = "judge"
    hours: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 0
    starts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    size: SizeName = "default"
    rounds: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 4
    control_rounds: Annotated[int, msgspec.Meta(ge=0, le=100)] = 1
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    llmperf: bool = False
    budget_usd: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0
    accept_unarmed: bool = False

    @property
    def measures(self) -> bool:
        """Whether the run measures; one that ends earlier needs neither servers nor prompts."""
        return self.until == "judge"


class RequestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The runner's answer to one request; a refusal has its reason and what to change."""

    schema: Literal[1] = 1
    is_accepted: bool
    at: str
    reason: str = ""
    change: str = ""


class LeaseSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One lease of a run.

    Args:
        name: of the lease.
        nodes: at most so many.
        deadline: of the lease, ISO 8601 as all moments here.
        raised_at: when the lease was written, before its first node.
        empty_at: when its last node ended, by EC2's time where that can be read.
        doubt: why its node time is the runner's own count, in one sentence; empty if it is AWS's.
    """

    name: str
    nodes: int = 1
    deadline: str
    raised_at: str
    empty_at: str | None = None
    doubt: str = ""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Args:
        who: `aws:userid` of the person who requested the run.
        request: as accepted.
        state: of the run; a `waiting` one has no fleet and goes on with a resume.
        reason: why the run ended, waits or is void, in one sentence; what the bucket has once it is
            staged or compiled; empty while all is well.
        verdict: the verdict's sentence, once there is one.
        started_at, ended_at: ISO 8601 in UTC.
        leases: in their order.
        resumes: how often the run went on after it had waited.
        rounds_total: rounds of the plan, control rounds included.
        node_s, used_node_s: paid seconds of nodes by EC2's times (tandem/run/node_time.py), and
            those in which a compile or a measurement ran.
        cancelled_by: `aws:userid` of the person who cancelled the run.
        writer: the runner that wrote this record, by its pod's uid.
    """

    schema: Literal[1] = 1
    run: str
    environment: str
    experiment: str
    who: str
    request: RunRequest
    state: RunState = "running"
    reason: str = ""
    verdict: str = ""
    started_at: str
    ended_at: str | None = None
    leases: tuple[LeaseSpan, ...] = ()
    resumes: int = 0
    rounds_total: int = 0
    node_s: float = 0
    used_node_s: float = 0
    cancelled_by: str = ""
    writer: str = ""

    @property
    def has_lease(self) -> bool:
        """Whether a lease of the run may have nodes."""
        return bool(self.leases) and self.leases[-1].empty_at is None


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a run, as the journal has it.

    Args:
        step: its name; a step that each lease takes anew has the lease's number behind a dot, from
            the second on.
        attempts: Jobs or tries that the step began.
        note: the state of the step, or why it ended so, in one sentence.
        result: values that later steps need.
        jobs: names of the Jobs that the step ran.
        writer: the runner that wrote this record, by its pod's uid.
    """

    schema: Literal[1] = 1
    run: str
    step: str
    state: StepState
    started_at: str
    ended_at: str | None = None
    attempts: int = 0
    note: str = ""
    result: dict[str, Any] = {}
    jobs: tuple[str, ...] = ()
    writer: str = ""


def select_pair(steps: Mapping[str, StepRecord], pair: int) -> dict[str, StepRecord]:
    """Return the steps of a pair by their names, without the pair in the names."""
    prefix = pair_step(pair, "")
    own = [step for name, step in steps.items() if name.startswith(prefix)]
    return {
        strip_pair(step.step): msgspec.structs.replace(step, step=strip_pair(step.step))
        for step in own
    }


def list_confirmed(steps: Iterable[StepRecord]) -> tuple[tuple[int, int], ...]:
    """Return round and attempt of every round whose records count, in their order."""
    return tuple(
        sorted((int(result["number"]), int(result["attempt"])) for result in _iterate_rounds(steps))
    )


def estimate_round_s(steps: Iterable[StepRecord]) -> float:
    """Return the longest time of a round, by the longest that was measured; 0 if none was."""
    return ROUND_SLACK * max(
        (float(result.get("used_s", 0)) for result in _iterate_rounds(steps)), default=0
    )


def _iterate_rounds(steps: Iterable[StepRecord]) -> Iterator[dict[str, Any]]:
    """Yield the result of every round that is done."""
    return (
        step.result for step in steps if step.step.startswith(ROUND_STEP) and step.state == "done"
    )


def count_paid_s(steps: Iterable[StepRecord], leases: Iterable[LeaseSpan]) -> float:
    """Return the seconds with nodes in ended steps, each second once; open ones count nothing."""
    ended_steps = [(step.started_at, step.ended_at) for step in steps if step.ended_at]
    spans = []
    for lease in leases:
        for started_at, ended_at in ended_steps:
            last_moment = min(ended_at, lease.empty_at or ended_at)
            spans.append((max(started_at, lease.raised_at), last_moment))
    paid_s = 0.0
    reached = ""
    for first, last in sorted(spans):
        start = max(first, reached)
        if start < last:
            paid_s += (datetime.fromisoformat(last) - datetime.fromisoformat(start)).total_seconds()
            reached = last
    return paid_s


class RunnerBeat(msgspec.Struct, frozen=True, kw_only=True):
    """`runner.json`, written every minute: the id and the work of the live runner.

    Args:
        spec_digests: experiment -> digest of the specs of this runner.
    """

    schema: Literal[1] = 1
    at: str
    writer: str
    run: str | None = None
    step: str = ""
    note: str = ""
    spec_digests: dict[str, str] = {}


class LeaseBeat(msgspec.Struct, frozen=True, kw_only=True):
    """The heartbeat of a lease, read by the guard: the last time its run was at work."""

    schema: Literal[1] = 1
    at: str


class BenchTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Task of a measure or judge Job, in the variable TANDEM_TASK; they read no declared file.

    Args:
        run, environment, experiment, account, region, bucket: names.
        number, attempt: the round to measure, and the number of its attempt; the judge ignores
            both.
        confirmed: round and attempt of every round whose records count, in their order.
        arms: the baseline first, each with its placement as it stands now.
        suites: of the experiment; one of a file has the fields of a SuiteFile.
        most_tokens: the longest answer that its servers give.
        size, rounds, control_rounds, seed: as requested.
        schedule, goodput, concurrency: of the experiment.
        instance_type: of the environment.
        usd_per_hour: of all nodes of the run.
        claims: of the experiment; the judge answers the post's.
        drafts: the draft of each variant that has one.
        show_prompts: whether the verdict shows texts of the experiment's own suites.
        llmperf_job: the Job whose records answer the post's claims too; empty for none.
        quality_job: the Job whose answers the judge compares; empty for none.
        quality_fault: why the tasks of the experiment have no answers; empty if they have, or there
            are no tasks.
    """

    schema: Literal[1] = 1
    run: str
    environment: str
    experiment: str
    account: str
    region: str
    bucket: str
    number: int = 0
    attempt: int = 1
    confirmed: tuple[tuple[int, int], ...] = ()
    arms: tuple[ManifestArm, ...]
    suites: tuple[str | dict[str, Any], ...]
    most_tokens: int | None = None
    size: SizeName
    rounds: int
    control_rounds: int
    seed: int
    schedule: Literal["interleaved", "simultaneous"]
    goodput: dict[str, float] | None = None
    concurrency: tuple[int, ...] = ()
    instance_type: str
    usd_per_hour: float | None = None
    claims: Literal["none", "post"] = "none"
    drafts: dict[str, str] = {}
    show_prompts: bool = False
    llmperf_job: str = ""
    quality_job: str = ""
    quality_fault: str = ""


TASK_VARIABLE = "TANDEM_TASK"
# of a measure Job whose servers do not answer; 0 to 4 are the codes of every command
SILENT_EXIT_CODE = 5


class RoundResult(msgspec.Struct, frozen=True, kw_only=True):
    """`round.json` of a measured round, stored after its other files; buckets may be shared."""

    schema: Literal[1] = 1
    environment: str = ""
    number: int
    attempt: int
    requests: int
    failed: int
    duration_s: float
    is_simulated: bool


class JudgmentResult(msgspec.Struct, frozen=True, kw_only=True):
    """`judgment.json` of a judged run, stored after the verdict and the report.

    Args:
        sentence: the verdict in one sentence.
        is_void: whether nothing may be concluded.
        exit_code: as that of `tandem bench report`.
        notes: e.g. data that was not published.
        pair_verdict: of a run of two arms.
        evidence: of a run of two arms; None if the run is void or lacks a figure.
    """

    schema: Literal[1] = 1
    sentence: str
    is_void: bool
    exit_code: int
    notes: tuple[str, ...] = ()
    pair_verdict: PairVerdict | None = None
    evidence: PairEvidence | None = None


def parse_request(body: bytes, where: str) -> RunRequest:
    """Read a request.

    Raises:
        InputError: the body is no request of ours; the sentence names the field, or both schemas.
    """
    change = "write it with `tandem run`, of the same version as the runner"
    require_schema(body, SCHEMA, label="the request", where=where, change=change)
    try:
        return msgspec.json.decode(body, type=RunRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a request: {error}", where=where, change=change) from error
