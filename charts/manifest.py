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
IGNORED_HEALTH = {"argocd.argoproj.io/ignore-healthcheck": "true"}

HEAD = frozenset({"apiVersion", "kind", "metadata"})


def manifest(chart: Chart, body: Mapping[str, Any]) -> ApiObject:
    """Put `body` into `chart`.

    cdk8s's ApiObject takes metadata alone from Python, so everything else follows as a patch.
    """
    metadata = body["metadata"]
    made = ApiObject(
        chart,
        f"{body['kind']}-{metadata['name']}",
        api_version=body["apiVersion"],
        kind=body["kind"],
        metadata=ApiObjectMetadata(**metadata),
    )
    for field in body:
        if field not in HEAD:
            made.add_json_patch(JsonPatch.add(f"/{field}", body[field]))
    return made


def labels(name: str, component: str) -> dict[str, str]:
    """Return the labels of one object.

    `managed-by` is left out because it differs by door, and `instance` because Argo CD may track by it.
    """
    return {NAME: name, COMPONENT: component, **PART_OF}


def wave(number: int) -> dict[str, str]:
    """Return the annotation that orders an object in an Argo CD sync; elsewhere it says nothing."""
    return {SYNC_WAVE: str(number)}
