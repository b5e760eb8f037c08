"""Schedules of one-shot stops: each belongs to its lease, whose end alone deletes it.

Invariant: standard library and boto3 only, because the Lambdas pack this file.
"""

from __future__ import annotations

from dataclasses import dataclass

from botocore.exceptions import ClientError

from tandem.aws.faults import error_code
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.lease import STOP_PREFIX, Lease, read_pointer
from tandem.guard.ownership import call_if_allowed
from tandem.guard.pager import iterate_pages
from tandem.guard.values import shorten_text


@dataclass(frozen=True, kw_only=True)
class ForeignSchedule:
    """A schedule in the guard's group that the present lease does not own.

    Args:
        name: of the schedule.
        state: ENABLED or DISABLED.
        target_arn: of its call.
    """

    name: str
    state: str
    target_arn: str


def list_foreign_schedules(
    clients: AwsClients, config: GuardConfig, lease: Lease | None
) -> tuple[ForeignSchedule, ...]:
    """Return every schedule of the guard's group except the lease's own.

    An interrupted start or doctor's proof may have left such a schedule, or it is somebody else's
    and may even raise.

    Raises:
        CALL_ERRORS: Scheduler does not answer, or denies the call.
    """
    own_name = lease.schedule if lease else None
    pages = iterate_pages(clients.scheduler, "list_schedules", GroupName=config.schedule_group)
    schedules = []
    for page in pages:
        schedules += [
            ForeignSchedule(
                name=shorten_text(schedule["Name"]),
                state=shorten_text(schedule.get("State", "?")),
                target_arn=shorten_text(schedule.get("Target", {}).get("Arn", "?")),
            )
            for schedule in page["Schedules"]
            if schedule["Name"] != own_name
        ]
    return tuple(schedules)


def delete_unreferenced_schedule(clients: AwsClients, config: GuardConfig, run: str) -> bool:
    """Delete a run's schedule after its lease, unless the pointer names it; return whether done.

    The pointer is read just before, and again if the clock moved in between.

    Raises:
        CALL_ERRORS: S3 or Scheduler does not answer, or refuses.
    """
    return not call_if_allowed(
        clients,
        lambda: "the pointer names it" if read_pointer(clients, config).run == run else "",
        lambda: delete_schedule(clients, config, f"{STOP_PREFIX}{run}"),
    )


def delete_schedule(clients: AwsClients, config: GuardConfig, name: str) -> None:
    """Delete a schedule of the guard's group; a missing one counts as deleted.

    Raises:
        CALL_ERRORS: Scheduler does not answer, or refuses.
    """
    try:
        clients.scheduler.delete_schedule(GroupName=config.schedule_group, Name=name)
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
