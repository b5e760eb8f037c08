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

from tandem.aws.faults import ANSWER_CODES
from tandem.errors import InputError, TandemError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_start import build_stop_schedule
from tandem.guard.lease import Lease, lease_key
from tandem.guard.observe import FleetState, observe_fleet
from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.call_policy import PASS_ROLE_ACTION, PROOF_NAME_PREFIX
from tandem.ops.doctor.check_result import (
    EXIT_EXTERNAL,
    CheckFinding,
    fail_finding,
    ok_finding,
    unknown_finding,
)
from tandem.ops.doctor.cluster import NOT_FOUND_CODES
from tandem.ops.faults import AccessDeniedError, error_code
from tandem.ops.guard_config import build_guard_config
from tandem.shell_command import build_cdk_command, build_tandem_command, quote_command
from tandem.spec.environment import Environment

START_DELAY_S = 60.0  # from now to the moment for which it is set
# Scheduler calls within 60 s of that moment, tries again for as long, and its letter takes a moment to be seen
RESULT_TIMEOUT_S = 180.0
POLL_INTERVAL_S = 5.0
# the least that Scheduler takes as the age; a lease's one-shot stop is tried for an hour
RETRY_POLICY = {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 2}
VISIBILITY_TIMEOUT_S = 20  # other letters, while ours is searched among them
MAX_LETTERS = 100
NO_QUEUE_CODES = {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"}
RETRYABLE_CODES = {
    "ResourceInUseException",
    "ServerException",
    "ServiceUnavailableException",
    "InternalServerException",
}
READY_STATUSES = {"ACTIVE", "DEGRADED"}
PROOF_CHECK = "prove-stop"
FALLBACK_NOTE = "until it is proven, the reaper and the budget end a lease, not its one-shot stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What Scheduler put into the queue when it gave our call up.

    Args:
        code, message: of EKS, of IAM or of Scheduler itself.
        retries: how often it tried again.
    """

    code: str
    message: str
    retries: str


def prove_one_shot_stop(account: AllowlistedAccount, *, log: Callable[[str], None]) -> CheckFinding:
    """Fire the one-shot stop of an environment once.

    Args:
        account: that may make DOCTOR_CALLS and PROOF_CALLS.
        log: told what is waited for.

    Raises:
        InputError: somebody has the fleet, or may have it, or there is none; nothing was made.
        ExternalError: AWS could not be asked; nothing was made.
    """
    initial_fleet = _require_idle_fleet(account)
    known_update_ids = _list_update_ids(account)
    fire_time = (_current_time() + timedelta(seconds=START_DELAY_S)).replace(microsecond=0)
    proof = _StopProof(account, fire_time=fire_time, initial_fleet=initial_fleet, known_update_ids=known_update_ids)
    try:
        finding = proof.create_schedule() or proof.watch(log)
    finally:
        removal_problem = proof.delete_schedule()
    if removal_problem and finding.level == "ok":
        return unknown_finding(f"{finding.message}; but {removal_problem}", "delete it", quote_command(
            "aws", "scheduler", "delete-schedule", "--name", proof.name, "--group-name", proof.config.schedule_group,
            "--region", proof.config.region,
        ))  # fmt: skip
    return finding


def _current_time() -> datetime:
    return datetime.now(tz=UTC)


def _require_idle_fleet(account: AllowlistedAccount) -> FleetState:
    """Look at the fleet, and return the look where nobody has it or could have it."""
    environment, config = account.environment, build_guard_config(account.environment)
    clients = {service: account.client(service) for service in ("s3", "eks", "ec2")}
    fleet = observe_fleet(
        AwsClients(**clients, sns=None, cloudwatch=None, scheduler=None, autoscaling=None),
        config,
        _current_time(),
    )
    fleet.require_known(
        *fleet.unknown,
        where=environment.name,
        consequence="nothing is fired",
        change="see tandem doctor, then try again",
    )
    if not fleet.has_node_group:
        raise InputError(
            "it is not there, so there is nothing to send a stop to",
            where=config.node_group_description,
            change="deploy Fleet first; a proof needs no instance and costs nothing",
        )
    if not fleet.has_owner_tag:
        raise InputError(
            "it is another's, and is left alone", where=config.node_group_description, change="see tandem doctor"
        )
    _require_no_work(environment, config, fleet)
    response = account.ask("eks", "DescribeNodegroup", config.node_group_description, **_node_group_parameters(config))
    status = (response or {})["nodegroup"]["status"]
    if status not in READY_STATUSES:
        raise InputError(
            f"it is {status}, and EKS takes no other update meanwhile",
            where=config.node_group_description,
            change="wait until it is ACTIVE, then try again",
        )
    return fleet


def _require_no_work(environment: Environment, config: GuardConfig, fleet: FleetState) -> None:
    """Refuse where the stop that is fired could end somebody's work.

    A fence keeps nobody from a proof: behind it nobody may raise. An object that is not understood may be a lease.
    """
    status_command = build_tandem_command("status", environment.name)
    stop_command = build_tandem_command("stop", environment.name)
    if fleet.live_lease is not None:
        raise InputError(
            f"run {fleet.live_lease.run} of {fleet.live_lease.who} has the fleet until "
            f"{fleet.live_lease.deadline:%Y-%m-%dT%H:%M:%SZ}",
            where=config.url(lease_key(fleet.live_lease.run)),
            change="prove it before a start, or after the stop",
        )
    if fleet.desired_size or fleet.min_size or fleet.instances:
        raise InputError(
            f"desired {fleet.desired_size}, {len(fleet.instances)} instances: a proof is fired at a fleet at 0 alone",
            where=config.node_group_description, change=f"{status_command}; where nobody needs it, {stop_command}",
        )  # fmt: skip
    if fleet.faults and not fleet.is_fenced:
        raise InputError("; ".join(fleet.faults), where=environment.name, change=f"{status_command} says what to do")


def _node_group_parameters(config: GuardConfig) -> dict[str, str]:
    return {"clusterName": config.cluster, "nodegroupName": config.node_group}


def _list_update_ids(account: AllowlistedAccount) -> frozenset[str]:
    """Return the ids of the node group's updates."""
    config = build_guard_config(account.environment)
    return frozenset(
        account.list_rows(
            "eks",
            "ListUpdates",
            "updateIds",
            config.node_group_description,
            name=config.cluster,
            nodegroupName=config.node_group,
        )
    )


class _StopProof:
    """One schedule, and what came of it."""

    def __init__(
        self,
        account: AllowlistedAccount,
        *,
        fire_time: datetime,
        initial_fleet: FleetState,
        known_update_ids: frozenset[str],
    ) -> None:
        self.account, self.fire_time, self.initial_fleet, self.known_update_ids = (
            account,
            fire_time,
            initial_fleet,
            known_update_ids,
        )
        self.config = build_guard_config(account.environment)
        self.name = f"{PROOF_NAME_PREFIX}{fire_time:%Y%m%d%H%M%S}-{secrets.token_hex(3)}"
        self.where = f"schedule {self.config.schedule_group}/{self.name}"
        self.last_problem = ""  # why the last look saw nothing

    # the schedule

    def create_schedule(self) -> CheckFinding | None:
        """Create the schedule; return why Scheduler does not take it."""
        lease = Lease(
            run=PROOF_CHECK,
            who="tandem doctor",
            experiment=None,
            node_label={},
            created=self.fire_time,
            deadline=self.fire_time,
            beats=False,
            schedule=self.name,
            nodes=0,
        )
        schedule_request = build_stop_schedule(self.config, lease)
        schedule_request["Target"] = {**schedule_request["Target"], "RetryPolicy": RETRY_POLICY}
        schedule_request["Description"] = f"proves that the one-shot stop of {self.config.environment} reaches EKS"
        try:
            self.account.ask("scheduler", "CreateSchedule", self.where, **schedule_request)
        except AccessDeniedError as error:
            role_advice = f"add {PASS_ROLE_ACTION} on {self.config.scheduler_role_arn} to the policy of this identity"
            return unknown_finding(error.problem, role_advice if PASS_ROLE_ACTION in error.problem else error.change)
        except TandemError as error:
            return self._judge_schedule_error(error)
        return None

    def _judge_schedule_error(self, error: TandemError) -> CheckFinding:
        code, command = error_code(error.__cause__), self._build_deploy_command()
        if code == "ResourceNotFoundException":
            return fail_finding(f"there is no group {self.config.schedule_group} of schedules: no start can arm a stop",
                        "deploy Guard", command, code=EXIT_EXTERNAL)  # fmt: skip
        if code != "ValidationException":
            return unknown_finding(error.problem, error.change)
        if "role" in error.problem:
            return fail_finding(f"Scheduler may not have the role {self.config.scheduler_role_arn}: {error.problem}",
                        "deploy Guard, which makes it", command, code=EXIT_EXTERNAL)  # fmt: skip
        return fail_finding(
            f"Scheduler does not take the one-shot stop: {error.problem}",
            f"{FALLBACK_NOTE}; no start goes through: correct the payload in tandem/guard/fleet_start.py",
            code=EXIT_EXTERNAL,
        )

    def _build_deploy_command(self) -> str:
        return build_cdk_command("deploy", self.config.environment, "Guard")

    def delete_schedule(self) -> str:
        """Delete the schedule, whether it was made or not; return why it may still be there."""
        try:
            self.account.ask(
                "scheduler", "DeleteSchedule", self.where, absent=NOT_FOUND_CODES, Name=self.name,
                GroupName=self.config.schedule_group,
            )  # fmt: skip
        except TandemError as error:
            if self._is_schedule_gone():
                return ""
            return f"{self.where} could not be deleted ({error.problem}); it fires once, sets 0 and deletes itself"
        return ""

    def _is_schedule_gone(self) -> bool:
        try:
            return self.account.ask(
                "scheduler", "GetSchedule", self.where, absent=NOT_FOUND_CODES, Name=self.name,
                GroupName=self.config.schedule_group,
            ) is None  # fmt: skip
        except TandemError:
            return False

    # what came of it

    def watch(self, log: Callable[[str], None]) -> CheckFinding:
        """Wait until EKS has the update or the queue has the letter, or for as long as either may take."""
        log(f"{self.name} fires at {self.fire_time:%H:%M:%S} UTC or within a minute; waiting")
        end_s = time.monotonic() + START_DELAY_S + RESULT_TIMEOUT_S
        while True:
            try:
                finding = self._poll_result()
            except AccessDeniedError as error:
                return unknown_finding(error.problem, error.change)
            except TandemError as error:
                finding, self.last_problem = None, error.problem
            if finding is not None:
                return finding
            if time.monotonic() >= end_s:
                return self._report_no_result()
            time.sleep(POLL_INTERVAL_S)

    def _poll_result(self) -> CheckFinding | None:
        letter = self._take_letter()
        if letter is not None:
            return self._judge_letter(letter)
        update = next(self._list_new_updates(), None)
        if update is None or update["status"] == "InProgress":
            self.last_problem = f"EKS has taken update {update['id']} and not done it yet" if update else ""
            return None
        if update["status"] != "Successful":
            why = "; ".join(
                f"{error.get('errorCode')}: {error.get('errorMessage')}" for error in update.get("errors", [])
            )
            return fail_finding(f"EKS took the call and ended update {update['id']} as {update['status']} ({why})",
                        f"see the node group's health; {FALLBACK_NOTE}", code=EXIT_EXTERNAL)  # fmt: skip
        if self._has_new_stop():
            return unknown_finding("a stop came in the same minute: whose update it was cannot be told", "try again")
        at = f"{update['createdAt']:%Y-%m-%dT%H:%M:%SZ}"
        return ok_finding(
            f"Scheduler called, and EKS set {self.config.node_group} to 0 at {at} (its update {update['id']})"
        )

    def _list_new_updates(self) -> Iterator[dict[str, Any]]:
        """Yield updates to 0 that are no older than the moment for which the schedule was set."""
        for update_id in sorted(_list_update_ids(self.account) - self.known_update_ids):
            response = self.account.ask(
                "eks", "DescribeUpdate", self.config.node_group_description, name=self.config.cluster,
                nodegroupName=self.config.node_group, updateId=update_id,
            )  # fmt: skip
            update: dict[str, Any] = (response or {})["update"]
            sizes = {parameter["type"]: parameter["value"] for parameter in update.get("params", [])}
            is_to_zero = sizes.get("DesiredSize") == "0" and sizes.get("MinSize", "0") == "0"
            if update["type"] == "ConfigUpdate" and is_to_zero and update["createdAt"] >= self.fire_time:
                yield update

    def _has_new_stop(self) -> bool:
        clients = {service: self.account.client(service) for service in ("s3", "eks", "ec2")}
        aws_clients = AwsClients(**clients, sns=None, cloudwatch=None, scheduler=None, autoscaling=None)
        final_fleet = observe_fleet(aws_clients, self.config, _current_time())
        initial_fence, final_fence = (
            (fleet.fence.state != "lifted", fleet.fence.who, fleet.fence.at) if fleet.fence else None
            for fleet in (self.initial_fleet, final_fleet)
        )
        return initial_fence != final_fence or bool(final_fleet.unknown)

    def _take_letter(self) -> DeadLetter | None:
        """Search the queue for the letter of this schedule, and take it out: it has been read then."""
        queue = self.config.dead_letter_arn.rpartition(":")[2]
        response = self.account.ask("sqs", "GetQueueUrl", f"queue {queue}", absent=NO_QUEUE_CODES, QueueName=queue)
        if response is None:
            self.last_problem = f"there is no queue {queue}"
            return None
        for message in self._receive_messages(response["QueueUrl"], queue):
            attributes = {
                name: attribute.get("StringValue", "")
                for name, attribute in message.get("MessageAttributes", {}).items()
            }
            if attributes.get("SCHEDULE_ARN", "").endswith(f"/{self.name}"):
                self.account.ask("sqs", "DeleteMessage", f"queue {queue}", QueueUrl=response["QueueUrl"],
                                 ReceiptHandle=message["ReceiptHandle"])  # fmt: skip
                return DeadLetter(code=attributes.get("ERROR_CODE", "?"), message=attributes.get("ERROR_MESSAGE", ""),
                              retries=attributes.get("RETRY_ATTEMPTS", "?"))  # fmt: skip
        return None

    def _receive_messages(self, url: str, queue: str) -> Iterator[dict[str, Any]]:
        message_count = 0
        while message_count < MAX_LETTERS:
            response = self.account.ask(
                "sqs", "ReceiveMessage", f"queue {queue}", QueueUrl=url, MaxNumberOfMessages=10,
                VisibilityTimeout=VISIBILITY_TIMEOUT_S, MessageAttributeNames=["All"],
            )  # fmt: skip
            messages = (response or {}).get("Messages", [])
            if not messages:
                return
            message_count += len(messages)
            yield from messages

    def _judge_letter(self, letter: DeadLetter) -> CheckFinding:
        message = f"Scheduler gave the call up after {letter.retries} retries: {letter.code}: {letter.message}"
        if letter.code in ANSWER_CODES["busy"] | RETRYABLE_CODES:
            return unknown_finding(f"{message}; that says nothing of the payload", "try again in a few minutes")
        if "AccessDenied" in letter.code or "not authorized" in letter.message:
            return fail_finding(
                message,
                "deploy Guard, which gives the role its right; an SCP or a boundary may deny it too",
                self._build_deploy_command(),
                code=EXIT_EXTERNAL,
            )
        return fail_finding(
            message,
            f"{FALLBACK_NOTE}; correct the payload in tandem/guard/fleet_start.py, and keep these words",
            code=EXIT_EXTERNAL,
        )

    def _report_no_result(self) -> CheckFinding:
        schedule_text = (
            "it is gone, as after it fired, or a start took it away: each start deletes the schedules of ended runs"
            if self._is_schedule_gone() else "it is still there, or cannot be seen"
        )  # fmt: skip
        problem_text = f" ({self.last_problem})" if self.last_problem else ""
        return unknown_finding(
            f"neither an update to 0 nor a letter came within {RESULT_TIMEOUT_S:.0f} s of "
            f"{self.fire_time:%H:%M:%S} UTC{problem_text}; {schedule_text}",
            "see tandem status, then try again",
        )
