"""The schedules of one-shot stops: each belongs to its lease, and the lease's own end alone deletes it.

Invariant: standard library and boto3 only, because the Lambdas pack this file.
"""

from __future__ import annotations

from dataclasses import dataclass

from botocore.exceptions import ClientError

from tandem.fence import STOP_PREFIX, TRIES, Clients, Guarded, Lease, code_of, read_pointer, short
from tandem.guard.ownership import is_fresh
from tandem.guard.pager import iterate_pages


@dataclass(frozen=True, kw_only=True)
class ForeignSchedule:
    """A schedule in the guard's group that the present lease does not own.

    Args:
        name: of the schedule.
        state: ENABLED or DISABLED.
        target_arn: what it calls.
    """

    name: str
    state: str
    target_arn: str


def list_foreign_schedules(clients: Clients, guarded: Guarded, lease: Lease | None) -> tuple[ForeignSchedule, ...]:
    """Return every schedule of the guard's group but the lease's own.

    Such a schedule is what an interrupted start left, a proof of doctor's, or somebody else's that may even raise.

    Raises:
        RAISED: Scheduler does not answer, or denies it.
    """
    own = lease.schedule if lease else None
    pages = iterate_pages(clients.scheduler.list_schedules, GroupName=guarded.schedule_group)
    return tuple(
        ForeignSchedule(
            name=short(schedule["Name"]), state=short(schedule.get("State", "?")),
            target_arn=short(schedule.get("Target", {}).get("Arn", "?")),
        )
        for page in pages for schedule in page["Schedules"] if schedule["Name"] != own
    )  # fmt: skip


def delete_own_schedule(clients: Clients, guarded: Guarded, lease: Lease) -> None:
    """Delete the schedule of a lease that ends; one that is gone already is deleted.

    Raises:
        RAISED: Scheduler does not answer, or refuses.
    """
    _delete_schedule(clients, guarded, lease.schedule)


def delete_unnamed_schedule(clients: Clients, guarded: Guarded, run: str) -> bool:
    """Delete the schedule of a run whose lease is over, unless the pointer names that run; whether it was deleted.

    The pointer is read directly before, and again if the clock moved in between.

    Raises:
        RAISED: S3 or Scheduler does not answer, or refuses.
    """
    for _ in range(TRIES):
        began_s = clients.wall_s()
        if read_pointer(clients, guarded).run == run:
            return False
        if is_fresh(clients, began_s):
            _delete_schedule(clients, guarded, f"{STOP_PREFIX}{run}")
            return True
    return False


def _delete_schedule(clients: Clients, guarded: Guarded, name: str) -> None:
    try:
        clients.scheduler.delete_schedule(GroupName=guarded.schedule_group, Name=name)
    except ClientError as error:
        if code_of(error) != "ResourceNotFoundException":
            raise
