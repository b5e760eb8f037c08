"""The proof of the one-shot stop: fire it at a fleet of size 0; check that EKS took the call.

No source says how EventBridge Scheduler's universal target spells the members of EKS's request. So
the payload of a start is sent once, and EKS is queried for the resulting update. EKS lists a node
group's updates; a letter in the queue of Scheduler's failed calls proves the contrary. A schedule
that is gone proves neither. Invariant: nothing is raised: the only size that is sent is 0, and only
to a node group at 0 that is ours, without an instance and without a lease. However the proof ends,
its schedule is deleted, or fires within minutes and deletes itself.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tandem.aws.faults import ANSWER_CODES, error_code
from tandem.errors import InputError, TandemError
from tandem.guard.fleet_start import build_stop_schedule
from tandem.guard.fleet_state import FleetState
from tandem.guard.lease import Lease, lease_key
from tandem.guard.observe import observe_fleet
from tandem.guard.start_checks import require_node_group
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.doctor.context import EXIT_EXTERNAL, TIME_FORMAT, Finding
from tandem.ops.faults import AccessDeniedError
from tandem.ops.guard_config import build_guard_config
from tandem.ops.people.policy_targets import PROOF_NAME_PREFIX
from tandem.shell_command import build_cdk_command, build_tandem_command

START_DELAY_S = 60.0  # from now to the moment of the schedule
# Scheduler calls within 60 s of that moment and retries for as long; its letter takes a moment to
# appear
RESULT_TIMEOUT_S = 180.0
POLL_INTERVAL_S = 5.0
# the minimum age for Scheduler; a lease's one-shot stop is retried for an hour
RETRY_POLICY = {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 2}
VISIBILITY_TIMEOUT_S = 20  # for other letters, while ours is searched among them
MAX_RECEIVES = 100
RETRYABLE_CODES = {
    *ANSWER_CODES["busy"],
    *(
        "ResourceInUseException",
        "ServerException",
        "ServiceUnavailableException",
        "InternalServerException",
    ),
}
PROOF_CHECK = "prove-stop"
FALLBACK_NOTE = "until it is proven, the reaper and the budget end a lease, not its one-shot stop"


def prove_one_shot_stop(account: AccountClients, *, log: Callable[[str], None]) -> Finding:
    """Fire the one-shot stop of an environment once.

    Args:
        account: of the environment.
        log: takes the events that are waited for.

    Raises:
        InputError: somebody uses the fleet, or may use it, or there is none; nothing was made.
        ExternalError: AWS did not answer; nothing was made.
    """
    proof = _StopProof(account)
    try:
        finding = proof.create_schedule() or proof.watch(log)
    except TandemError as error:
        finding = Finding("unknown", error.problem, error.change)
    finally:
        removal_problem = proof.delete_schedule()
    if removal_problem and finding.level == "ok":
        region = proof.config.region
        group = proof.config.schedule_group
        command = build_aws_command(
            "scheduler delete-schedule", name=proof.name, group_name=group, region=region
        )
        return Finding("unknown", f"{finding.message}; but {removal_problem}", "delete it", command)
    return finding


class _StopProof:
    """One schedule and its result; nothing is made before the fleet was seen to be idle."""

    def __init__(self, account: AccountClients) -> None:
        self.account = account
        self.config = build_guard_config(account.environment)
        self.group_flags = {"name": self.config.cluster, "nodegroupName": self.config.node_group}
        self.initial_fleet = self._require_idle_fleet()
        self.known_update_ids = self._list_update_ids()
        self.fire_time = (datetime.now(tz=UTC) + timedelta(seconds=START_DELAY_S)).replace(
            microsecond=0
        )
        self.name = f"{PROOF_NAME_PREFIX}{self.fire_time:%Y%m%d%H%M%S}-{secrets.token_hex(3)}"
        self.where = f"schedule {self.config.schedule_group}/{self.name}"
        self.last_problem = ""  # why the last look found no result

    def _observe_fleet(self) -> FleetState:
        return observe_fleet(
            self.account.guard_clients("s3", "eks", "ec2"), self.config, datetime.now(tz=UTC)
        )

    def _require_idle_fleet(self) -> FleetState:
        """Look at the fleet, and return the look if nobody uses the fleet or could use it.

        A fence forbids no proof: behind it nobody may raise. An object that cannot be parsed may be
        a lease.
        """
        name = self.account.name
        fleet = self._observe_fleet()
        change = "see tandem doctor, then try again"
        fleet.require_known(
            *fleet.unknown, where=name, consequence="nothing is fired", change=change
        )
        if lease := fleet.live_lease:
            problem = (
                f"run {lease.run} of {lease.who} has the fleet until {lease.deadline:{TIME_FORMAT}}"
            )
            where = self.config.url(lease_key(lease.run))
            change = "prove it before a start, or after the stop"
            raise InputError(problem, where=where, change=change)
        require_node_group(self.config, fleet, has_lease=False)
        if fleet.faults and not fleet.is_fenced:
            change = f"{build_tandem_command('status', name)} says what to do"
            raise InputError("; ".join(fleet.faults), where=name, change=change)
        return fleet

    def _list_update_ids(self) -> set[str]:
        where = self.config.node_group_description
        return set(
            self.account.list_rows("eks", "ListUpdates", "updateIds", where, **self.group_flags)
        )

    def create_schedule(self) -> Finding | None:
        """Create the schedule; return why Scheduler refuses it."""
        lease = Lease(
            run=PROOF_CHECK,
            who="tandem doctor",
            schedule=self.name,
            created=self.fire_time,
            deadline=self.fire_time,
            experiment=None,
            node_label={},
            beats=False,
            nodes=0,
        )
        request = build_stop_schedule(self.config, lease)
        request["Target"] = {**request["Target"], "RetryPolicy": RETRY_POLICY}
        request["Description"] = (
            f"proves that the one-shot stop of {self.config.environment} reaches EKS"
        )
        try:
            self.account.ask("scheduler", "CreateSchedule", self.where, **request)
        except TandemError as error:
            return self._judge_refused_schedule(error)
        return None

    def _judge_refused_schedule(self, error: TandemError) -> Finding:
        """Report what a refusal says of the one-shot stop of a lease.

        Raises:
            TandemError: it says nothing of it.
        """
        code = error_code(error.__cause__)
        if "iam:PassRole" in error.problem:
            role = self.config.scheduler_role_arn
            action = f"add iam:PassRole on {role} to the policy of this identity"
            return Finding("unknown", error.problem, action)
        is_invalid = code == "ValidationException"
        if code == "ResourceNotFoundException" or (is_invalid and "role" in error.problem):
            command = build_cdk_command("deploy", self.config.environment, "Guard")
            message = f"no start can arm a stop: {error.problem}"
            action = "deploy Guard, which makes group and role"
            return Finding("fail", message, action, command, EXIT_EXTERNAL)
        if not is_invalid:
            raise error
        message = f"Scheduler does not take the one-shot stop: {error.problem}"
        action = (
            f"{FALLBACK_NOTE}; no start goes through: correct the payload in"
            " tandem/guard/fleet_start.py"
        )
        return Finding("fail", message, action, code=EXIT_EXTERNAL)

    def delete_schedule(self) -> str:
        """Delete the schedule, whether it exists or not; return why it may still exist."""
        try:
            self.account.find(
                "scheduler",
                "DeleteSchedule",
                self.where,
                Name=self.name,
                GroupName=self.config.schedule_group,
            )
        except TandemError as error:
            return (
                f"{self.where} could not be deleted ({error.problem}); it fires once, sets 0 and"
                " deletes itself"
            )
        return ""

    def watch(self, log: Callable[[str], None]) -> Finding:
        """Wait for EKS's update or the queue's letter, for as long as either may take."""
        log(f"{self.name} fires at {self.fire_time:%H:%M:%S} UTC or within a minute; waiting")
        end_s = time.monotonic() + START_DELAY_S + RESULT_TIMEOUT_S
        while True:
            try:
                finding = self._poll_result()
                if finding is not None:
                    return finding
            except AccessDeniedError:
                raise
            except TandemError as error:
                self.last_problem = error.problem
            if time.monotonic() >= end_s:
                break
            time.sleep(POLL_INTERVAL_S)
        problem_text = f" ({self.last_problem})" if self.last_problem else ""
        moment = f"within {RESULT_TIMEOUT_S:.0f} s of {self.fire_time:%H:%M:%S} UTC"
        message = f"neither an update to 0 nor a letter came {moment}{problem_text}"
        return Finding("unknown", message, "see tandem status, then try again")

    def _poll_result(self) -> Finding | None:
        letter = self._take_letter()
        if letter is not None:
            return self._judge_letter(letter)
        update = next(self._list_new_updates(), None)
        if update is None or update["status"] == "InProgress":
            self.last_problem = (
                f"EKS has taken update {update['id']} and not done it yet" if update else ""
            )
            return None
        if update["status"] != "Successful":
            return self._judge_failed_update(update)
        if self._has_new_stop():
            return Finding(
                "unknown",
                "another stop ran in the same minute, so it is not clear whose update this was",
                "try again",
            )
        at = f"{update['createdAt']:{TIME_FORMAT}}"
        message = (
            f"Scheduler called, and EKS set {self.config.node_group} to 0 at {at} (its update"
            f" {update['id']})"
        )
        return Finding("ok", message)

    def _judge_failed_update(self, update: dict[str, Any]) -> Finding:
        errors = [
            f"{row.get('errorCode')}: {row.get('errorMessage')}" for row in update.get("errors", [])
        ]
        outcome = f"{update['status']} ({'; '.join(errors)})"
        message = f"EKS took the call and ended update {update['id']} as {outcome}"
        action = f"see the node group's health; {FALLBACK_NOTE}"
        return Finding("fail", message, action, code=EXIT_EXTERNAL)

    def _list_new_updates(self) -> Iterator[dict[str, Any]]:
        """Yield updates to 0 that are no older than the moment of the schedule."""
        where = self.config.node_group_description
        for update_id in sorted(self._list_update_ids() - self.known_update_ids):
            update: dict[str, Any] = self.account.ask(
                "eks", "DescribeUpdate", where, updateId=update_id, **self.group_flags
            )["update"]
            sizes = {
                parameter["type"]: parameter["value"] for parameter in update.get("params", [])
            }
            is_to_zero = sizes.get("DesiredSize") == "0" and sizes.get("MinSize", "0") == "0"
            if (
                update["type"] == "ConfigUpdate"
                and is_to_zero
                and update["createdAt"] >= self.fire_time
            ):
                yield update

    def _has_new_stop(self) -> bool:
        final_fleet = self._observe_fleet()
        fences = (self.initial_fleet.fence, final_fleet.fence)
        return len({fence and fence.at for fence in fences}) > 1 or bool(final_fleet.unknown)

    def _take_letter(self) -> dict[str, str] | None:
        """Search the queue for this schedule's letter, remove the letter and return its attributes.

        Source: EventBridge Scheduler user guide, "Configuring a dead-letter queue".
        """
        name = self.config.dead_letter_arn.rpartition(":")[2]
        where = f"queue {name}"
        queue = self.account.ask("sqs", "GetQueueUrl", where, QueueName=name)
        receive: dict[str, Any] = {
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": VISIBILITY_TIMEOUT_S,
        }
        receive |= {"QueueUrl": queue["QueueUrl"], "MessageAttributeNames": ["All"]}
        for _ in range(MAX_RECEIVES):
            messages = self.account.ask("sqs", "ReceiveMessage", where, **receive).get(
                "Messages", []
            )
            for message in messages:
                attributes = message.get("MessageAttributes", {})
                letter = {
                    key: attribute.get("StringValue", "") for key, attribute in attributes.items()
                }
                if letter.get("SCHEDULE_ARN", "").endswith(f"/{self.name}"):
                    self.account.ask(
                        "sqs",
                        "DeleteMessage",
                        where,
                        QueueUrl=queue["QueueUrl"],
                        ReceiptHandle=message["ReceiptHandle"],
                    )
                    return letter
            if not messages:
                break
        return None

    def _judge_letter(self, letter: dict[str, str]) -> Finding:
        code = letter.get("ERROR_CODE", "?")
        text = letter.get("ERROR_MESSAGE", "")
        message = (
            f"Scheduler gave the call up after {letter.get('RETRY_ATTEMPTS', '?')} retries: {code}:"
            f" {text}"
        )
        if code in RETRYABLE_CODES:
            return Finding(
                "unknown",
                f"{message}; that says nothing about the payload",
                "try again in a few minutes",
            )
        if "AccessDenied" in code or "not authorized" in text:
            action = (
                "deploy Guard, which gives the role its right; an SCP or a boundary may deny it too"
            )
            command = build_cdk_command("deploy", self.config.environment, "Guard")
            return Finding("fail", message, action, command, code=EXIT_EXTERNAL)
        action = (
            f"{FALLBACK_NOTE}; correct the payload in tandem/guard/fleet_start.py,"
            " and keep these words"
        )
        return Finding("fail", message, action, code=EXIT_EXTERNAL)
