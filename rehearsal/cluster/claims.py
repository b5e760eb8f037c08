"""The controller of resource claims: makes a pod's some time after it, deletes them after its end.

Source: pkg/controller/resourceclaim/controller.go (syncPod, handleClaim, syncClaim, isPodDone).
Left out: claims named by resourceClaimName, finalizers of claims, and claims of pod groups.
"""

from __future__ import annotations

from rehearsal.cluster.statuses import is_active, is_unfinished, record_event, write_status
from rehearsal.cluster.store import ApiError, Object, ObjectStore, copy_object

POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"


def sync_claims(store: ObjectStore, claim_s: float = 0.0) -> None:
    """Delete the claims of pods that have ended, and make those of newer pods.

    Args:
        store: the cluster.
        claim_s: from a pod until its claims, in seconds.
    """
    pods = store.view_objects("pods")
    _release_claims(store, pods)
    for pod in pods:
        if not is_active(pod) or not pod["spec"].get("resourceClaims"):
            continue
        if find_claims(store, pod) is None and store.measure_age(pod) >= claim_s:
            _make_claims(store, copy_object(pod))


def find_claims(store: ObjectStore, pod: Object) -> list[Object] | None:
    """Return the claims of a pod in the order of its spec; None while one does not exist."""
    rows = pod.get("status", {}).get("resourceClaimStatuses", [])
    names = {row["name"]: row["resourceClaimName"] for row in rows}
    claims = []
    for entry in pod["spec"].get("resourceClaims", []):
        if entry["name"] not in names:
            return None
        try:
            claim = store.get_object(
                "resourceclaims", pod["metadata"]["namespace"], names[entry["name"]]
            )
        except ApiError:
            return None
        claims.append(claim)
    return claims


def _release_claims(store: ObjectStore, pods: list[Object]) -> None:
    """Delete the claims of pods that have ended, so that others get their devices."""
    users = {pod["metadata"]["uid"] for pod in pods if _may_need_claims(pod)}
    for claim in store.view_objects("resourceclaims"):
        metadata = claim["metadata"]
        owners = {
            owner["uid"] for owner in metadata.get("ownerReferences", []) if owner["kind"] == "Pod"
        }
        if owners and not owners & users:
            store.remove_object("resourceclaims", metadata["namespace"], metadata["name"])


def _may_need_claims(pod: Object) -> bool:
    """Tell whether a pod may still run; one that is deleted before it has a node never will."""
    is_bound = bool(pod["spec"].get("nodeName"))
    return is_unfinished(pod) and (is_bound or "deletionTimestamp" not in pod["metadata"])


def _make_claims(store: ObjectStore, pod: Object) -> None:
    """Make the claims of a pod, then name them in its status."""
    namespace = pod["metadata"]["namespace"]
    templates = {}
    for entry in pod["spec"]["resourceClaims"]:
        name = entry["resourceClaimTemplateName"]
        try:
            templates[entry["name"]] = store.get_object("resourceclaimtemplates", namespace, name)
        except ApiError as error:
            message = f'PodResourceClaim {entry["name"]}: resource claim template "{name}": {error}'
            record_event(
                store, pod, "FailedResourceClaimCreation", message, component="resource_claim"
            )
            return

    rows = []
    for name, template in templates.items():
        claim = _make_claim(store, pod, name, template)
        rows.append({"name": name, "resourceClaimName": claim["metadata"]["name"]})
    write_status(store, "pods", pod, pod.get("status", {}) | {"resourceClaimStatuses": rows})


def _make_claim(store: ObjectStore, pod: Object, name: str, template: Object) -> Object:
    metadata = pod["metadata"]
    own = template["spec"].get("metadata", {})
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    claim = {
        "metadata": {
            "generateName": f"{metadata['name']}-{name}-",
            "labels": own.get("labels", {}),
            "annotations": own.get("annotations", {}) | {POD_CLAIM_ANNOTATION: name},
            "ownerReferences": [owner],
        },
        "spec": template["spec"]["spec"],
    }
    return store.create_object("resourceclaims", metadata["namespace"], claim)
