"""The program for each image, its credentials, and the folders for the bucket's prefixes.

| image | program |
|---|---|
| tools | `python -m tandem.artifacts` |
| run | `python -m tandem.run` |
| lm-eval | `python -m tandem.bench.lm_eval`, without lm-eval: `items.jsonl` or our sums |
| a runtime's | the runtime stand-ins; `python -m tandem.simulator` for `vllm serve` of a server |
| any other, such as llmperf's | none: the container says so and fails |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rehearsal.cluster.pod_commands import ContainerCommand
from rehearsal.cluster.store import Object, ObjectStore
from rehearsal.cluster.tokens import BoundTokens
from rehearsal.run.manifests import account_token
from rehearsal.run.settings import RunFaults
from tandem.run.__main__ import WORK_FOLDER
from tandem.run.runner import POLL_VARIABLE

# the Pod Identity webhook skips these containers
SKIP_ANNOTATION = "eks.amazonaws.com/skip-containers"
COMPONENT_LABEL = "app.kubernetes.io/component"
NAME_LABEL = "app.kubernetes.io/name"
# by the end of the repository's name
_MODULES = {"tools": "tandem.artifacts", "run": "tandem.run", "lm-eval": "tandem.bench.lm_eval"}
_LOCAL_VARIABLES = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
_PREFIX_OPTION = "prefix "
PROGRAMS = "programs"
KNOBS = "knobs"
TRUTH = "truth"


@dataclass(frozen=True, kw_only=True, slots=True)
class PodPrograms:
    """The host of a rehearsed cluster's pods.

    Args:
        store: of the cluster.
        identities: namespace and service account of each Pod Identity association.
        aws_variables: variables that lead to the local endpoint.
        hub_variables: variables that lead to the hub.
        tokens: of the cluster's service accounts.
        build_kubeconfig: of a token and a namespace.
        folder: with the runtime's stand-ins in PROGRAMS, a file of knobs for each arm in KNOBS; the
            simulated servers' logs go to TRUTH.
        poll_s: seconds between the runner's looks.
        s3: a client of the endpoint, for volumes.
        read_faults: returns the faults that are in force.
    """

    store: ObjectStore
    identities: frozenset[tuple[str, str]]
    aws_variables: Mapping[str, str]
    hub_variables: Mapping[str, str]
    tokens: BoundTokens
    build_kubeconfig: Callable[[str, str], Object]
    folder: Path
    poll_s: float
    s3: Any
    read_faults: Callable[[], RunFaults]

    def choose_program(
        self, pod: Object, container: Object, command: ContainerCommand
    ) -> ContainerCommand:
        """Return the process for a container, from its rendered words and variables."""
        repository = container["image"].partition("@")[0].rpartition("/")[2].partition(":")[0]
        module = next(
            (module for end, module in _MODULES.items() if repository.endswith(f"-{end}")), None
        )
        words = command.words
        component, name = (
            pod["metadata"].get("labels", {}).get(key, "") for key in (COMPONENT_LABEL, NAME_LABEL)
        )
        variables = (
            _LOCAL_VARIABLES | dict(command.variables) | self._find_credentials(pod, container)
        )
        if module:
            # a Job's own folder, which its program knows by path
            folder = command.folders.get(str(WORK_FOLDER.parent))
            options = (
                ("--folder", str(folder / WORK_FOLDER.name))
                if folder and words[0] in {"measure", "judge"}
                else ()
            )
            words = (sys.executable, "-m", module, *words, *options)
            variables[POLL_VARIABLE] = str(self.poll_s)
        elif words[:2] == ("vllm", "serve") and component == "server":
            is_crashing = self.read_faults().crashing_server == name
            words = self._build_server(words, name, is_crashing=is_crashing)
        elif "vllm" in repository:
            variables["PATH"] = f"{self.folder / PROGRAMS}{os.pathsep}{variables['PATH']}"
        else:
            words = _build_exit(f"{container['image']} is not rehearsed: nothing stands in for it")
        return replace(command, words=words, variables=variables)

    def list_fillers(self, pod: Object, volume: Object, folder: Path) -> list[Callable[[], None]]:
        """Return functions that copy a claim's prefix to a folder, as Mountpoint would show it.

        A volume of another kind is the token that a real API server projects: the kubeconfig names
        its file.
        """
        if "persistentVolumeClaim" not in volume:
            return []
        claim = self.store.get_object(
            "persistentvolumeclaims",
            pod["metadata"]["namespace"],
            volume["persistentVolumeClaim"]["claimName"],
        )
        spec = self.store.get_object("persistentvolumes", "", claim["spec"]["volumeName"])["spec"]
        prefixes = [
            row.removeprefix(_PREFIX_OPTION)
            for row in spec["mountOptions"]
            if row.startswith(_PREFIX_OPTION)
        ]
        bucket = spec["csi"]["volumeAttributes"]["bucketName"]
        return [partial(copy_prefix, self.s3, bucket, prefix, folder) for prefix in prefixes]

    def _find_credentials(self, pod: Object, container: Object) -> dict[str, str]:
        """Return what the Pod Identity webhook and kubelet add to a container's variables."""
        metadata = pod["metadata"]
        account = pod["spec"].get("serviceAccountName", "default")
        is_skipped = container["name"] in metadata.get("annotations", {}).get(
            SKIP_ANNOTATION, ""
        ).split(",")
        variables = {"HOME": str(self.folder)}
        if (metadata["namespace"], account) in self.identities and not is_skipped:
            variables |= {**self.aws_variables, **self.hub_variables}
        if pod["spec"].get("automountServiceAccountToken", True):
            path = self._mount_token(pod, account)
            variables["KUBECONFIG"] = str(path)
        return variables

    def _mount_token(self, pod: Object, account: str) -> Path:
        """Write a pod's token and the kubeconfig that names its file; return the latter's path."""
        metadata = pod["metadata"]
        folder: Path = self.folder / "tokens" / str(metadata["uid"])
        self.tokens.mount(pod, account_token(metadata["namespace"], account), folder / "token")
        config = self.build_kubeconfig("", metadata["namespace"])
        for row in config["users"]:
            row["user"] = {"tokenFile": str(folder / "token")}
        path = folder / "kubeconfig.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def _build_server(
        self, words: tuple[str, ...], name: str, *, is_crashing: bool
    ) -> tuple[str, ...]:
        if is_crashing:
            return _build_exit("the server crashes, as the rehearsal was told")
        port = words[words.index("--port") + 1]
        knobs = self.folder / KNOBS / f"{name}.yaml"
        if not knobs.exists():
            return _build_exit(f"{name} is no arm of the experiment that is rehearsed")
        options = [
            "--knobs",
            str(knobs),
            "--port",
            port,
            "--log",
            str(self.folder / TRUTH / f"{name}.jsonl"),
        ]
        return (sys.executable, "-m", "tandem.simulator", *options)


def copy_prefix(s3: Any, bucket: str, prefix: str, folder: Path) -> None:
    """Copy every object below a prefix into a folder.

    Raises:
        BotoCoreError, ClientError: S3 failed.
    """
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for row in page.get("Contents", []):
            path = folder / row["Key"].removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, row["Key"], str(path))


def _build_exit(sentence: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"raise SystemExit({sentence!r})")
