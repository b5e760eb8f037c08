"""What the objects of all charts share: labels, a namespace, and their order of application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import cdk8s
from cdk8s_plus_36 import k8s
from constructs import Construct

PART_OF = {"app.kubernetes.io/part-of": "tandem"}
COMPONENT = "app.kubernetes.io/component"
NAME = "app.kubernetes.io/name"
SYNC_WAVE = "argocd.argoproj.io/sync-wave"
# an object that waits for a person or for a node is no fault of a sync
IGNORE_HEALTH = {"argocd.argoproj.io/ignore-healthcheck": "true"}
GITOPS = "gitops"  # component of a GitOps tool's objects, and their folder
NOTHING: Mapping[str, str] = MappingProxyType({})

Object = dict[str, Any]  # one object as its manifest has it
Resource = dict[str, Any]  # a part of a custom resource, which has no class


class TandemChart(cdk8s.Chart):
    """A chart whose objects are labelled as parts of Tandem.

    Attributes:
        object_namespace: of its objects, except those of the whole cluster.
        wave: the place of its objects in an Argo CD sync; ignored elsewhere. None writes no
            annotation.
    """

    def __init__(
        self, scope: Construct, id_: str, *, namespace: str | None = None, wave: int | None = None
    ) -> None:
        # The namespace is not given to cdk8s, which would write it into objects of the whole
        # cluster too.
        super().__init__(scope, id_, labels=PART_OF, disable_resource_name_hashes=True)
        self.object_namespace = namespace
        self.wave = wave

    def build_metadata(
        self,
        name: str,
        component: str,
        *,
        application: str | None = None,
        labels: Mapping[str, str] = NOTHING,
        annotations: Mapping[str, str] = NOTHING,
        is_clusterwide: bool = False,
    ) -> k8s.ObjectMeta:
        """Return the metadata of one object; cdk8s adds the chart's own label.

        `managed-by` is left out because it differs by delivery, and `instance` because Argo CD may
        track by it.

        Args:
            name: of the object.
            component: the value of its component label.
            application: the value of its name label; None is the object's own name.
            labels: in addition to name and component.
            annotations: in addition to the sync wave.
            is_clusterwide: the object is of a kind that has no namespace.
        """
        wave = {} if self.wave is None else {SYNC_WAVE: str(self.wave)}
        return k8s.ObjectMeta(
            name=name,
            namespace=None if is_clusterwide else self.object_namespace,
            labels={NAME: application or name, COMPONENT: component, **labels},
            annotations={**wave, **annotations} or None,
        )

    def add_custom_resource(
        self,
        api_version: str,
        kind: str,
        name: str,
        spec: Mapping[str, Any],
        *,
        application: str,
        wave: int | None = None,
        finalizers: Sequence[str] = (),
    ) -> None:
        """Add an object of a GitOps tool, of whose kind cdk8s has no class.

        Args:
            api_version: group and version.
            kind: of the object.
            name: of the object.
            spec: as the tool's reference has it.
            application: the value of its name label.
            wave: its place in an Argo CD sync.
            finalizers: what must be done before the object is gone.
        """
        resource = cdk8s.ApiObject(
            self,
            f"{kind}-{name}",
            api_version=api_version,
            kind=kind,
            metadata=cdk8s.ApiObjectMetadata(
                name=name,
                namespace=self.object_namespace,
                labels={NAME: application, COMPONENT: GITOPS},
                annotations=None if wave is None else {SYNC_WAVE: str(wave)},
                finalizers=finalizers or None,
            ),
        )
        # ApiObject takes no other field from Python
        resource.add_json_patch(cdk8s.JsonPatch.add("/spec", spec))


def write_yaml(objects: Sequence[Object]) -> str:
    """Return objects as YAML documents, as cdk8s writes a chart."""
    return cdk8s.Yaml.stringify(*objects)
