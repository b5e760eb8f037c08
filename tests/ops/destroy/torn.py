"""Real processes of `tandem destroy`, killed at chosen requests, each from the same deployed
state."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bucket_specs import folders
from doubles.fault_proxy.proxy import FaultProxy

from rehearsal.aws.endpoint import AwsEndpoint

ROOT = Path(__file__).parents[3]
END_S = 300
CHANGES = {"DeleteStack", "UpdateTerminationProtection", "UpdateClusterConfig"}


@dataclass(kw_only=True)
class Torn:
    """One deployed environment, kept as a folder of state that every trial starts from.

    Args:
        name: of the environment.
        declared: the folder with its environments/ and experiments/.
        state: of an endpoint that was stopped after the deploy.
        home: folder for what the trials leave.
        variables: of the processes, besides those that lead to the endpoint.
    """

    name: str
    account: str
    region: str
    declared: Path
    state: Path
    home: Path
    flags: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    expected: list[Any] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @contextmanager
    def again(self) -> Iterator[tuple[AwsEndpoint, FaultProxy]]:
        """The deployed state once more, behind a proxy."""
        copy = self.home / "state"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.state, copy)
        endpoint = AwsEndpoint(account=self.account, region=self.region, state_dir=copy)
        with endpoint, FaultProxy(endpoint.url) as proxy:
            # the endpoint reads Lambda's stored functions at the first request to Lambda, and
            # deleting a custom resource is none
            endpoint.client("lambda").list_functions()
            yield endpoint, proxy

    def start(self, endpoint: AwsEndpoint, proxy: FaultProxy) -> subprocess.Popen[str]:
        there = {"AWS_ENDPOINT_URL": proxy.url, "AWS_ENDPOINT_URL_S3": proxy.url, **self.variables}
        words = [
            "destroy",
            "--env",
            self.name,
            "--yes-i-mean",
            self.name,
            "--poll-s",
            "0.05",
            "--json",
            *self.flags,
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "tandem", *words, *folders(self.declared)],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **endpoint.client_environment(self.home), **there},
        )

    def to_the_end(self, endpoint: AwsEndpoint, proxy: FaultProxy) -> tuple[int, list[Any], str]:
        """Run once more; exit code, what is left, and what was said."""
        out, err = self.start(endpoint, proxy).communicate(timeout=END_S)
        return (
            (code := json.loads(out)["exit_code"] if out else 3),
            left_of(json.loads(out)) if code < 2 else [],
            err,
        )

    def undisturbed(self) -> None:
        """Run once unharmed: what every other run is held against, and how many requests there
        are."""
        with self.again() as (endpoint, proxy):
            code, self.expected, said = self.to_the_end(endpoint, proxy)
            assert code == 0, said
            self.requests = [one.operation for one in proxy.log]

    def moment(self, chance: random.Random) -> tuple[int, str]:
        """Draw when to kill: half of the times at a request that changes something."""
        changing = [number for number, name in enumerate(self.requests, 1) if name in CHANGES]
        number = (
            chance.choice(changing)
            if chance.random() < 0.5
            else chance.randint(1, len(self.requests))
        )
        return number, chance.choice(["asked", "done"])

    def killed(self, endpoint: AwsEndpoint, proxy: FaultProxy, moment: tuple[int, str]) -> bool:
        """Run and kill at a request, before it is sent on or when it is done and not answered;
        whether it still ran."""
        process = self.start(endpoint, proxy)
        lock = threading.Lock()
        seen = [0]

        def watch(when: str, _request: Any) -> None:
            with lock:
                seen[0] += when == moment[1]
                if seen[0] == moment[0] and when == moment[1]:
                    process.kill()

        proxy.moment_callback = watch
        try:
            process.communicate(timeout=END_S)
        finally:
            proxy.moment_callback = None
        proxy.wait_until_idle()
        return process.returncode == -signal.SIGKILL


def left_of(document: dict[str, Any]) -> list[Any]:
    """What a run says is left, without sizes."""
    kept = [{key: value for key, value in row.items() if key != "size"} for row in document["kept"]]
    return [kept, document["orphans"], document["unsearched"]]
