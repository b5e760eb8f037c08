"""Objects of a rehearsed cluster, with their versions and conflicts.

Invariant: a reader gets copies. Each change has a resourceVersion higher than all before it. Left
out: validation of specs except where a docstring names it, defaults, server-side apply, and
generated ReplicaSets.
"""

from __future__ import annotations

import marshal
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from random import Random
from typing import Any

from rehearsal.cluster.quantities import normalize_object
from rehearsal.cluster.selector import match_fields, match_labels

Object = dict[str, Any]
ENDED_PHASES = {"Succeeded", "Failed"}
_LOSS_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SERVER_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class ApiError(Exception):
    """A refusal, as the API answers it.

    Args:
        status: of HTTP.
        reason: as `Status` of meta/v1 names it, such as NotFound.
        message: for people.
    """

    def __init__(self, status: HTTPStatus, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = int(status)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One kind of object.

    Args:
        group: empty for the core group.
        version: the only one that is served.
        plural, kind: its names in paths and in objects.
        is_namespaced: whether it lies in a namespace.
    """

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return the apiVersion of objects of this kind."""
        return f"{self.group}/{self.version}" if self.group else self.version


KINDS = {
    kind.plural: kind
    for kind in (
        ResourceKind("", "v1", "pods", "Pod"),
        ResourceKind("", "v1", "services", "Service"),
        ResourceKind("", "v1", "configmaps", "ConfigMap"),
        ResourceKind("", "v1", "serviceaccounts", "ServiceAccount"),
        ResourceKind("", "v1", "events", "Event"),
        ResourceKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
        ResourceKind("", "v1", "persistentvolumes", "PersistentVolume", is_namespaced=False),
        ResourceKind("", "v1", "nodes", "Node", is_namespaced=False),
        ResourceKind("", "v1", "namespaces", "Namespace", is_namespaced=False),
        ResourceKind("apps", "v1", "deployments", "Deployment"),
        ResourceKind("batch", "v1", "jobs", "Job"),
        ResourceKind("batch", "v1", "cronjobs", "CronJob"),
        ResourceKind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
        ResourceKind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
        ResourceKind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
        ResourceKind(
            "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", is_namespaced=False
        ),
    )
}


class ObjectStore:
    """All objects of a cluster, in memory; for one thread only.

    Args:
        now: the cluster's clock, UTC.

    Attributes:
        toleration_s: the tolerationSeconds of new pods for a node that is not ready or unreachable.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.version = 1
        self.toleration_s = 300.0
        self._births: dict[str, datetime] = {}
        self._objects: dict[tuple[str, str, str], Object] = {}
        # of the same objects: a copy is read from its image
        self._images: dict[tuple[str, str, str], bytes] = {}
        self._random = Random(0)  # noqa: S311 - the same calls give the same uids and names

    def list_objects(
        self,
        plural: str,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[Object]:
        """Return copies, sorted by namespace and name; None: every namespace."""
        bodies = self.view_objects(
            plural, namespace, label_selector=label_selector, field_selector=field_selector
        )
        return [self._copy(_find_key(plural, body)) for body in bodies]

    def view_objects(
        self,
        plural: str,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        owner_uid: str = "",
    ) -> list[Object]:
        """Return the stored objects themselves, of an owner if one is named; change none."""
        keys = sorted(
            key for key in self._objects if key[0] == plural and namespace in (None, key[1])
        )
        bodies = [self._objects[key] for key in keys]
        return [
            body
            for body in bodies
            if (not owner_uid or owner_uid in _list_owners(body["metadata"]))
            and is_selected(body, label_selector, field_selector)
        ]

    def list_orphans(self) -> list[tuple[str, str, str]]:
        """Return kind, namespace and name of each object whose owners are all gone."""
        uids = {body["metadata"]["uid"] for body in self._objects.values()}
        owners = ((key, _list_owners(body["metadata"])) for key, body in self._objects.items())
        return [
            key for key, owner_uids in owners if owner_uids and not uids.intersection(owner_uids)
        ]

    def get_object(self, plural: str, namespace: str, name: str) -> Object:
        """Return a copy.

        Raises:
            ApiError: 404.
        """
        self._find(plural, namespace, name)
        return self._copy((plural, namespace, name))

    def view_object(self, plural: str, namespace: str, name: str) -> Object:
        """Return the stored object itself; the caller changes nothing in it.

        Raises:
            ApiError: 404.
        """
        return self._find(plural, namespace, name)

    def measure_age(self, body: Object) -> float:
        """Return an object's age in seconds; its creationTimestamp has whole seconds only."""
        return (self.now() - self._births[body["metadata"]["uid"]]).total_seconds()

    def create_object(self, plural: str, namespace: str, body: Object) -> Object:
        """Store a new object and return it with the server's additions.

        Raises:
            ApiError: 409 if the name exists already; 400 and 422 for an object of another kind or
                an illegal name.
        """
        body = normalize_object(copy_object(body))
        metadata = body.setdefault("metadata", {})
        if "name" not in metadata and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + f"{self._random.getrandbits(20):05x}"
        kind = KINDS[plural]
        name = metadata.get("name", "")
        _check_identity(kind, namespace, body)
        if (plural, namespace, name) in self._objects:
            raise ApiError(
                HTTPStatus.CONFLICT, "AlreadyExists", f'{plural} "{name}" already exists'
            )
        body |= {"apiVersion": kind.api_version, "kind": kind.kind}
        metadata |= {
            "uid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
            "creationTimestamp": format_time(self.now()),
        }
        metadata |= {"namespace": namespace} if kind.is_namespaced else {}
        if "spec" in body:
            metadata["generation"] = 1
        if plural == "pods":
            _add_tolerations(body, int(self.toleration_s))
        self._births[metadata["uid"]] = self.now()
        return self._keep(plural, body)

    def replace_object(
        self, plural: str, namespace: str, name: str, body: Object, *, subresource: str = ""
    ) -> Object:
        """Replace an object except its status, or with the subresource `status` only its status.

        The same content changes nothing, not even the version.

        Raises:
            ApiError: 404; 409 if `body` has another resourceVersion; 422 if `body` changes an
                immutable field.
        """
        old = self._find(plural, namespace, name)
        _check_version(plural, old, body)
        if subresource == "status":
            status = copy_object(body.get("status", {}))
            new = old | {"status": normalize_object(status) if plural == "nodes" else status}
        else:
            _check_identity(KINDS[plural], namespace, body, name)
            new = _build_replacement(plural, old, normalize_object(copy_object(body)))
        if new == old:
            return self._copy((plural, namespace, name))

        kept_body = self._keep(plural, copy_object(new))
        if _is_removable(new):  # its last finalizer is gone
            self.remove_object(plural, namespace, name)
        return kept_body

    def patch_object(
        self, plural: str, namespace: str, name: str, patch: Object, *, subresource: str = ""
    ) -> Object:
        """Merge a JSON merge patch (RFC 7386) into an object; null takes a field away.

        Raises:
            ApiError: as replace_object.
        """
        return self.replace_object(
            plural,
            namespace,
            name,
            merge_patch(self._find(plural, namespace, name), patch),
            subresource=subresource,
        )

    def delete_object(
        self,
        plural: str,
        namespace: str,
        name: str,
        *,
        propagation: str = "Background",
        grace_s: int | None = None,
    ) -> Object:
        """Delete an object; a pod stays until its runtime has stopped it.

        Args:
            propagation: Orphan removes this owner from its children; otherwise the garbage
                collection deletes them.
            grace_s: of a pod; None takes its own terminationGracePeriodSeconds.

        Raises:
            ApiError: 404.
        """
        body = self.get_object(plural, namespace, name)
        if propagation == "Orphan":
            self._orphan_children(body["metadata"]["uid"])
        if plural != "pods":
            self.remove_object(plural, namespace, name)
            return body
        period_s = (
            body.get("spec", {}).get("terminationGracePeriodSeconds", 30)
            if grace_s is None
            else grace_s
        )
        if not body["spec"].get("nodeName") or body.get("status", {}).get("phase") in ENDED_PHASES:
            period_s = 0
        metadata = body["metadata"]
        if period_s >= metadata.get("deletionGracePeriodSeconds", period_s + 1):
            return body  # a second deletion can only shorten the grace

        metadata.setdefault("deletionTimestamp", format_time(self.now()))
        metadata["deletionGracePeriodSeconds"] = period_s
        kept = self._keep(plural, body)
        if _is_removable(body):
            self.remove_object(plural, namespace, name)
        return kept

    def remove_object(self, plural: str, namespace: str, name: str) -> None:
        """Remove an object at once.

        Raises:
            ApiError: 404.
        """
        body = self._find(plural, namespace, name)
        del self._objects[plural, namespace, name]
        del self._images[plural, namespace, name]
        self._births.pop(body["metadata"]["uid"], None)
        self.version += 1

    def _find(self, plural: str, namespace: str, name: str) -> Object:
        try:
            return self._objects[plural, namespace, name]
        except KeyError:
            raise ApiError(
                HTTPStatus.NOT_FOUND, "NotFound", f'{plural} "{name}" not found'
            ) from None

    def _keep(self, plural: str, body: Object) -> Object:
        metadata = body["metadata"]
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        key = _find_key(plural, body)
        self._objects[key] = body
        self._images[key] = marshal.dumps(body)
        return self._copy(key)

    def _copy(self, key: tuple[str, str, str]) -> Object:
        copied: Object = marshal.loads(self._images[key])  # noqa: S302 - written by this process
        return copied

    def _orphan_children(self, uid: str) -> None:
        for (plural, _, _), body in list(self._objects.items()):
            owners = body["metadata"].get("ownerReferences", [])
            kept = [owner for owner in owners if owner["uid"] != uid]
            if kept != owners:
                child = copy_object(body)
                child["metadata"]["ownerReferences"] = kept
                self._keep(plural, child)


def copy_object(body: Object) -> Object:
    """Return a deep copy, ten times as fast as copy.deepcopy, but only for JSON values."""
    copied: Object = marshal.loads(marshal.dumps(body))  # noqa: S302 - written a moment ago, by this process
    return copied


def _check_version(plural: str, old: Object, body: Object) -> None:
    """Refuse a body that is of another version than the stored one.

    Raises:
        ApiError: 409.
    """
    version = body.get("metadata", {}).get("resourceVersion")
    if version not in (None, "", old["metadata"]["resourceVersion"]):
        message = (
            f'Operation cannot be fulfilled on {plural} "{old["metadata"]["name"]}": the object has'
            " been modified; please apply your changes to the latest version and try again"
        )
        raise ApiError(HTTPStatus.CONFLICT, "Conflict", message)


def _build_replacement(plural: str, old: Object, body: Object) -> Object:
    """Return the body with what the server keeps of the old object: its status and identity.

    Raises:
        ApiError: 422 if the body changes an immutable field.
    """
    kept = {key: old[key] for key in ("apiVersion", "kind", "status") if key in old}
    metadata = body.get("metadata", {}) | {
        key: value for key, value in old["metadata"].items() if key in _SERVER_METADATA
    }
    new = {key: value for key, value in body.items() if key != "status"} | kept
    new["metadata"] = metadata
    spec = new.get("spec", {})
    old_spec = old.get("spec", {})
    if plural == "jobs" and spec.get("template") != old_spec.get("template"):
        name = old["metadata"]["name"]
        message = f'Job.batch "{name}" is invalid: spec.template: field is immutable'
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)
    if spec != old_spec:
        metadata["generation"] = old["metadata"].get("generation", 0) + 1
    return new


def _find_key(plural: str, body: Object) -> tuple[str, str, str]:
    return plural, body["metadata"].get("namespace", ""), body["metadata"]["name"]


def is_selected(body: Mapping[str, Any], label_selector: str, field_selector: str) -> bool:
    """Tell whether an object matches both selectors; an empty one matches all."""
    has_labels = not label_selector or match_labels(
        label_selector, body["metadata"].get("labels", {})
    )
    return has_labels and (not field_selector or match_fields(field_selector, body))


def _list_owners(metadata: Object) -> list[str]:
    return [owner["uid"] for owner in metadata.get("ownerReferences", [])]


def _is_removable(body: Object) -> bool:
    """Tell whether nothing keeps a deleted object any more: no grace period and no finalizer."""
    metadata = body["metadata"]
    return metadata.get("deletionGracePeriodSeconds") == 0 and not metadata.get("finalizers")


def _add_tolerations(pod: Object, seconds: int) -> None:
    """Let a pod stay a while on a lost node, as the admission DefaultTolerationSeconds does."""
    spec = pod.setdefault("spec", {})
    rows = spec.get("tolerations", [])
    for key in _LOSS_TAINTS:
        is_known = any(
            row.get("key", key) == key and row.get("effect", "NoExecute") == "NoExecute"
            for row in rows
        )
        if not is_known:
            toleration = {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": seconds,
            }
            rows = [*rows, toleration]
    spec["tolerations"] = rows


def merge_patch(value: Any, patch: Any) -> Any:
    """Return a value after a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), part)
    return merged


def format_time(moment: datetime) -> str:
    """Return a moment as the API writes it: UTC, whole seconds."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _check_identity(
    kind: ResourceKind, namespace: str, body: Object, name: str | None = None
) -> None:
    """Refuse an object that does not fit its path, and one whose name the API does not take."""
    given = body.get("apiVersion", kind.api_version), body.get("kind", kind.kind)
    if given != (kind.api_version, kind.kind):
        message = (
            f"{given[1]} of {given[0]} in the body; the path is of {kind.kind} of"
            f" {kind.api_version}"
        )
        raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", message)
    metadata = body.get("metadata", {})
    if metadata.get("namespace", namespace) != namespace:
        message = (
            "the namespace of the provided object does not match the namespace sent on the request"
        )
        raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", message)
    if name is not None and metadata.get("name", name) != name:
        message = (
            f"the name of the object ({metadata['name']}) does not match the name on the URL"
            f" ({name})"
        )
        raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", message)
    if not _NAME.fullmatch(metadata.get("name", name or "")):
        message = (
            f'{kind.kind} "{metadata.get("name", "")}" is invalid: metadata.name: a lowercase RFC'
            " 1123 name"
        )
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)
