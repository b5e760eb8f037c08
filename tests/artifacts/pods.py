"""Runs the containers of a rendered pod as processes: their very arguments and variables, other
roots.

What differs from a node: the mounts' roots (/models, /artifact, /work, /stored) and the server's
port are this test's own, the stand-ins lie first in PATH, the tools containers get the local
endpoint's variables in the place of a role's, and a volume that is mounted read only loses its
write bits, which the stand-ins heed.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from served import Served

from rehearsal.runtime.installation import install_programs

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("models", "artifact", "work", "stored")
RENDERED_PORT = "8000"
TOOLS = ("stage", "fetch", "upload", "admit")
PROGRAM = [sys.executable, "-m", "tandem.artifacts"]  # the tools image's entrypoint
Spec = dict[str, Any]


class Pod:
    """One pod on one node."""

    def __init__(
        self,
        folder,
        spec,
        *,
        runtime,
        tools,
        maps,
        job="job",
    ):
        self.folder, self.spec, self.tools, self.maps, self.job = (
            folder,
            spec,
            dict(tools),
            maps,
            job,
        )
        self.programs = install_programs(folder / "image/bin", runtime)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        for root in ROOTS:
            (folder / root).mkdir(parents=True, exist_ok=True)

    def container(self, name):
        every = [*self.spec["initContainers"], *self.spec["containers"]]
        return next(container for container in every if container["name"] == name)

    def here(self, text):
        """Put this test's roots and port in the place of the rendered ones."""
        text_here = re.sub(
            rf'(?<![\w./-])/({"|".join(ROOTS)})(?=[/"\s]|$)', rf"{self.folder}/\1", text
        )
        return text_here.replace(f"127.0.0.1:{RENDERED_PORT}", f"127.0.0.1:{self.port}")

    def command(self, name):
        container = self.container(name)
        words = [
            self.here(word) for word in [*container.get("command", []), *container.get("args", [])]
        ]
        for at, word in enumerate(words):
            if word == "--port" and words[at + 1] == RENDERED_PORT:
                words[at + 1] = self.port
        return [*PROGRAM, *words] if name in TOOLS else words

    def environment(self, name, more):
        """The container's variables, expanded as the kubelet does, and no other but PATH."""
        variables: dict[str, str] = {}
        for variable in self.container(name)["env"]:
            value = (
                variable["value"]
                if "value" in variable
                else self._value_from(**variable["valueFrom"])
            )
            variables[variable["name"]] = re.sub(
                r"\$\((\w+)\)", lambda container: variables[container[1]], self.here(value)
            )
        if name in TOOLS:
            return {"PATH": os.environ["PATH"], **variables, **self.tools, **more}
        return {"PATH": f"{self.programs}:/usr/bin:/bin", **variables, **more}

    def _value_from(self, fieldRef=None, configMapKeyRef=None):  # noqa: N803
        if configMapKeyRef:
            return self.maps[configMapKeyRef["name"]]["data"][configMapKeyRef["key"]]
        assert fieldRef
        path = fieldRef["fieldPath"]
        return {
            "metadata.labels['batch.kubernetes.io/job-name']": self.job,
            "metadata.labels['batch.kubernetes.io/controller-uid']": f"uid-of-{self.job}",
        }[path]

    def run(self, name, *extra, **more):
        """Run a container to its end; `extra` options stand before the program of the driver."""
        command = self.command(name)
        at = command.index("--") if "--" in command else len(command)
        return subprocess.run(
            [*command[:at], *extra, *command[at:]],
            env=self.environment(name, more),
            cwd=ROOT,
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )

    def mount(self):
        """Take the write bits from what the server mounts read only."""
        for volume in self.container("vllm")["volumeMounts"]:
            if volume.get("readOnly"):
                for path in [self.folder / volume["mountPath"].strip("/")]:
                    _read_only(path)

    def serve(self, **more):
        """Start the server."""
        return Served(self.command("vllm"), self.environment("vllm", more), self.port)


def _read_only(path):
    for entry in (path, *path.rglob("*")):
        if entry.is_dir() and not entry.is_symlink():
            entry.chmod(0o555)
