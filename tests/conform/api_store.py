"""A real API where a rehearsal has its store: the same methods, over HTTP.

Invariant: a look without a namespace sees the nodes and slices that this tool made, and the pods
bound to these nodes, and no other. So what plays nodes and kubelets cannot touch a real node or a
real node's pods.
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import httpx2

from rehearsal.cluster.store import KINDS, ApiError, Object, ResourceKind, copy_object

LABEL = "tandem.conform/made"
"""On every object that this tool makes outside the manifests, with the value OWN_VALUE."""
OWN_VALUE = "here"
TIMEOUT_S = 60.0
LEASES = ResourceKind("coordination.k8s.io", "v1", "leases", "Lease")
_KINDS = KINDS | {"leases": LEASES}
_PLAYED_KINDS = {"nodes", "resourceslices"}


class ApiStore:
    """The part of a real cluster that this tool plays.

    Args:
        url: of the API, as `kubectl proxy` serves it.
    """

    def __init__(self, url: str) -> None:
        self._client = httpx2.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)
        self._bodies: dict[tuple[str, str, str], Object] = {}

    def call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """Return the answer to one request.

        Raises:
            ApiError: the API refuses.
        """
        answer = self._client.request(
            method, path, json=body, headers={"Content-Type": content_type}
        )
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            status = answer.json() if "json" in answer.headers.get("Content-Type", "") else {}
            raise ApiError(
                HTTPStatus(answer.status_code),
                status.get("reason", ""),
                status.get("message") or answer.text,
            )
        return answer.json()

    def now(self) -> datetime:
        """Return the moment, UTC."""
        return datetime.now(UTC)

    def list_objects(
        self,
        plural: str,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[Object]:
        """Return the objects of a namespace; None means what this tool plays in all of them.

        Raises:
            ApiError: the API refuses.
        """
        labels = ",".join(
            filter(
                None, (label_selector, f"{LABEL}={OWN_VALUE}" if plural in _PLAYED_KINDS else "")
            )
        )
        query = httpx2.QueryParams({"labelSelector": labels, "fieldSelector": field_selector})
        bodies = self.call("GET", f"{_spell_path(plural, namespace)}?{query}")["items"]
        if plural == "pods" and namespace is None:
            nodes = {node["metadata"]["name"] for node in self.list_objects("nodes")}
            bodies = [body for body in bodies if body["spec"].get("nodeName") in nodes]
        for body in bodies:
            metadata = body["metadata"]
            self._bodies[plural, metadata.get("namespace", ""), metadata["name"]] = copy_object(
                body
            )
        return bodies

    def view_objects(
        self, plural: str, namespace: str | None = None, *, field_selector: str = ""
    ) -> list[Object]:
        """Return the objects as list_objects does: an API hands out nothing but copies."""
        return self.list_objects(plural, namespace, field_selector=field_selector)

    def get_object(self, plural: str, namespace: str, name: str) -> Object:
        """Return an object.

        Raises:
            ApiError: the API refuses, 404 for an object that is not there.
        """
        return self.call("GET", _spell_path(plural, namespace, name))

    def create_object(self, plural: str, namespace: str, body: Object) -> Object:
        """Create an object with the label of this tool.

        Raises:
            ApiError: the API refuses.
        """
        metadata = body["metadata"]
        kind = _KINDS[plural]
        own_metadata = metadata | {"labels": metadata.get("labels", {}) | {LABEL: OWN_VALUE}}
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": own_metadata}
        return self.call("POST", _spell_path(plural, namespace), body | head)

    def patch_object(
        self, plural: str, namespace: str, name: str, patch: Object, *, subresource: str = ""
    ) -> Object:
        """Merge a JSON merge patch into an object.

        Raises:
            ApiError: the API refuses.
        """
        path = _spell_path(plural, namespace, name, subresource)
        return self.call("PATCH", path, patch, "application/merge-patch+json")

    def replace_object(
        self, plural: str, namespace: str, name: str, body: Object, *, subresource: str
    ) -> None:
        """Write the fields of a status that changed since the last look, as a kubelet does: by a
        patch with the uid.

        Raises:
            ApiError: the API refuses.
        """
        old = self._bodies.get((plural, namespace, name), {}).get("status", {})
        fields = {
            key: value
            for key, value in body["status"].items()
            if _drop_nulls(value) != _drop_nulls(old.get(key))
        }
        if fields:
            path = _spell_path(plural, namespace, name, subresource)
            patch = {"metadata": {"uid": self._find_uid(plural, namespace, name)}, "status": fields}
            self.call("PATCH", path, patch, "application/strategic-merge-patch+json")

    def delete_object(
        self, plural: str, namespace: str, name: str, *, grace_s: int | None = None
    ) -> None:
        """Delete an object; None leaves a pod its own grace period.

        Raises:
            ApiError: the API refuses.
        """
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        uid = self._find_uid(plural, namespace, name)
        preconditions = {"preconditions": {"uid": uid}} if uid else {}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options, **preconditions}
        self.call("DELETE", _spell_path(plural, namespace, name), body)

    def _find_uid(self, plural: str, namespace: str, name: str) -> str | None:
        """Return the uid that an object had at the last look."""
        body = self._bodies.get((plural, namespace, name), {"metadata": {}})
        return body["metadata"].get("uid")

    def remove_object(self, plural: str, namespace: str, name: str) -> None:
        """Remove an object at once, as a kubelet does with a pod whose processes are gone.

        Raises:
            ApiError: the API refuses.
        """
        self.delete_object(plural, namespace, name, grace_s=0)


def _spell_path(plural: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
    kind = _KINDS[plural]
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"namespaces/{namespace}" if namespace else ""
    return "/".join(filter(None, (root, place, plural, name, subresource)))


def _drop_nulls(value: Any) -> Any:
    """Return a value without the nulls that the API writes for fields that nobody set."""
    if isinstance(value, dict):
        return {key: _drop_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_drop_nulls(part) for part in value]
    return value
