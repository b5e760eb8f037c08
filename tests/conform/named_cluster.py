"""The cluster that the caller named: kubectl for one context of one file, and the API on a port of
this machine.

Invariant: the file and the context come from the command line of make. The file's current context
is never used.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

USAGE = "make conform KUBECONFIG=FILE CONTEXT=NAME"
CALL_TIMEOUT_S = 300
Object = dict[str, Any]


class NamedClusterError(Exception):
    """The caller named no cluster, or one that is not there."""


@dataclass(frozen=True, slots=True)
class NamedCluster:
    """One context of one kubeconfig.

    Args:
        kubectl: path of the program.
    """

    kubeconfig: Path
    context: str
    kubectl: str

    @classmethod
    def choose(cls, variables: Mapping[str, str]) -> Self:
        """Return the cluster that the variables name.

        Raises:
            NamedClusterError: a variable is missing, or what it names is not there.
        """
        file = variables.get("CONFORM_KUBECONFIG", "")
        context = variables.get("CONFORM_CONTEXT", "")
        if not file or not context:
            raise NamedClusterError(
                f"name the file and the context, the current one is never taken: {USAGE}"
            )
        if not Path(file).is_file():
            raise NamedClusterError(f"KUBECONFIG: {file} is no file: {USAGE}")
        kubectl = shutil.which(variables.get("KUBECTL") or "kubectl")
        if kubectl is None:
            raise NamedClusterError("kubectl is not on the PATH: add KUBECTL=PATH")
        cluster = cls(Path(file).absolute(), context, kubectl)
        contexts = cluster.run("config", "get-contexts", "--output", "name").splitlines()
        if context not in contexts:
            raise NamedClusterError(
                f"CONTEXT: {file} has no {context}, only {', '.join(contexts) or 'none'}"
            )
        return cluster

    def run(self, *words: str, bodies: Iterable[Object] = (), codes: tuple[int, ...] = (0,)) -> str:
        """Run kubectl and return what it printed.

        Args:
            bodies: objects that it reads from its standard input.
            codes: exit codes that are no fault.

        Raises:
            AssertionError: kubectl ended with another code; its words are in the message.
        """
        options = ["--kubeconfig", str(self.kubeconfig), "--context", self.context]
        items = list(bodies)
        result = subprocess.run(
            [self.kubectl, *options, *words, *(("--filename", "-") if items else ())],
            input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
            capture_output=True,
            text=True,
            check=False,
            timeout=CALL_TIMEOUT_S,
        )
        assert result.returncode in codes, (
            f"kubectl {' '.join(words)}: {result.stderr or result.stdout}"
        )
        return result.stdout

    def list_existing_namespaces(self, names: Iterable[str]) -> list[str]:
        """Return those of some namespaces that the cluster has."""
        existing = self.run("get", "namespaces", "--output", "name").split()
        return [name for name in names if f"namespace/{name}" in existing]

    def read_address(self) -> Object:
        """Return the cluster's entry of the kubeconfig: URL and certificate authority."""
        view = json.loads(
            self.run("config", "view", "--raw", "--minify", "--flatten", "--output", "json")
        )
        return view["clusters"][0]["cluster"]

    @contextmanager
    def open_proxy(self) -> Iterator[str]:
        """Serve the API without credentials on a port of 127.0.0.1, as the context's user; yield
        its URL."""
        options = ["--kubeconfig", str(self.kubeconfig), "--context", self.context]
        words = [self.kubectl, *options, "proxy", "--port", "0"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline() if process.stdout else ""
                yield f"http://{line.rsplit(' ', 1)[-1].strip()}"
            finally:
                process.terminate()
