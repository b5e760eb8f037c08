"""Commands of a pod's containers here: volume folders, words and variables of each process.

Invariant: a container gets its rendered words and variables, with only these differences. The paths
of its mounts are folders of the pod. Its ports and the addresses of Services are ports of
127.0.0.1. The host adds its own differences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rehearsal.cluster.statuses import is_active
from rehearsal.cluster.store import Object, ObjectStore
from rehearsal.loopback import HOST, find_free_port

_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")
_SERVICE_URL = re.compile(
    r"http://([a-z0-9-]+)(?:\.([a-z0-9-]+)(?:\.svc(?:\.cluster\.local)?)?)?:(\d+)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerCommand:
    """The process in a container's place.

    Args:
        words: program and arguments.
        variables: all variables of the process.
        folders: of this machine, by their path in the container, for a program that knows the path.
    """

    words: tuple[str, ...]
    variables: Mapping[str, str]
    folders: Mapping[str, Path] = field(default_factory=dict)


class PodHost(Protocol):
    """This machine's replacement for images, credentials and volumes of other kinds."""

    def choose_program(
        self, pod: Object, container: Object, command: ContainerCommand
    ) -> ContainerCommand:
        """Return the process for a container, from its rendered words and variables."""

    def list_fillers(self, pod: Object, volume: Object, folder: Path) -> list[Callable[[], None]]:
        """Return functions that fill volumes other than emptyDir and configMap; callers retry."""


class ServicePorts:
    """The ports of 127.0.0.1 for Services; a Service keeps its port while this object lives."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._ports: dict[tuple[str, str, int], int] = {}
        self._holders: dict[int, str] = {}  # port -> uid of the pod that has it

    def find_port(self, namespace: str, service: str, port: int) -> int:
        """Return the port in the place of a Service's port."""
        return self._ports.setdefault((namespace, service, port), find_free_port())

    def take_port(self, pod: Object, port_row: Object) -> int:
        """Return the port for a container's: its Service's, or a free one if another pod has that.

        A pod that has ended or is being deleted gives its port to the next pod, which waits until
        nobody listens there.
        """
        metadata = pod["metadata"]
        targets = {port_row["containerPort"], port_row.get("name")}
        pods = self._store.list_objects("pods", metadata["namespace"])
        others = {row["metadata"]["uid"] for row in pods if is_active(row)} - {metadata["uid"]}
        for service in self._store.list_objects("services", metadata["namespace"]):
            selector = service["spec"].get("selector") or {"": ""}
            for row in service["spec"]["ports"]:
                if (
                    selector.items() <= metadata.get("labels", {}).items()
                    and row.get("targetPort") in targets
                ):
                    port = self.find_port(
                        metadata["namespace"], service["metadata"]["name"], row["port"]
                    )
                    if self._holders.get(port) not in others:
                        self._holders[port] = metadata["uid"]
                        return port
        return find_free_port()

    def release(self, pod: Object) -> None:
        """Give the ports of a pod whose processes are gone to the next pod."""
        self._holders = {
            port: uid for port, uid in self._holders.items() if uid != pod["metadata"]["uid"]
        }

    def localize_urls(self, text: str, namespace: str) -> str:
        """Replace Services' addresses in a text by this machine's; other addresses stay."""

        def localize(match: re.Match[str]) -> str:
            place = match[2] or namespace
            names = {row["metadata"]["name"] for row in self._store.list_objects("services", place)}
            port = self.find_port(place, match[1], int(match[3])) if match[1] in names else 0
            return f"http://{HOST}:{port}" if port else match[0]

        return _SERVICE_URL.sub(localize, text)


class PodLayout:
    """One pod's folder: volumes on this machine, and the command of each container.

    Args:
        store: of ConfigMaps and Services.
        pod: the pod.
        folder: of the pod.
        host: chooses programs and fills volumes.
        ports: of Services.

    Raises:
        ApiError, KeyError: a ConfigMap or a key of it is not there.
    """

    def __init__(
        self, store: ObjectStore, pod: Object, folder: Path, host: PodHost, ports: ServicePorts
    ) -> None:
        self._store = store
        self._pod = pod
        self._host = host
        self._service_ports = ports
        self.folder, self.fillers = folder, list[Callable[[], None]]()
        boxes = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        rows = [row for box in boxes for row in box.get("ports", [])]
        self.ports = {row["containerPort"]: ports.take_port(pod, row) for row in rows}
        for volume in pod["spec"].get("volumes", []):
            self._make_volume(volume, folder / "volumes" / volume["name"])
        self.commands = {box["name"]: self._build_command(box) for box in boxes}

    def localize(self, container: Object, text: str) -> str:
        """Return a text of a container with the paths and addresses of this machine."""
        folders = self._find_folders(container)
        if folders:
            paths = "|".join(re.escape(path) for path in sorted(folders, key=len, reverse=True))
            text = re.sub(
                rf"(?<![\w./-])({paths})(?=[/\"'\s]|$)", lambda match: str(folders[match[1]]), text
            )
        for number, port in self.ports.items():
            text = re.sub(rf"(127\.0\.0\.1|localhost):{number}\b", rf"\1:{port}", text)
        return self._service_ports.localize_urls(text, self._pod["metadata"]["namespace"])

    def _build_command(self, box: Object) -> ContainerCommand:
        variables: dict[str, str] = {}
        for row in box.get("env", []):
            text = (
                self._read_source(row["valueFrom"]) if "valueFrom" in row else row.get("value", "")
            )
            variables[row["name"]] = _expand(self.localize(box, text), variables)
        words = [
            self.localize(box, word) for word in [*box.get("command", []), *box.get("args", [])]
        ]
        for index, word in enumerate(words[:-1]):
            if word == "--port" and words[index + 1].isdecimal():
                words[index + 1] = str(self.ports.get(int(words[index + 1]), words[index + 1]))
        words = [_expand(word, variables) for word in words]
        command = ContainerCommand(
            words=tuple(words), variables=variables, folders=self._find_folders(box)
        )
        return self._host.choose_program(self._pod, box, command)

    def _find_folders(self, box: Object) -> dict[str, Path]:
        return {
            mount["mountPath"].rstrip("/"): (
                self.folder / "volumes" / mount["name"] / mount.get("subPath", "")
            )
            for mount in box.get("volumeMounts", [])
        }

    def _read_source(self, source: Mapping[str, Any]) -> str:
        if "configMapKeyRef" in source:
            reference = source["configMapKeyRef"]
            return str(self._read_map(reference["name"])[reference["key"]])
        path = source["fieldRef"]["fieldPath"]
        match = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
        if match:
            return str(self._pod["metadata"].get(match[1], {}).get(match[2], ""))
        value: Any = self._pod
        for part in path.split("."):
            value = value[part]
        return str(value)

    def _read_map(self, name: str) -> Mapping[str, str]:
        data: Mapping[str, str] = self._store.get_object(
            "configmaps", self._pod["metadata"]["namespace"], name
        )["data"]
        return data

    def _make_volume(self, volume: Object, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            data = self._read_map(volume["configMap"]["name"])
            items = volume["configMap"].get("items") or [{"key": key, "path": key} for key in data]
            for item in items:
                path = folder / item["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(data[item["key"]])
        elif "emptyDir" not in volume:
            self.fillers += self._host.list_fillers(self._pod, volume, folder)


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by variables, as the kubelet does; an unknown name stays."""
    return _REFERENCE.sub(lambda match: variables.get(match[1], match[0]), text)
