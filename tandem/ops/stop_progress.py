"""Follow a stop until EC2 lists no instance: only looks, so that it may be broken off at any moment.

The reaper in the account does what is due; this says what changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from tandem.errors import ExternalError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.observe import FleetState, observe_fleet
from tandem.guard.pass_metrics import PASS_MINUTES
from tandem.shell_command import build_tandem_command

POLL_INTERVAL_S = 10.0
# in a row that end it: EC2 is eventually consistent, and one list may miss what was launched just now
EMPTY_OBSERVATIONS = 2
MAX_BLIND_OBSERVATIONS = 12  # looks in a row at nothing that can be read, before it is given up
REAPER_SILENCE_LIMIT = timedelta(minutes=4 * PASS_MINUTES)  # a reaper that has not looked for so long is not there


def follow_stop(
    clients: AwsClients, config: GuardConfig, clock: Callable[[], datetime], previous: FleetState | None = None
) -> Iterator[tuple[datetime, str]]:
    """Yield each change with its moment, until two looks in a row list no instance of ours and the group wants none.

    What is another's is left alone, so nobody waits for its end.

    Args:
        clients, config: of the environment.
        clock: the time.
        previous: what the stop saw, to tell changes since; None tells all of the first look.

    Raises:
        ExternalError: AWS could not be read for some minutes; the stop goes on.
    """
    blind_count, empty_count, warning_sent = 0, 0, False
    start = clock()
    while True:
        fleet = observe_fleet(clients, config, clock())
        if {"instances", "node group"} & set(fleet.unknown):
            blind_count, empty_count = blind_count + 1, 0
            if blind_count >= MAX_BLIND_OBSERVATIONS:
                problem = "; ".join(f"{source}: {why}" for source, why in fleet.unknown.items())
                command = build_tandem_command("status", config.environment)
                change = f"the stop goes on without this command; see that it ends: {command}"
                raise ExternalError(problem, where=config.node_group, change=change)
        else:
            blind_count = 0
            yield from ((fleet.now, line) for line in list_changes(previous, fleet))
            previous = fleet
            empty_count = empty_count + 1 if is_empty(fleet) else 0
            if empty_count == EMPTY_OBSERVATIONS:
                return
        last_pass = fleet.fence.last_look if fleet.fence else None
        if not warning_sent and fleet.now - max(last_pass or start, start) > REAPER_SILENCE_LIMIT:
            warning_sent = True
            yield fleet.now, "the reaper has not looked since: see docs/runbook.md#fleet-will-not-go-to-zero"
        time.sleep(POLL_INTERVAL_S)


def is_empty(fleet: FleetState) -> bool:
    """Whether EC2 lists no instance of ours and the node group wants none; another's node group may want many."""
    return not fleet.own_instances and (not fleet.desired_size or fleet.has_owner_tag is False)


def list_changes(previous: FleetState | None, fleet: FleetState) -> Iterator[str]:
    """Yield what differs between two looks; all of the first."""
    if previous is None or (previous.desired_size, previous.min_size) != (fleet.desired_size, fleet.min_size):
        if fleet.has_node_group:
            yield f"node group {'wants' if previous else 'wants now'} {fleet.desired_size}, at least {fleet.min_size}"
        elif fleet.has_node_group is False:
            yield "there is no node group"
    previous_states = {instance.id: instance.state for instance in previous.instances} if previous else {}
    for instance in fleet.instances:
        if previous_states.pop(instance.id, None) != instance.state:
            yield f"{instance.id} is {instance.state}{'' if instance.is_ours else ', and not ours: it is left alone'}"
    yield from (f"{instance_id} is gone" for instance_id in previous_states)
    fence_state = fleet.fence.state if fleet.fence else None
    previous_fence_state = previous.fence.state if previous and previous.fence else None
    if fence_state not in {None, previous_fence_state}:
        yield f"fence: {fence_state}"
