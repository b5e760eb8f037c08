"""Follow a stop until EC2 lists no instance: only looks, so that it may be broken off at any moment.

The reaper in the account does what is due; this says what changed.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from tandem import stop
from tandem.ops.fault import OpsError
from tandem.stop import Clients, Guarded, Seen

EVERY_S = 10.0
EMPTY_LOOKS = 2  # in a row that end it: EC2 is eventually consistent, and one list may miss what was launched just now
BLIND = 12  # looks in a row at nothing that can be read, before it is given up
QUIET = timedelta(minutes=4 * stop.PASS_MINUTES)  # a reaper that has not looked for so long is not there


def follow(
    clients: Clients, guarded: Guarded, clock: Callable[[], datetime], before: Seen | None = None
) -> Iterator[tuple[datetime, str]]:
    """Yield each change with its moment, until two looks in a row list no instance of ours and the group wants none.

    What is another's is left alone, so nobody waits for its end.

    Args:
        clients, guarded: of the environment.
        clock: the time.
        before: what the stop saw, to tell changes since; None tells all of the first look.

    Raises:
        OpsError: AWS could not be read for some minutes; the stop goes on.
    """
    blind, empty, warned = 0, 0, False
    began = clock()
    while True:
        seen = stop.look(clients, guarded, clock())
        if {"instances", "node group"} & set(seen.unknown):
            blind, empty = blind + 1, 0
            if blind >= BLIND:
                raise OpsError(
                    "; ".join(f"{source}: {why}" for source, why in seen.unknown.items()), where=guarded.node_group,
                    change="the stop goes on without this command; see that it ends: "
                    f"{shlex.join(['tandem', 'status', '--env', guarded.environment])}",
                )  # fmt: skip
        else:
            blind = 0
            yield from ((seen.now, line) for line in changes(before, seen))
            before = seen
            empty = empty + 1 if is_empty(seen) else 0
            if empty == EMPTY_LOOKS:
                return
        looked = seen.fence.last_look if seen.fence else None
        if not warned and seen.now - max(looked or began, began) > QUIET:
            warned = True
            yield seen.now, "the reaper has not looked since: see docs/runbook.md#fleet-will-not-go-to-zero"
        time.sleep(EVERY_S)


def is_empty(seen: Seen) -> bool:
    """Whether EC2 lists no instance of ours and the node group wants none; another's node group may want many."""
    return not any(instance.ours for instance in seen.instances) and (not seen.desired or seen.owned is False)


def changes(before: Seen | None, seen: Seen) -> Iterator[str]:
    """Yield what differs between two looks; all of the first."""
    if before is None or (before.desired, before.minimum) != (seen.desired, seen.minimum):
        if seen.present:
            yield f"node group {'wants' if before else 'wants now'} {seen.desired}, at least {seen.minimum}"
        elif seen.present is False:
            yield "there is no node group"
    was = {one.id: one.state for one in before.instances} if before else {}
    for one in seen.instances:
        if was.get(one.id) != one.state:
            yield f"{one.id} is {one.state}{'' if one.ours else ', and not ours: it is left alone'}"
    alive = {one.id for one in seen.instances}
    yield from (f"{gone} is gone" for gone in was if gone not in alive)
    state, old = (look.fence.state if look and look.fence else None for look in (seen, before))
    if state != old and state is not None:
        yield f"fence: {state}"
