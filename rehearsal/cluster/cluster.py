"""A whole cluster in virtual time: its clock, its objects, and the runtime of its pods; the server adds HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from rehearsal.cluster.controllers import run_controllers, run_pods
from rehearsal.cluster.pods import PodRuntime
from rehearsal.cluster.store import ObjectStore

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
PASSES = 20  # far more than one change needs to have all its effects


class ClusterClock:
    """A clock that stands still until `advance`."""

    def __init__(self, begin: datetime = BEGIN) -> None:
        self._now = begin

    def now(self) -> datetime:
        """Return the moment, UTC."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock on."""
        self._now += timedelta(seconds=seconds)


class WallClock(ClusterClock):
    """This machine's clock, for a cluster whose pods are processes."""

    def now(self) -> datetime:
        """Return the moment, UTC."""
        return datetime.now(UTC)


class RehearsalCluster:
    """Objects, controllers and pods.

    Args:
        clock: the clock of all of them.
        build_runtime: makes the pods' runtime from the clock's `now`.
        store: the objects, if the runtime reads them too; a new store by default.

    Attributes:
        store: the objects, for a server or a test.
    """

    def __init__(
        self, clock: ClusterClock, build_runtime: Callable[[Callable[[], datetime]], PodRuntime],
        store: ObjectStore | None = None,
    ) -> None:  # fmt: skip
        self.clock, self.store = clock, store or ObjectStore(clock.now)
        self._runtime = build_runtime(clock.now)

    def settle(self) -> None:
        """Let the controllers work until nothing changes any more at this moment.

        Raises:
            RuntimeError: two controllers undo each other's work.
        """
        for _ in range(PASSES):
            version = self.store.version
            run_controllers(self.store, self._runtime)
            if self.store.version == version:
                return
        raise RuntimeError(f"objects still change after {PASSES} passes at {self.clock.now():%H:%M:%S}")

    def look_at_pods(self) -> None:
        """Write the state of the processes into the pods' status; the controllers have not seen it yet."""
        run_pods(self.store, self._runtime)

    def advance(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time pass in steps, and let the controllers work after each."""
        self.settle()
        while seconds > 0:
            self.clock.advance(min(step_s, seconds))
            seconds -= step_s
            self.settle()
