"""The normal end of a lease: the fleet goes to 0, nothing is fenced, and the next start needs no release.

The lease says first that it ends, so that no start raises under it and the reaper leaves it alone for a while. What was
done stands in the bucket and in AWS, so an end that dies anywhere is finished by the next one, or by the reaper.
Invariant: standard library and boto3 only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tandem.fence import (
    RAISED,
    Clients,
    Guarded,
    Lease,
    Pointer,
    RefusedError,
    WorldError,
    end_pointer,
    lease_key,
    words,
    write_lease,
)
from tandem.guard.ownership import LeaseOwner
from tandem.guard.schedules import delete_own_schedule
from tandem.stop import Seen, look, may_scale, scale_to_zero

EMPTY_LOOKS = 2  # that list no instance, before nobody guards the fleet any more
PAUSE = timedelta(seconds=15)  # between two looks
PATIENCE = timedelta(minutes=25)  # then the reaper takes over: it leaves an ending lease alone for 30


@dataclass(frozen=True, kw_only=True)
class EndReport:
    """What a normal end did.

    Args:
        run: whose lease ended.
        done: each a sentence.
    """

    run: str
    done: tuple[str, ...]


def end_lease(  # noqa: PLR0913 - whose lease, the time, and who hears of it
    clients: Clients, guarded: Guarded, *, run: str | None, clock: Callable[[], datetime],
    rest: Callable[[timedelta], None], say: Callable[[str], None] = lambda _: None,
) -> EndReport:  # fmt: skip
    """End the lease of a run: desired 0, wait until EC2 lists no instance, then remove its stop and its pointer.

    Args:
        run: whose lease ends; None takes the one that there is.
        clock: the time.
        rest: waits for so long.
        say: told of each step, in a sentence.

    Raises:
        RefusedError: there is no lease, another run has it, or the fleet is fenced; nothing was done.
        WorldError: AWS failed, or instances live on; the lease says that it ends, and another end goes on with it.
    """
    return _NormalEnd(clients, guarded, clock, say).finish(run, rest)


class _NormalEnd:
    """One end at work."""

    def __init__(
        self, clients: Clients, guarded: Guarded, clock: Callable[[], datetime], say: Callable[[str], None]
    ) -> None:
        self.clients, self.guarded, self.clock, self.say = clients, guarded, clock, say
        self.done: list[str] = []

    def finish(self, run: str | None, rest: Callable[[timedelta], None]) -> EndReport:
        """Take every step."""
        pointer, lease = self._require_lease(run)
        lease = self._announce_end(lease)
        owner = LeaseOwner(self.clients, self.guarded, pointer, lease)
        with self._expecting(f"setting {self.guarded.group} to 0"):
            owner.call_if_own(lambda: scale_to_zero(self.clients, self.guarded), self._lose)
        self._report(f"{self.guarded.group} set to 0")
        self._await_empty(rest)
        with self._expecting(f"deleting schedule {lease.schedule}"):
            owner.call_if_own(lambda: delete_own_schedule(self.clients, self.guarded, lease), self._lose)
        with self._expecting("removing the pointer to the lease"):
            if not end_pointer(self.clients, self.guarded, pointer):
                raise self._lose("somebody else wrote the pointer")
        self._report(f"run {lease.run} has no lease any more; its one-shot stop {lease.schedule} is deleted")
        return EndReport(run=lease.run, done=tuple(self.done))

    def _require_lease(self, run: str | None) -> tuple[Pointer, Lease]:
        seen, name = look(self.clients, self.guarded, self.clock()), self.guarded.environment
        for source in ("fence", "lease"):
            if source in seen.unknown:
                raise WorldError(f"{source} unknown ({seen.unknown[source]}), so nothing is ended",
                                 where=name, change=self._again())  # fmt: skip
        if seen.fence is not None and seen.fenced:
            raise RefusedError(f"{seen.fence.who} fenced it: {seen.fence.why}", where=name,
                               change=f"the stop ends the fleet; then tandem stop --clear --env {name}")  # fmt: skip
        if seen.lease is None or seen.pointer is None:
            fault = seen.pointer.fault if seen.pointer else ""
            raise RefusedError(fault or "there is no lease, so nothing to end", where=name,
                               change=f"tandem status --env {name} says what runs; tandem stop --env {name} stops it "
                               "whoever it is")  # fmt: skip
        if run is not None and seen.lease.run != run:
            where = self.guarded.at_prefix(seen.lease.prefix).url(lease_key(seen.lease.run))
            raise RefusedError(f"run {seen.lease.run} of {seen.lease.who} has the lease, not run {run}", where=where,
                               change=f"name that run, or leave it alone: tandem status --env {name}")  # fmt: skip
        if not may_scale(seen) and seen.present is not False:
            unknown = seen.unknown.get("node group", "")
            if unknown:
                raise WorldError(f"node group unknown ({unknown}), so nothing is ended", where=self.guarded.group,
                                 change=self._again())  # fmt: skip
            raise RefusedError("it is another's, so it is left alone", where=self.guarded.group,
                               change=f"tandem status --env {name} says whose it is")  # fmt: skip
        return seen.pointer, seen.lease

    def _announce_end(self, lease: Lease) -> Lease:
        """Write into the lease that it ends; a second end keeps the moment of the first."""
        if lease.ending is not None:
            return lease
        with self._expecting("writing that the lease ends"):
            written = write_lease(self.clients, self.guarded, replace(lease, ending=self.clock()))
        if written is None:
            raise RefusedError("somebody changed the lease at this moment", where=self.guarded.environment,
                               change=self._again())  # fmt: skip
        self._report(f"run {lease.run} ends")
        return written

    def _await_empty(self, rest: Callable[[timedelta], None]) -> None:
        """Wait until EC2 has listed no instance of ours in two looks that follow each other."""
        began, empty, before = self.clock(), 0, ""
        while True:
            seen = look(self.clients, self.guarded, self.clock())
            empty = empty + 1 if _is_empty(seen) else 0
            if empty >= EMPTY_LOOKS:
                self._report("EC2 lists no instance")
                return
            alive = ", ".join(f"{instance.id} is {instance.state}" for instance in seen.instances if instance.ours)
            if alive != before:
                self.say(alive or "EC2 lists no instance; looking once more")
                before = alive
            if self.clock() - began >= PATIENCE:
                unknown = "; ".join(f"{source} unknown: {why}" for source, why in seen.unknown.items())
                raise WorldError(f"the fleet is not gone after {PATIENCE.seconds // 60} minutes: {alive or unknown}",
                                 where=self.guarded.group,
                                 change=f"the reaper fences it soon and ends it; now: tandem stop --env "
                                 f"{self.guarded.environment} --wait")  # fmt: skip
            rest(PAUSE)

    @contextmanager
    def _expecting(self, step: str) -> Iterator[None]:
        try:
            yield
        except RAISED as error:
            raise WorldError(f"{step} failed ({words(error)})", where=self.guarded.environment,
                             change=self._again()) from error  # fmt: skip

    def _lose(self, loss: str) -> WorldError:
        return WorldError(f"the end was interrupted: {loss}", where=self.guarded.environment,
                          change=f"tandem status --env {self.guarded.environment}")  # fmt: skip

    def _report(self, sentence: str) -> None:
        self.done.append(sentence)
        self.say(sentence)

    def _again(self) -> str:
        return f"run it again: tandem stop --end --env {self.guarded.environment}"


def _is_empty(seen: Seen) -> bool:
    ours = any(instance.ours for instance in seen.instances)
    return not ours and not seen.desired and not {"instances", "node group"} & seen.unknown.keys()
