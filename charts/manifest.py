"""Kubernetes objects as plain mappings, so that charts read like the YAML that operators know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PART_OF = {"app.kubernetes.io/part-of": "tandem"}
COMPONENT = "app.kubernetes.io/component"
NAME = "app.kubernetes.io/name"
SYNC_WAVE = "argocd.argoproj.io/sync-wave"

# an object that waits for a person or for a node is no fault of a sync
IGNORE_HEALTH = {"argocd.argoproj.io/ignore-healthcheck": "true"}

Object = dict[str, Any]


def build_object(
    api: str, kind: str, name: str, body: Mapping[str, Any], *, labels: Mapping[str, str],
    namespace: str | None = None, wave: int | None = None, annotations: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
) -> Object:  # fmt: skip
    """Return one object: its head, metadata in alphabetical order, then `body`.

    Args:
        wave: its place in an Argo CD sync; ignored elsewhere.
    """
    wave_annotation = {} if wave is None else {SYNC_WAVE: str(wave)}
    metadata = {
        "annotations": dict(sorted({**wave_annotation, **(annotations or {})}.items())),
        "finalizers": list(finalizers),
        "labels": dict(sorted(labels.items())),
        "name": name,
        "namespace": namespace,
    }
    head = {key: value for key, value in metadata.items() if value}
    return {"apiVersion": api, "kind": kind, "metadata": head, **body}


def object_labels(name: str, component: str) -> dict[str, str]:
    """Return the labels of one object.

    `managed-by` is left out because it differs by delivery, and `instance` because Argo CD may track by it.
    """
    return {NAME: name, COMPONENT: component, **PART_OF}
