"""Kubernetes objects as plain mappings, so that charts read like the YAML that operators know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PART_OF = {"app.kubernetes.io/part-of": "tandem"}
COMPONENT = "app.kubernetes.io/component"
NAME = "app.kubernetes.io/name"
SYNC_WAVE = "argocd.argoproj.io/sync-wave"

# what waits for a person or for a node is no fault of a sync
IGNORE_HEALTH = {"argocd.argoproj.io/ignore-healthcheck": "true"}

Object = dict[str, Any]


def build_object(  # noqa: PLR0913  # each is a field of the object
    api: str, kind: str, name: str, body: Mapping[str, Any], *, labels: Mapping[str, str],
    namespace: str | None = None, annotations: Mapping[str, str] | None = None, finalizers: Sequence[str] = (),
) -> Object:  # fmt: skip
    """Return one object: its head, metadata in alphabetical order, then `body`."""
    metadata = {
        "annotations": dict(sorted((annotations or {}).items())),
        "finalizers": list(finalizers),
        "labels": dict(sorted(labels.items())),
        "name": name,
        "namespace": namespace,
    }
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {key: value for key, value in metadata.items() if value},
        **body,
    }


def object_labels(name: str, component: str) -> dict[str, str]:
    """Return the labels of one object.

    `managed-by` is left out because it differs by door, and `instance` because Argo CD may track by it.
    """
    return {NAME: name, COMPONENT: component, **PART_OF}


def sync_wave(number: int) -> dict[str, str]:
    """Return the annotation that orders an object in an Argo CD sync; elsewhere it says nothing."""
    return {SYNC_WAVE: str(number)}
