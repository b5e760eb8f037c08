"""A whole cluster in virtual time: clock, objects, and pod runtime; the server adds HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from rehearsal.cluster.claims import sync_claims
from rehearsal.cluster.controllers import (
    collect_garbage,
    sync_deployments,
    sync_endpoint_slices,
    sync_jobs,
)
from rehearsal.cluster.kubelets import KubeletGroup
from rehearsal.cluster.nodes import NodeController, drain_node
from rehearsal.cluster.pods import PodRuntime
from rehearsal.cluster.scheduling import schedule_pods
from rehearsal.cluster.store import ObjectStore
from rehearsal.cluster.timing import ClusterTiming

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
PASSES = 20  # far more than one change needs to have all its effects


class ClusterClock:
    """A clock that stands still until `advance`."""

    def __init__(self) -> None:
        self._now = BEGIN

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
        timing: how long the control plane takes.

    Attributes:
        store: the objects, for a server or a test.
    """

    def __init__(
        self,
        clock: ClusterClock,
        build_runtime: Callable[[Callable[[], datetime]], PodRuntime],
        store: ObjectStore | None = None,
        timing: ClusterTiming | None = None,
    ) -> None:
        self.clock = clock
        self.store = store or ObjectStore(clock.now)
        self.timing = timing or ClusterTiming()
        runtime = build_runtime(clock.now)
        self._nodes = NodeController(self.store, runtime)
        self._kubelets = KubeletGroup(self.store, runtime, self._nodes.has_kubelet)
        self._job_ends: dict[str, datetime] = {}
        self._seen_version = 0  # of the store, at the beginning of the last pass

    @property
    def timing(self) -> ClusterTiming:
        """How long the control plane takes; another value holds from the next pass on."""
        return self._timing

    @timing.setter
    def timing(self, timing: ClusterTiming) -> None:
        self._timing = timing
        self.store.toleration_s = timing.toleration_s

    def lose_node(self, name: str, *, is_terminated: bool = True) -> None:
        """End a node's processes at once; the API learns of it when the grace is over.

        Args:
            name: of the node; a second call for the same node changes nothing.
            is_terminated: whether the cloud no longer has the instance. Otherwise the Node object
                stays, and its pods are deleted when their toleration ends.

        Raises:
            ApiError: 404.
        """
        self._nodes.lose_node(name, is_terminated=is_terminated)

    def drain_node(self, name: str) -> None:
        """Cordon a node and evict each pod on it; the pods go in their own time.

        Raises:
            ApiError: 404.
        """
        drain_node(self.store, name)

    def has_kubelet(self, name: str) -> bool:
        """Tell whether a node's kubelet answers: until the node is lost."""
        return self._nodes.has_kubelet(name)

    def settle(self) -> None:
        """Let the controllers work until nothing changes any more at this moment.

        Raises:
            RuntimeError: two controllers undo each other's work.
        """
        for _ in range(PASSES):
            version = self.store.version
            self._run_controllers()
            if self.store.version == version:
                return
        raise RuntimeError(
            f"objects still change after {PASSES} passes at {self.clock.now():%H:%M:%S}"
        )

    def look_at_pods(self) -> None:
        """Write the processes' state into pod statuses, which controllers have not seen yet."""
        self._kubelets.sync()

    def advance(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time pass in steps, and let the controllers work after each."""
        self.settle()
        while seconds > 0:
            self.clock.advance(min(step_s, seconds))
            seconds -= step_s
            self.settle()

    def _run_controllers(self) -> None:
        """Make one pass; a change by one controller may need further passes to have its effect.

        Garbage, Deployments and Services depend on objects alone, not on the time: they wait for a
        change.
        """
        has_changed = self.store.version != self._seen_version
        self._seen_version = self.store.version
        if has_changed:
            collect_garbage(self.store)
        self._nodes.sync(self._timing)
        if has_changed:
            sync_deployments(self.store)
        sync_jobs(self.store, self._timing.job_end_s, self._job_ends)
        if has_changed:
            sync_endpoint_slices(self.store)
        sync_claims(self.store, self._timing.claim_s)
        schedule_pods(self.store, self._timing.allocation_s)
        self._kubelets.sync()
