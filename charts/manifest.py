"""A plain dict as an object of a chart, so that charts read like the YAML that operators know.

Invariant: what is written is what is rendered; cdk8s adds nothing to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdk8s import ApiObject, ApiObjectMetadata, Chart, JsonPatch

PART_OF = {"app.kubernetes.io/part-of": "tandem"}
COMPONENT = "app.kubernetes.io/component"
NAME = "app.kubernetes.io/name"
SYNC_WAVE = "argocd.argoproj.io/sync-wave"

# what waits for a person or for a node is no fault of a sync
IGNORE_HEALTH = {"argocd.argoproj.io/ignore-healthcheck": "true"}


def add_manifest(chart: Chart, body: Mapping[str, Any]) -> ApiObject:
    """Put `body` into `chart`.

    cdk8s's ApiObject takes metadata alone from Python, so the whole follows, as one patch of its root: what is said to
    Node is what costs time, and a patch of each field would be two messages more.
    """
    metadata = body["metadata"]
    api_object = ApiObject(
        chart,
        f"{body['kind']}-{metadata['name']}",
        api_version=body["apiVersion"],
        kind=body["kind"],
        metadata=ApiObjectMetadata(name=metadata["name"]),
    )
    api_object.add_json_patch(JsonPatch.add("", {**body, "metadata": _sort_metadata(metadata)}))
    return api_object


def _sort_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Sort metadata and its maps, as cdk8s does with what it is given as metadata."""
    return {
        key: dict(sorted(value.items())) if isinstance(value, Mapping) else value
        for key, value in sorted(metadata.items())
    }


def object_labels(name: str, component: str) -> dict[str, str]:
    """Return the labels of one object.

    `managed-by` is left out because it differs by door, and `instance` because Argo CD may track by it.
    """
    return {NAME: name, COMPONENT: component, **PART_OF}


def sync_wave(number: int) -> dict[str, str]:
    """Return the annotation that orders an object in an Argo CD sync; elsewhere it says nothing."""
    return {SYNC_WAVE: str(number)}
