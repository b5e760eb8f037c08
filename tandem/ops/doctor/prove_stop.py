"""The proof of the one-shot stop: fire it once, at a fleet that is at 0, and see that EKS took the call.

Nobody has recorded how EventBridge Scheduler's universal target spells the members of EKS's request, so the very
payload of a start is sent once and EKS is asked for the update that came of it. EKS lists a node group's updates; the
queue of what Scheduler gave up says the contrary. A schedule that is gone says neither.
Invariant: nothing is raised: the only size that is sent is 0, and only to a node group at 0, ours, without an instance
and without a lease. Whatever ends the proof, its schedule is deleted, or fires within minutes and deletes itself.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tandem import stop
from tandem.ops.doctor.account import Account
from tandem.ops.doctor.calls import PASS_ROLE, PROOF
from tandem.ops.doctor.cluster import GONE
from tandem.ops.doctor.line import WORLD, Finding, fail, ok, unknown
from tandem.ops.fault import THROTTLED, DeniedError, OpsError, RefusedError, code_of
from tandem.ops.guarded import guarded
from tandem.spec.environment import Environment
from tandem.start import schedule

AHEAD_S = 60.0  # from now to the moment for which it is set
# Scheduler calls within 60 s of that moment, tries again for as long, and its letter takes a moment to be seen
WAIT_S = 180.0
EVERY_S = 5.0
# the least that Scheduler takes as the age; a lease's one-shot stop is tried for an hour
RETRY = {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 2}
HIDDEN_S = 20  # other letters, while ours is searched among them
MOST_LETTERS = 100
NO_QUEUE = {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"}
BUSY = {"ResourceInUseException", "ServerException", "ServiceUnavailableException", "InternalServerException"}
ACTIVE = {"ACTIVE", "DEGRADED"}
CHECK = "prove-stop"
ANYWAY = "until it is proven, the reaper and the budget end a lease, not its one-shot stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What Scheduler put into the queue when it gave our call up.

    Args:
        code, message: of EKS, of IAM or of Scheduler itself.
        retries: how often it tried again.
    """

    code: str
    message: str
    retries: str


def prove(account: Account, *, say: Callable[[str], None]) -> Finding:
    """Fire the one-shot stop of an environment once.

    Args:
        account: that may make CALLS and PROOF_CALLS.
        say: told what is waited for.

    Raises:
        RefusedError: somebody has the fleet, or may have it, or there is none; nothing was made.
        OpsError: AWS could not be asked; nothing was made.
    """
    before = _quiet(account)
    known = _updates(account)
    at = (_now() + timedelta(seconds=AHEAD_S)).replace(microsecond=0)
    proof = _Proof(account, at=at, before=before, known=known)
    try:
        found = proof.arm() or proof.watched(say)
    finally:
        left = proof.removed()
    if left and found.level == "ok":
        return unknown(f"{found.said}; but {left}", f"aws scheduler delete-schedule --name {proof.name} --group-name "
                       f"{proof.limits.schedule_group} --region {proof.limits.region}")  # fmt: skip
    return found


def _now() -> datetime:
    return datetime.now(tz=UTC)


def _quiet(account: Account) -> stop.Seen:
    """Look at the fleet, and return the look where nobody has it or could have it."""
    environment, limits = account.environment, guarded(account.environment)
    clients = {service: account.client(service) for service in ("s3", "eks", "ec2")}
    seen = stop.look(
        stop.Clients(**clients, sns=None, cloudwatch=None, scheduler=None, autoscaling=None), limits, _now()
    )  # fmt: skip
    for source, why in seen.unknown.items():
        raise OpsError(f"{source} unknown ({why}), so nothing is fired", where=environment.name,
                       change="see tandem doctor, then try again")  # fmt: skip
    if not seen.present:
        raise RefusedError("it is not there, so there is nothing to send a stop to", where=limits.group,
                           change="deploy Fleet first; a proof needs no instance and costs nothing")  # fmt: skip
    if not seen.owned:
        raise RefusedError("it is another's, and is left alone", where=limits.group, change="see tandem doctor")
    _nobodys(environment, limits, seen)
    found = account.ask("eks", "DescribeNodegroup", limits.group, **_group(limits))
    status = (found or {})["nodegroup"]["status"]
    if status not in ACTIVE:
        raise RefusedError(f"it is {status}, and EKS takes no other update meanwhile", where=limits.group,
                           change="wait until it is ACTIVE, then try again")  # fmt: skip
    return seen


def _nobodys(environment: Environment, limits: stop.Guarded, seen: stop.Seen) -> None:
    """Refuse where the stop that is fired could end somebody's work.

    A fence keeps nobody from a proof: behind it nobody may raise. An object that is not understood may be a lease.
    """
    status = f"tandem status --env {environment.name}"
    if seen.live is not None:
        raise RefusedError(
            f"run {seen.live.run} of {seen.live.who} has the fleet until {seen.live.deadline:%Y-%m-%dT%H:%M:%SZ}",
            where=limits.url(stop.lease_key(seen.live.run)), change="prove it before a start, or after the stop",
        )  # fmt: skip
    if seen.desired or seen.minimum or seen.instances:
        raise RefusedError(
            f"desired {seen.desired}, {len(seen.instances)} instances: a proof is fired at a fleet at 0 alone",
            where=limits.group, change=f"{status}; where nobody needs it, tandem stop --env {environment.name}",
        )  # fmt: skip
    if seen.faults and not seen.fenced:
        raise RefusedError("; ".join(seen.faults), where=environment.name, change=f"{status} says what to do")


def _group(limits: stop.Guarded) -> dict[str, str]:
    return {"clusterName": limits.cluster, "nodegroupName": limits.node_group}


def _updates(account: Account) -> frozenset[str]:
    """Return the ids of the node group's updates."""
    limits = guarded(account.environment)
    return frozenset(account.every(
        "eks", "ListUpdates", "updateIds", limits.group, name=limits.cluster, nodegroupName=limits.node_group
    ))  # fmt: skip


class _Proof:
    """One schedule, and what came of it."""

    def __init__(self, account: Account, *, at: datetime, before: stop.Seen, known: frozenset[str]) -> None:
        self.account, self.at, self.before, self.known = account, at, before, known
        self.limits = guarded(account.environment)
        self.name = f"{PROOF}{at:%Y%m%d%H%M%S}-{secrets.token_hex(3)}"
        self.where = f"schedule {self.limits.schedule_group}/{self.name}"
        self.missed = ""  # why the last look saw nothing

    # the schedule

    def arm(self) -> Finding | None:
        """Create the schedule; return why Scheduler does not take it."""
        lease = stop.Lease(
            run=CHECK, who="tandem doctor", experiment=None, node_label={}, created=self.at, deadline=self.at,
            beats=False, schedule=self.name, nodes=0,
        )  # fmt: skip
        wanted = schedule(self.limits, lease)
        wanted["Target"] = {**wanted["Target"], "RetryPolicy": RETRY}
        wanted["Description"] = f"proves that the one-shot stop of {self.limits.environment} reaches EKS"
        try:
            self.account.ask("scheduler", "CreateSchedule", self.where, **wanted)
        except DeniedError as error:
            passes = f"add {PASS_ROLE} on {self.limits.scheduler_role_arn} to the policy of this identity"
            return unknown(error.problem, passes if PASS_ROLE in error.problem else error.change)
        except OpsError as error:
            return self._not_taken(error)
        return None

    def _not_taken(self, error: OpsError) -> Finding:
        code, deploy = code_of(error.__cause__), self._deploy()
        if code == "ResourceNotFoundException":
            return fail(f"there is no group {self.limits.schedule_group} of schedules: no start can arm a stop",
                        "deploy Guard", deploy, code=WORLD)  # fmt: skip
        if code != "ValidationException":
            return unknown(error.problem, error.change)
        if "role" in error.problem:
            return fail(f"Scheduler may not have the role {self.limits.scheduler_role_arn}: {error.problem}",
                        "deploy Guard, which makes it", deploy, code=WORLD)  # fmt: skip
        return fail(f"Scheduler does not take the one-shot stop: {error.problem}",
                    f"{ANYWAY}; no start goes through: correct the payload in tandem/start.py", code=WORLD)  # fmt: skip

    def _deploy(self) -> str:
        return f"npx cdk deploy '{self.limits.environment}/Guard' -c env={self.limits.environment}"

    def removed(self) -> str:
        """Delete the schedule, whether it was made or not; return why it may still be there."""
        try:
            self.account.ask(
                "scheduler", "DeleteSchedule", self.where, absent=GONE, Name=self.name,
                GroupName=self.limits.schedule_group,
            )  # fmt: skip
        except OpsError as error:
            if self._gone():
                return ""
            return f"{self.where} could not be deleted ({error.problem}); it fires once, sets 0 and deletes itself"
        return ""

    def _gone(self) -> bool:
        try:
            return self.account.ask(
                "scheduler", "GetSchedule", self.where, absent=GONE, Name=self.name,
                GroupName=self.limits.schedule_group,
            ) is None  # fmt: skip
        except OpsError:
            return False

    # what came of it

    def watched(self, say: Callable[[str], None]) -> Finding:
        """Wait until EKS has the update or the queue has the letter, or for as long as either may take."""
        say(f"{self.name} fires at {self.at:%H:%M:%S} UTC or within a minute; waiting")
        end = time.monotonic() + AHEAD_S + WAIT_S
        while True:
            try:
                found = self._came()
            except DeniedError as error:
                return unknown(error.problem, error.change)
            except OpsError as error:
                found, self.missed = None, error.problem
            if found is not None:
                return found
            if time.monotonic() >= end:
                return self._nothing_came()
            time.sleep(EVERY_S)

    def _came(self) -> Finding | None:
        letter = self._letter()
        if letter is not None:
            return self._refused(letter)
        update = next(self._fresh(), None)
        if update is None or update["status"] == "InProgress":
            self.missed = f"EKS has taken update {update['id']} and not done it yet" if update else ""
            return None
        if update["status"] != "Successful":
            why = "; ".join(f"{one.get('errorCode')}: {one.get('errorMessage')}" for one in update.get("errors", []))
            return fail(f"EKS took the call and ended update {update['id']} as {update['status']} ({why})",
                        f"see the node group's health; {ANYWAY}", code=WORLD)  # fmt: skip
        if self._stopped_meanwhile():
            return unknown("a stop came in the same minute: whose update it was cannot be told", "try again")
        at = f"{update['createdAt']:%Y-%m-%dT%H:%M:%SZ}"
        return ok(f"Scheduler called, and EKS set {self.limits.node_group} to 0 at {at} (its update {update['id']})")

    def _fresh(self) -> Iterator[dict[str, Any]]:
        """Yield updates to 0 that are no older than the moment for which the schedule was set."""
        for identity in sorted(_updates(self.account) - self.known):
            found = self.account.ask(
                "eks", "DescribeUpdate", self.limits.group, name=self.limits.cluster,
                nodegroupName=self.limits.node_group, updateId=identity,
            )  # fmt: skip
            update: dict[str, Any] = (found or {})["update"]
            sizes = {one["type"]: one["value"] for one in update.get("params", [])}
            to_zero = sizes.get("DesiredSize") == "0" and sizes.get("MinSize", "0") == "0"
            if update["type"] == "ConfigUpdate" and to_zero and update["createdAt"] >= self.at:
                yield update

    def _stopped_meanwhile(self) -> bool:
        clients = {service: self.account.client(service) for service in ("s3", "eks", "ec2")}
        silent = {"sns": None, "cloudwatch": None, "scheduler": None, "autoscaling": None}
        after = stop.look(stop.Clients(**clients, **silent), self.limits, _now())
        one, other = (
            (seen.fence.state != "lifted", seen.fence.who, seen.fence.at) if seen.fence else None
            for seen in (self.before, after)
        )
        return one != other or bool(after.unknown)

    def _letter(self) -> Letter | None:
        """Search the queue for the letter of this schedule, and take it out: it has been read then."""
        queue = self.limits.dead_letter_arn.rpartition(":")[2]
        found = self.account.ask("sqs", "GetQueueUrl", f"queue {queue}", absent=NO_QUEUE, QueueName=queue)
        if found is None:
            self.missed = f"there is no queue {queue}"
            return None
        for one in self._letters(found["QueueUrl"], queue):
            said = {name: item.get("StringValue", "") for name, item in one.get("MessageAttributes", {}).items()}
            if said.get("SCHEDULE_ARN", "").endswith(f"/{self.name}"):
                self.account.ask("sqs", "DeleteMessage", f"queue {queue}", QueueUrl=found["QueueUrl"],
                                 ReceiptHandle=one["ReceiptHandle"])  # fmt: skip
                return Letter(code=said.get("ERROR_CODE", "?"), message=said.get("ERROR_MESSAGE", ""),
                              retries=said.get("RETRY_ATTEMPTS", "?"))  # fmt: skip
        return None

    def _letters(self, url: str, queue: str) -> Iterator[dict[str, Any]]:
        seen = 0
        while seen < MOST_LETTERS:
            found = self.account.ask(
                "sqs", "ReceiveMessage", f"queue {queue}", QueueUrl=url, MaxNumberOfMessages=10,
                VisibilityTimeout=HIDDEN_S, MessageAttributeNames=["All"],
            )  # fmt: skip
            letters = (found or {}).get("Messages", [])
            if not letters:
                return
            seen += len(letters)
            yield from letters

    def _refused(self, letter: Letter) -> Finding:
        said = f"Scheduler gave the call up after {letter.retries} retries: {letter.code}: {letter.message}"
        if letter.code in THROTTLED | BUSY:
            return unknown(f"{said}; that says nothing of the payload", "try again in a few minutes")
        if "AccessDenied" in letter.code or "not authorized" in letter.message:
            return fail(said, "deploy Guard, which gives the role its right; an SCP or a boundary may deny it too",
                        self._deploy(), code=WORLD)  # fmt: skip
        return fail(said, f"{ANYWAY}; correct the payload in tandem/start.py, and keep these words", code=WORLD)

    def _nothing_came(self) -> Finding:
        what = (
            "it is gone, as after it fired, or a start took it away: each start deletes the schedules of ended runs"
            if self._gone() else "it is still there, or cannot be seen"
        )  # fmt: skip
        missed = f" ({self.missed})" if self.missed else ""
        return unknown(
            f"neither an update to 0 nor a letter came within {WAIT_S:.0f} s of {self.at:%H:%M:%S} UTC{missed}; {what}",
            "see tandem status, then try again",
        )  # fmt: skip
