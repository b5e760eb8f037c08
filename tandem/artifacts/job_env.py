"""Inputs from a pod's manifest: the artifact's key, the models, the commands that make them.

Invariant: malformed input is refused before anything is read or written.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tandem.artifacts.driver.log import log_event
from tandem.declarations.artifact_key import KEY_VARIABLE, ArtifactKey
from tandem.errors import InputError, TandemError

HOLDER_VARIABLE = "TANDEM_HOLDER"  # the Job's name and uid: a name that no other run has
COMPILE_VARIABLE = "TANDEM_COMPILE_COMMAND"  # has the runner make the artifact
STAGE_VARIABLE = "TANDEM_STAGE_COMMAND"  # has the runner stage the models
_REVISION = r"[A-Za-z0-9][\w.-]*"


@dataclass(frozen=True, kw_only=True)
class ModelReference:
    """One needed model snapshot.

    Args:
        id: organisation/name.
        revision: a commit, or a branch or tag.
        command: has the snapshot staged.

    Raises:
        InputError: id or revision cannot be a prefix.
    """

    id: str
    revision: str
    command: str = "run this job again"

    def __post_init__(self) -> None:
        """Refuse an id or revision that cannot be a prefix."""
        if (
            not re.fullmatch(f"{_REVISION}/{_REVISION}@{_REVISION}", self.name, re.ASCII)
            or ".." in self.name
        ):
            raise InputError(
                f"{self.name!r} is not a model at a revision",
                change=(
                    "give organisation/name as the hub spells it, and the commit, 40 hexadecimal"
                    " digits"
                ),
            )

    @property
    def name(self) -> str:
        """Return id@revision."""
        return f"{self.id}@{self.revision}"

    @property
    def path(self) -> str:
        """Return the snapshot's folder below the models' mount."""
        return f"{self.id}/{self.revision}"

    @property
    def prefix(self) -> str:
        """Return the snapshot's prefix without a final slash; as `ModelConfig.prefix`."""
        return f"models/{self.path}"

    def as_fields(self) -> dict[str, Any]:
        """Return the fields for the snapshot's manifest."""
        return {"id": self.id, "revision": self.revision}

    @property
    def is_pinned(self) -> bool:
        """Return whether the revision is a commit."""
        return re.fullmatch(r"[0-9a-f]{40}", self.revision) is not None


def adopt_region() -> None:
    """Have boto3 use the pod's region: AWS sets AWS_REGION in pods, boto3 reads another name."""
    if "AWS_REGION" in os.environ:
        os.environ.setdefault("AWS_DEFAULT_REGION", os.environ["AWS_REGION"])


def log_fault(error: TandemError, exit_code: int) -> None:
    """Write the last line of a process that failed."""
    log_event(
        error.problem, level="error", where=error.where, change=error.change, exit_code=exit_code
    )


def add_bucket_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --bucket; its default is the pod's TANDEM_BUCKET."""
    bucket = os.environ.get("TANDEM_BUCKET")
    bucket_help = "of models, artifacts and results"
    parser.add_argument("--bucket", default=bucket, required=not bucket, help=bucket_help)


def read_artifact_key() -> ArtifactKey:
    """Return the artifact key from the environment variables.

    Raises:
        InputError: there is no key, or it is no key of this release.
    """
    change = f"set {KEY_VARIABLE} to the key's fields, as the rendered manifests of this release do"
    fields = read_json_variable(KEY_VARIABLE, dict, change=change)
    try:
        return ArtifactKey.from_fields(fields)
    except ValueError as error:
        raise InputError(
            f"{KEY_VARIABLE} is {error}", change=f"{change}; use its own tools image"
        ) from None


def read_json_variable(
    name: str,
    kind: type[dict[str, Any] | list[Any]],
    default: str = "",
    change: str = "use the rendered manifest",
) -> Any:
    """Return the JSON value of a variable.

    Args:
        name: of the variable.
        kind: required type of the value.
        default: text for an unset variable; empty refuses an unset one.
        change: advice for the error.

    Raises:
        InputError: the text is no JSON of this kind, or the variable is not set and has no default.
    """
    text = os.environ.get(name) or default
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, kind):
            return value
    problem = f"{name} is not set"
    if text:
        kind_name = "mapping" if kind is dict else "list"
        problem = f"{name} is no JSON {kind_name}"
    raise InputError(problem, change=change)


def parse_model_references(names: Sequence[str]) -> tuple[ModelReference, ...]:
    """Return the snapshots that `--model id@revision` names, each with the command that stages it.

    Raises:
        InputError: a name is not in that form.
    """
    command = os.environ.get(STAGE_VARIABLE)
    references = []
    for name in names:
        id_, _, revision = name.partition("@")
        stage_command = command or f"the job that stages {name}"
        references.append(ModelReference(id=id_, revision=revision, command=stage_command))
    return tuple(references)


def read_compile_command() -> str:
    """Return the command that makes the artifact; a description if the variable is not set."""
    return os.environ.get(COMPILE_VARIABLE) or "the job that compiles it"


def read_holder() -> str:
    """Return the name of this run, the holder of leases.

    Raises:
        InputError: the variable is not set, or has a slash.
    """
    holder = os.environ.get(HOLDER_VARIABLE, "")
    if not holder or "/" in holder:
        raise InputError(
            f"{HOLDER_VARIABLE} is not set, or not a name",
            change="set it to a name that no other run has, such as the Job's",
        )
    return holder
