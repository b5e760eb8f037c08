"""Observation of a fleet until EC2 lists no instance; it only looks, so it may be interrupted.

Invariant: standard library and boto3 only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from tandem.errors import ExternalError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_state import FleetState
from tandem.guard.observe import observe_fleet
from tandem.guard.pass_metrics import PASS_MINUTES
from tandem.shell_command import build_tandem_command

POLL_INTERVAL = timedelta(seconds=10)
# so many looks in a row end it: EC2 is eventually consistent, and one list may miss a fresh launch
EMPTY_OBSERVATIONS = 2
BLIND_LIMIT = timedelta(minutes=2)  # without a readable source; then it gives up
# a reaper without a look for so long is taken as absent
REAPER_SILENCE_LIMIT = timedelta(minutes=4 * PASS_MINUTES)


def follow_fleet(  # noqa: PLR0913 - whose fleet, the time, and how long
    clients: AwsClients,
    config: GuardConfig,
    clock: Callable[[], datetime],
    wait: Callable[[timedelta], None],
    *,
    previous: FleetState | None = None,
    timeout: timedelta | None = None,
    awaits_zero: bool = False,
) -> Iterator[tuple[datetime, str]]:
    """Yield each change and its time, until two looks in a row list nothing and want nothing.

    A node group without our tag may want many nodes; nobody waits for its end.

    Args:
        clients, config: of the environment.
        clock: the time.
        wait: waits for so long.
        previous: the look before, for changes since; None yields all of the first look.
        timeout: time until it gives up; None: as soon as AWS could not be read for some minutes.
        awaits_zero: whether a node group without our tag must want none too, e.g. because its
            instances had the tag.

    Raises:
        ExternalError: it gave up; the stop of the fleet goes on.
    """
    start = seen_at = clock()
    empty_count = 0
    warning_sent = False
    while True:
        fleet = observe_fleet(clients, config, clock())
        if {"instances", "node group"} & fleet.unknown.keys():
            empty_count = 0
        else:
            for line in list_changes(previous, fleet):
                yield fleet.now, line
            previous = fleet
            seen_at = fleet.now
            is_wanted = fleet.desired_size and (awaits_zero or fleet.has_owner_tag is not False)
            empty_count = 0 if fleet.own_instances or is_wanted else empty_count + 1
            if empty_count == EMPTY_OBSERVATIONS:
                return
        if fleet.now - (start if timeout else seen_at) >= (timeout or BLIND_LIMIT):
            details = [f"{source} unknown: {why}" for source, why in fleet.unknown.items()]
            details += [f"{instance.id} is {instance.state}" for instance in fleet.own_instances]
            if fleet.desired_size:
                details.append(f"the node group wants {fleet.desired_size}")
            status_command = build_tandem_command("status", config.environment)
            change = f"it is ended without this command; see that it is: {status_command}"
            problem = f"the fleet is not known to be gone: {'; '.join(details)}"
            raise ExternalError(problem, where=config.node_group_description, change=change)
        last_pass = fleet.fence.last_look if fleet.fence else fleet.now
        if not warning_sent and fleet.now - max(last_pass or start, start) > REAPER_SILENCE_LIMIT:
            warning_sent = True
            yield (
                fleet.now,
                "the reaper has not looked since: see docs/runbook.md#fleet-will-not-go-to-zero",
            )
        wait(POLL_INTERVAL)


def list_changes(previous: FleetState | None, fleet: FleetState) -> Iterator[str]:
    """Yield the differences between two looks; everything for the first look."""
    sizes = (fleet.desired_size, fleet.min_size)
    if previous is None or (previous.desired_size, previous.min_size) != sizes:
        wish = f"the node group wants {fleet.desired_size}"
        yield wish if fleet.has_node_group else "there is no node group"
    previous_instances = previous.instances if previous else ()
    previous_states = {instance.id: instance.state for instance in previous_instances}
    for instance in fleet.instances:
        if previous_states.pop(instance.id, None) != instance.state:
            sentence = f"{instance.id} is {instance.state}"
            if not instance.is_ours:
                sentence += ", and not ours: it is left alone"
            yield sentence
    for instance_id in previous_states:
        yield f"{instance_id} is gone"
    fence_state = fleet.fence.state if fleet.fence else None
    previous_fence_state = previous.fence.state if previous and previous.fence else None
    if fence_state not in {None, previous_fence_state}:
        yield f"fence: {fence_state}"
