"""All that this tool makes: whether its names are free, its deletion, and what is left of it.

Invariant: a name that the cluster had before is never deleted, because nothing begins while one is
there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from account_rights import list_resources
from api_store import LABEL, OWN_VALUE, ApiStore
from given_manifests import GivenManifests
from named_cluster import NamedCluster, Object
from withdrawn_rights import STRAY_NAMESPACE

from rehearsal.run.node_bridge import DRIVER
from tandem.declarations.catalogue import load_catalogue

WAIT_S = 120.0  # for the garbage collector
EVENTS = "events"  # the API server ends them after an hour
DEVICE_CLASS = load_catalogue().dra_chart.device_class.value
CLASS_BODY = {  # as the Neuron chart has it
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DEVICE_CLASS, "labels": {LABEL: OWN_VALUE}},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}
_OWN = ("--selector", f"{LABEL}={OWN_VALUE}", "--ignore-not-found", "--wait", "--timeout", "120s")
ObjectName = tuple[str, str, str]
"""Resource with its group, namespace, name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeObjects:
    """The objects of this tool in a cluster.

    Args:
        environments: the manifests that it may apply.
        before: all objects of the cluster before the first of ours.
    """

    cluster: NamedCluster
    store: ApiStore
    environments: Sequence[GivenManifests]
    before: frozenset[ObjectName]

    def make_surroundings(self) -> None:
        """Make what is there besides the manifests: the DeviceClass, a GitOps tool's namespace, and
        another one."""
        strange = {
            name for manifests in self.environments for name in manifests.list_strange_namespaces()
        }
        items = [
            CLASS_BODY,
            *(_build_namespace(name) for name in sorted({STRAY_NAMESPACE, *strange})),
        ]
        self.cluster.run("apply", bodies=items)

    def delete_manifests(self) -> None:
        """Delete the manifests of every environment."""
        for manifests in self.environments:
            manifests.delete()

    def delete_nodes(self) -> None:
        """Delete the played nodes; their slices and leases go with them."""
        self.cluster.run("delete", "nodes", *_OWN)

    def delete_all(self) -> None:
        """Delete all that this tool makes; nothing that is there is no fault."""
        self.delete_manifests()
        self.delete_nodes()
        self.cluster.run("delete", "namespaces,deviceclasses", *_OWN)

    def list_left(self) -> list[str]:
        """Return what the cluster has more than before; wait for the garbage collector first."""
        end_s = time.monotonic() + WAIT_S
        left = list_names(self.store) - self.before
        while left and time.monotonic() < end_s:
            time.sleep(2.0)
            left = list_names(self.store) - self.before
        return sorted("/".join(filter(None, name)) for name in left)


def list_taken_names(cluster: NamedCluster, environments: Sequence[GivenManifests]) -> list[str]:
    """Return the objects that the cluster has already under a name of ours."""
    bodies = [CLASS_BODY, _build_namespace(STRAY_NAMESPACE)]
    own = cluster.run("get", "--ignore-not-found", "--output", "name", bodies=bodies)
    return sorted(
        {*own.split(), *(name for manifests in environments for name in manifests.list_existing())}
    )


def _build_namespace(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {LABEL: OWN_VALUE}},
    }


def list_names(store: ApiStore) -> frozenset[ObjectName]:
    """Return every object of the cluster, events left aside."""
    names = set[ObjectName]()
    for group, path, entry in list_resources(store):
        if "list" in entry["verbs"] and entry["name"] != EVENTS:
            title = ".".join(filter(None, (entry["name"], group)))
            bodies = [body["metadata"] for body in store.call("GET", path)["items"]]
            names |= {
                (title, metadata.get("namespace", ""), metadata["name"]) for metadata in bodies
            }
    return frozenset(names)
