"""The manifests of one example environment, rendered from the checkout, and what kubectl does with
them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from named_cluster import NamedCluster, Object

from rehearsal.aws.installation import REPOSITORY
from rehearsal.run.manifests import read_manifests

WAYS = {
    "server side": ("--server-side", "--field-manager", "tandem-conform"),
    "client side": (),
}
GITOPS = "gitops"  # folder of what an admin applies for Argo CD or Flux
DIFFERENT = 1  # exit code of kubectl diff
DELETION = "240s"
_NO_FINALIZERS = ("--type", "merge", "--patch", '{"metadata":{"finalizers":null}}')


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenManifests:
    """The manifests of an environment, as far as the cluster has their kinds.

    Args:
        folders: kustomizations that hold all objects.
        parts: those of people, runner, experiments and GitOps tool, each by itself.
        objects: all that they hold.
        absent: kinds of a GitOps tool, with the number of objects that are not applied.
    """

    cluster: NamedCluster
    folders: tuple[Path, ...]
    parts: tuple[Path, ...]
    objects: tuple[Object, ...]
    absent: Counter[str]

    @classmethod
    def read(cls, cluster: NamedCluster, folder: Path) -> GivenManifests:
        """Return the manifests of a rendered environment.

        Those of a GitOps tool are left out if the cluster does not have their kinds, or has their
        namespace: then they would be at work.
        """
        versions = set(cluster.run("api-versions").split())
        gitops = read_manifests(folder / GITOPS)
        is_known = all(body["apiVersion"] in versions for body in gitops)
        places = {body["metadata"]["namespace"] for body in gitops}
        is_given = bool(gitops) and is_known and not cluster.list_existing_namespaces(places)
        own = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name != GITOPS]
        objects = [body for path in own for body in read_manifests(path)]
        return cls(
            cluster=cluster,
            folders=(folder, folder / GITOPS) if is_given else (folder,),
            parts=(*own, folder / GITOPS) if is_given else tuple(own),
            objects=tuple(objects + gitops if is_given else objects),
            absent=Counter() if is_given else Counter(body["kind"] for body in gitops),
        )

    def list_wide_objects(self) -> list[Object]:
        """Return the objects that lie in no namespace, the namespaces among them."""
        return [body for body in self.objects if "namespace" not in body["metadata"]]

    def list_strange_namespaces(self) -> list[str]:
        """Return the namespaces that hold objects of the manifests and are made by none of them."""
        result = {body["metadata"]["name"] for body in self.objects if body["kind"] == "Namespace"}
        return sorted(
            {body["metadata"].get("namespace", "") for body in self.objects} - result - {""}
        )

    def list_existing(self) -> list[str]:
        """Return the objects without a namespace whose names the cluster has already."""
        words = ("get", "--ignore-not-found", "--output", "name")
        return self.cluster.run(*words, bodies=self.list_wide_objects()).split()

    def apply(self, way: str) -> Counter[str]:
        """Apply everything strictly, and return what kubectl says of the objects: created,
        configured, unchanged ...

        Args:
            way: of WAYS.
        """
        return self._apply_folders(way, self.folders)

    def apply_parts(self, way: str) -> Counter[str]:
        """Do the same with one part after the other, in the reverse order of their names: runner,
        people, experiments.

        Args:
            way: of WAYS.
        """
        return self._apply_folders(way, self.parts[::-1])

    def _apply_folders(self, way: str, folders: tuple[Path, ...]) -> Counter[str]:
        words = ("apply", *WAYS[way], "--validate=strict", "--kustomize")
        lines = [
            line
            for folder in folders
            for line in self.cluster.run(*words, str(folder)).splitlines()
        ]
        return Counter(line.rsplit(" ", 1)[-1] for line in lines)

    def find_difference(self, way: str) -> str:
        """Return what kubectl diff prints: nothing if the cluster has what is declared."""
        words = ("diff", *WAYS[way], "--kustomize")
        return "".join(
            self.cluster.run(*words, str(folder), codes=(0, DIFFERENT)) for folder in self.folders
        )

    def delete(self) -> None:
        """Delete all objects, and wait until they are gone; those of the manifests' own namespaces
        go with these.

        A GitOps tool's objects have finalizers, and no controller of the tool is there to take them
        away.
        """
        places = set(self.list_strange_namespaces())
        strangers = [body for body in self.objects if body["metadata"].get("namespace") in places]
        if strangers:
            self.cluster.run("delete", "--ignore-not-found", "--wait=false", bodies=strangers)
            # 1: it is gone
            self.cluster.run("patch", *_NO_FINALIZERS, bodies=strangers, codes=(0, 1))
        words = ("delete", "--ignore-not-found", "--wait", "--timeout", DELETION)
        self.cluster.run(*words, bodies=self.list_wide_objects())


def render_environment(name: str, folder: Path) -> Path:
    """Render an environment by the project's own command, and return its folder."""
    command = [sys.executable, "-m", "tandem", "render", name, "--out", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    return folder / name
