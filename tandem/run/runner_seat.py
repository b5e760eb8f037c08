"""The seat of the one runner that may act: `runner.json` names it, and each act rereads it first.

A runner that froze, was replaced and wakes decides by what it remembers. A write over a version
that it read loses by itself; the first write of a key, a Job, a size or a lease cannot lose, so
each of these asks here. Invariant: the read and the act are two calls. A runner that freezes
between them still acts once; docs/run-faults.md says what bounds that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tandem.guard.config import AwsClients, GuardConfig
from tandem.run.cluster import ClusterApi, Object, ObjectKind
from tandem.run.journal import LostRunError, ObjectFile
from tandem.run.run_keys import RUNNER_KEY
from tandem.run.run_values import RunnerBeat


def require_seat(clients: AwsClients, config: GuardConfig, writer: str) -> None:
    """Read `runner.json`, and continue only if no other runner wrote it last.

    Args:
        clients, config: of the environment's bucket.
        writer: this runner, by its pod's uid.

    Raises:
        LostRunError: another runner is at work; this one must end.
        ExternalError: S3 failed, or the object cannot be parsed; the act is left to the next look.
    """
    # a file of its own: a beat may replace only the version that this runner's last beat left
    beat = ObjectFile(clients, config).read(RUNNER_KEY, RunnerBeat)
    if beat is not None and beat.writer != writer:
        raise LostRunError(f"{RUNNER_KEY} names {beat.writer}")


class SeatedCluster:
    """A cluster that only the runner in the seat may change; whoever asks may read.

    Args:
        cluster: the cluster.
        require_seat: raises LostRunError if another runner has the seat.
    """

    def __init__(self, cluster: ClusterApi, require_seat: Callable[[], None]) -> None:
        self._cluster = cluster
        self._require_seat = require_seat

    def get_object(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        """Return an object; None if there is none."""
        return self._cluster.get_object(kind, namespace, name)

    def list_objects(
        self, kind: ObjectKind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Return the objects of a namespace, or of the cluster for kinds without a namespace."""
        return self._cluster.list_objects(kind, namespace, labels)

    def create_job(self, namespace: str, body: Object) -> None:
        """Create a Job; leave an existing one of the same name as it is."""
        self._require_seat()
        self._cluster.create_job(namespace, body)

    def delete_job(self, namespace: str, name: str) -> None:
        """Delete a Job and its pods; a missing Job is no fault."""
        self._require_seat()
        self._cluster.delete_job(namespace, name)

    def scale_deployment(self, namespace: str, name: str, replicas: int) -> None:
        """Set how many pods a Deployment has."""
        self._require_seat()
        self._cluster.scale_deployment(namespace, name, replicas)

    def read_log(self, namespace: str, pod: str, container: str) -> str:
        """Return the last lines that a container wrote; empty if it wrote none yet."""
        return self._cluster.read_log(namespace, pod, container)
