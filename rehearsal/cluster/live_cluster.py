"""A cluster at work in its own thread: its API on a port, its controllers at each change.

The controllers see a change by time alone, such as a deadline, within a second.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from rehearsal.cluster.cluster import RehearsalCluster
from rehearsal.cluster.server import ClusterServer
from rehearsal.cluster.store import Object
from rehearsal.loopback import HOST

T = TypeVar("T")
TICK_S = 0.25
LONGEST_PAUSE_S = 1.0
CALL_TIMEOUT_S = 60.0


class LiveCluster:
    """One cluster and its API.

    Args:
        cluster: a cluster whose clock is this machine's.
        server: of the cluster's store.
        actions: called before the controllers, at each tick, in the cluster's thread.
    """

    def __init__(
        self,
        cluster: RehearsalCluster,
        server: ClusterServer,
        actions: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.cluster = cluster
        self.server = server
        self._actions = actions
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="cluster")
        self._work: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address of the API."""
        return f"http://{HOST}:{self.server.port}"

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        self._wait(self.server.start())
        self._work = self.call(lambda: self._loop.create_task(self._tick()))
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; the owner of the pods' runtime stops that."""
        if self._work is not None:
            self.call(self._work.cancel)
        self._wait(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def call(self, action: Callable[[], T]) -> T:
        """Return an action's result from the cluster's thread, the only one to touch the store.

        Raises:
            Exception: the action's.
        """

        async def act() -> T:
            return action()

        return self._wait(act())

    def build_kubeconfig(self, token: str, namespace: str = "default") -> Object:
        """Return the kubeconfig for a client of the API."""
        name = "rehearsal"
        context = {"cluster": name, "user": name, "namespace": namespace}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": context}],
        }

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    async def _tick(self) -> None:
        version = 0
        due_s = 0.0
        while True:
            try:
                for action in self._actions:
                    action()
                self.cluster.look_at_pods()
                if self.cluster.store.version != version or self._loop.time() >= due_s:
                    self.cluster.settle()
                    version = self.cluster.store.version
                    due_s = self._loop.time() + LONGEST_PAUSE_S
            except Exception:  # noqa: BLE001 - said, and tried again: a cluster that stands still says nothing
                traceback.print_exc()
            await asyncio.sleep(TICK_S)
