"""Release of a fence whose fleet is gone; the lease that the stop ended stays ended.

Invariant: standard library and boto3 only.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tandem.errors import ExternalError, InputError
from tandem.guard.bucket import write_object
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fence import FENCE_FIELDS, FENCE_KEY, Fence
from tandem.guard.fleet_state import FleetState
from tandem.guard.lease import (
    RUN_NAME_PATTERN,
    LeasePointer,
    clear_pointer,
    read_lease,
    write_lease,
)
from tandem.guard.observe import observe_fleet
from tandem.guard.schedules import delete_unreferenced_schedule
from tandem.guard.values import CALL_ERRORS, describe_error, select_json_fields, shorten_sentence


def release_fence(clients: AwsClients, config: GuardConfig, *, who: str, now: datetime) -> Fence:
    """Lift the fence; the lease that the stop ended stays ended, and its one-shot stop is deleted.

    Raises:
        InputError: there is no fence, or the fleet is not known to be at 0 without any instance.
        ExternalError: AWS did not answer, or somebody stops at this moment.
    """
    fleet = observe_fleet(clients, config, now)
    release_command = f"tandem stop --release --env {config.environment}"
    fence = _require_gone_fleet(config, fleet, release_command)
    url = config.url(FENCE_KEY)
    new_fence = replace(
        fence, state="lifted", who=who, why=shorten_sentence(f"lifted; was: {fence.why}"), at=now
    )

    try:
        # first: a lease that outlived its fence would be live again
        etag = None
        if _end_lease(clients, config, fleet, fence, now):
            document = select_json_fields(new_fence, *FENCE_FIELDS)
            etag = write_object(clients, config, FENCE_KEY, document, etag=fence.etag)
    except CALL_ERRORS as error:
        problem = f"the fence is not lifted ({describe_error(error)})"
        raise ExternalError(problem, where=url, change=release_command) from error
    if not etag:
        problem = "somebody wrote it or the lease at this moment, so it is not lifted"
        raise ExternalError(
            problem,
            where=url,
            change=f"tandem status --env {config.environment}, then {release_command}",
        )
    return replace(new_fence, etag=etag)


def _require_gone_fleet(config: GuardConfig, fleet: FleetState, release_command: str) -> Fence:
    """Return the fence of a fleet that is known to be gone.

    Raises:
        InputError, ExternalError: as `release_fence`.
    """
    fleet.require_known(
        "fence",
        "lease",
        "node group",
        "instances",
        where=config.environment,
        consequence="the fence stays",
        change=f"{release_command} once AWS answers",
    )
    if fleet.fence is None or not fleet.fence.is_closed:
        raise InputError(
            "there is no fence", where=config.url(FENCE_KEY), change="nothing needs to be lifted"
        )
    instance_ids = ", ".join(instance.id for instance in fleet.own_instances)
    if instance_ids or (fleet.has_owner_tag and (fleet.desired_size, fleet.min_size) != (0, 0)):
        problem = (
            f"the fleet is not gone: desired {fleet.desired_size}, instances"
            f" {instance_ids or 'none'}"
        )
        wait = f"tandem stop --env {config.environment} and wait until tandem status lists none"
        raise InputError(
            problem, where=config.node_group_description, change=f"{wait}, then {release_command}"
        )
    return fleet.fence


def _end_lease(
    clients: AwsClients, config: GuardConfig, fleet: FleetState, fence: Fence, now: datetime
) -> bool:
    """End the lease that the stop ended, and delete its one-shot stop.

    Returns:
        False if the pointer is not the one that was seen: a release that slept here may find
        another run's.
    """
    pointer = fleet.pointer or LeasePointer()
    if not clear_pointer(clients, config, pointer):
        return False
    # the fence's if an earlier release died after its first write
    run = pointer.run or fence.run
    if run is not None and RUN_NAME_PATTERN.fullmatch(run):
        lease = fleet.lease or read_lease(clients, config, replace(pointer, run=run))[0]
        if lease and lease.ending is None:  # so that nobody adopts it again
            write_lease(clients, config, replace(lease, ending=now))
        # the schedule would end the next run
        delete_unreferenced_schedule(clients, config, run)
    return True
