"""Calls of the runner to Kubernetes: a few kinds of objects, as plain mappings.

Invariant: these calls and no other, so that the Role of charts/runner.py can be compared with them.
Nothing is watched: a list every few seconds shows the same, and knows neither bookmarks nor a
version that is too old.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import httpx2
from lightkube import ApiError, Client
from lightkube.core.exceptions import ConfigError, LoadResourceError
from lightkube.resources import apps_v1, batch_v1, core_v1, discovery_v1, resource_v1
from lightkube.types import CascadeType, PatchType

from tandem.errors import ExternalError

Object = dict[str, Any]


class RefusedCallError(ExternalError):
    """A call that Kubernetes forbids or rejects: it fails until somebody changes something."""


ObjectKind = Literal[
    "jobs",
    "cronjobs",
    "deployments",
    "pods",
    "nodes",
    "endpointslices",
    "resourceclaims",
    "resourceslices",
]
NOT_FOUND = 404
CONFLICT = 409
REFUSALS = frozenset({400, 403, NOT_FOUND, 422})
MAX_LOG_LINES = 200
_RESOURCES: dict[ObjectKind, Any] = {
    "jobs": batch_v1.Job,
    "cronjobs": batch_v1.CronJob,
    "deployments": apps_v1.Deployment,
    "pods": core_v1.Pod,
    "nodes": core_v1.Node,
    "endpointslices": discovery_v1.EndpointSlice,
    "resourceclaims": resource_v1.ResourceClaim,
    "resourceslices": resource_v1.ResourceSlice,
}


class ClusterApi(Protocol):
    """A cluster, real or rehearsed.

    Every method raises ExternalError if the API does not answer or refuses.
    """

    def get_object(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        """Return an object; None if there is none."""

    def list_objects(
        self, kind: ObjectKind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Return the objects of a namespace, or of the cluster for kinds without a namespace."""

    def create_job(self, namespace: str, body: Object) -> None:
        """Create a Job; leave an existing one of the same name as it is."""

    def delete_job(self, namespace: str, name: str) -> None:
        """Delete a Job and its pods; a missing Job is no fault."""

    def scale_deployment(self, namespace: str, name: str, replicas: int) -> None:
        """Set how many pods a Deployment has."""

    def read_log(self, namespace: str, pod: str, container: str) -> str:
        """Return the last lines that a container wrote; empty if it wrote none yet."""


class KubernetesCluster:
    """A real API server, by the pod's own account or by KUBECONFIG."""

    def __init__(self) -> None:
        try:
            self._client = Client(field_manager="tandem-runner")
        except ConfigError as error:
            raise ExternalError(
                f"no way to a Kubernetes API: {error}",
                change="run it as a pod of the cluster, or set KUBECONFIG",
            ) from error

    def get_object(self, kind: ObjectKind, namespace: str, name: str) -> Object | None:
        """Return an object; None if there is none."""
        with _convert_errors(f"get {kind} {namespace}/{name}", ignored=NOT_FOUND):
            return dict(self._client.get(_RESOURCES[kind], name, namespace=namespace).to_dict())
        return None

    def list_objects(
        self, kind: ObjectKind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Return the objects of a namespace, or of the cluster for kinds without a namespace."""
        with _convert_errors(f"list {kind} {namespace}"):
            items = self._client.list(
                _RESOURCES[kind], namespace=namespace or None, labels=dict(labels or {})
            )
            return [dict(item.to_dict()) for item in items]

    def create_job(self, namespace: str, body: Object) -> None:
        """Create a Job; leave an existing one of the same name as it is."""
        call = f"create job {namespace}/{body['metadata']['name']}"
        with _convert_errors(call, ignored=CONFLICT):
            job: Any = batch_v1.Job.from_dict(body)
            self._client.create(job, namespace=namespace)

    def delete_job(self, namespace: str, name: str) -> None:
        """Delete a Job and its pods; a missing Job is no fault."""
        with _convert_errors(f"delete job {namespace}/{name}", ignored=NOT_FOUND):
            self._client.delete(
                batch_v1.Job, name, namespace=namespace, cascade=CascadeType.BACKGROUND
            )

    def scale_deployment(self, namespace: str, name: str, replicas: int) -> None:
        """Set how many pods a Deployment has; a missing Deployment has none."""
        ignored = None if replicas else NOT_FOUND
        with _convert_errors(f"scale deployment {namespace}/{name}", ignored=ignored):
            self._client.patch(
                apps_v1.Deployment.Scale,
                name,
                {"spec": {"replicas": replicas}},
                namespace=namespace,
                patch_type=PatchType.MERGE,
            )

    def read_log(self, namespace: str, pod: str, container: str) -> str:
        """Return the last lines that a container wrote; empty if it wrote none yet."""
        with _convert_errors(f"read log {namespace}/{pod}"):
            lines = self._client.log(
                pod, namespace=namespace, container=container, tail_lines=MAX_LOG_LINES
            )
            return "".join(itertools.islice(lines, MAX_LOG_LINES))


@contextmanager
def _convert_errors(call: str, *, ignored: int | None = None) -> Iterator[None]:
    """Turn the client's errors into one that names the call; an ignored status is no fault."""
    try:
        yield
    except ApiError as error:
        if error.status.code == ignored:
            return
        problem = f"Kubernetes refused to {call}: {error.status.code} {error.status.message}"
        kind = RefusedCallError if error.status.code in REFUSALS else ExternalError
        raise kind(problem, change="see docs/run-faults.md, 'When Kubernetes refuses'") from error
    # lightkube needs a Content-Type, which a load balancer's 503 lacks, and reads its token file at
    # each call
    except (
        ConfigError,
        LoadResourceError,
        OSError,
        KeyError,
        ValueError,
        httpx2.HTTPError,
    ) as error:
        problem = f"Kubernetes did not answer to {call}: {type(error).__name__}: {error}"
        raise ExternalError(
            problem, change="the runner tries again until the step's deadline"
        ) from error
