"""Runs the real CDK CLI of node_modules against the endpoint, and reads CloudFormation's answer."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.installation import REPOSITORY
from rehearsal.aws.sandbox import EnvironmentSandbox

CLI = REPOSITORY / "node_modules" / ".bin" / "cdk"
TIMEOUT_S = 600.0  # a deploy takes 20 s on an idle machine


class CdkError(RuntimeError):
    """The CLI ended with an error; the message is the end of its output."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CdkCli:
    """The CLI bound to one endpoint, one app and one scene.

    Args:
        app_command: value of `--app`.
        work_folder: directory for the CLI's cache, the assembly and the log.
    """

    endpoint: AwsEndpoint
    sandbox: EnvironmentSandbox
    work_folder: Path
    app_command: str = f"{shlex.quote(sys.executable)} app.py"

    @property
    def log(self) -> Path:
        """All that the CLI printed."""
        return self.work_folder / "cdk.log"

    @property
    def stack_pattern(self) -> str:
        """The pattern of the environment's stacks."""
        return f"{self.sandbox.name}/*"

    def run(self, *arguments: str, folder: Path = REPOSITORY) -> str:
        """Run the CLI and return its output.

        Args:
            arguments: the command and its arguments.
            folder: working directory; the app of a cdk.json there is the CLI's app.

        Raises:
            CdkError: the CLI ended with another code than 0, or not in time.
        """
        if not CLI.exists():
            raise CdkError("there is no CDK CLI in node_modules; `make setup` installs it")
        command = [str(CLI), *arguments, "--no-notices", "--no-color"]
        with self.log.open("a+b") as log:
            log.write(f"\n$ cdk {' '.join(arguments)}\n".encode())
            log.flush()
            start = log.tell()
            try:
                code: int | str = subprocess.run(
                    command,
                    cwd=folder,
                    env=self._environment_variables(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=TIMEOUT_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = f"none within {TIMEOUT_S:.0f} s"
            log.seek(start)
            output = log.read().decode(errors="replace")
        if code != 0:
            raise CdkError(f"cdk {arguments[0]} ended with code {code}:\n{output.strip()[-3000:]}")
        return output

    def _environment_variables(self) -> dict[str, str]:
        """Return the caller's variables but AWS and CDK settings; this Python is first in path."""
        caller_variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "CDK_"))
        }
        path = (
            f"{Path(sys.executable).parent}{os.pathsep}{caller_variables.get('PATH', os.defpath)}"
        )
        return {
            **caller_variables,
            **self.endpoint.client_environment(self.work_folder / "home"),
            "PATH": path,
        }

    def _app_arguments(self) -> tuple[str, ...]:
        context = {
            "environments": self.sandbox.environments,
            "experiments": self.sandbox.experiments,
            "env": self.sandbox.name,
        }
        pairs = (
            part for name, value in context.items() for part in ("--context", f"{name}={value}")
        )
        return ("--app", self.app_command, "--output", str(self.work_folder / "cdk.out"), *pairs)

    def bootstrap(self, qualifier: str) -> None:
        """Bootstrap account and region with the environment's qualifier, as docs/deploy.md says.

        The CLI runs in a folder without an app. For the app of cdk.json it would first synthesize
        every environment, and two CLIs at once would wait for each other's lock on the repository's
        cdk.out and fail.
        """
        target = f"aws://{self.endpoint.account}/{self.endpoint.region}"
        self.run(
            "bootstrap",
            target,
            "--qualifier",
            qualifier,
            "--toolkit-stack-name",
            f"CDKToolkit-{qualifier}",
            folder=self.work_folder,
        )

    def deploy(self, *flags: str) -> str:
        """Synthesize and deploy all stacks in their order."""
        return self.run(
            "deploy",
            self.stack_pattern,
            "--require-approval",
            "never",
            *flags,
            *self._app_arguments(),
        )

    def diff(self) -> str:
        """Compare the app with the deployed stacks; a difference is a failure."""
        return self.run("diff", self.stack_pattern, "--fail", *self._app_arguments())

    def destroy(self) -> str:
        """Destroy all stacks in reverse order."""
        return self.run("destroy", self.stack_pattern, "--force", *self._app_arguments())


@dataclass(frozen=True, kw_only=True, slots=True)
class StackState:
    """One stack as CloudFormation describes it; two are equal if no deploy came between."""

    name: str
    status: str
    change_time: str
    is_protected: bool
    template: str


def read_stacks(endpoint: AwsEndpoint, environment: str) -> dict[str, StackState]:
    """Return the environment's stacks by name, without those that are gone."""
    cloudformation = endpoint.client("cloudformation")
    pages = cloudformation.get_paginator("describe_stacks").paginate()
    stacks = [
        stack
        for page in pages
        for stack in page["Stacks"]
        if stack["StackName"].startswith(f"{environment}-")
    ]
    return {
        stack["StackName"]: StackState(
            name=stack["StackName"],
            status=stack["StackStatus"],
            change_time=str(stack.get("LastUpdatedTime", stack["CreationTime"])),
            is_protected=stack["EnableTerminationProtection"],
            template=_read_template(cloudformation, stack["StackName"]),
        )
        for stack in sorted(stacks, key=lambda stack: str(stack["CreationTime"]))
        if stack["StackStatus"] != "DELETE_COMPLETE"
    }


def _read_template(cloudformation: Any, name: str) -> str:
    return str(cloudformation.get_template(StackName=name)["TemplateBody"])
