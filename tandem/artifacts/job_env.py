"""What a pod's manifest asks of a program: the artifact's key, the models, the commands that make what is missing.

Invariant: what is malformed is refused before anything is read or written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tandem.artifacts.manifest import validate_path
from tandem.errors import InputError
from tandem.spec.artifact_key import KEY_VARIABLE, ArtifactKey

HOLDER_VARIABLE = "TANDEM_HOLDER"  # the Job's name and uid: a name that no other run has
COMPILE_VARIABLE = "TANDEM_COMPILE_JOB"  # the command that makes the artifact
STAGE_VARIABLE = "TANDEM_STAGE_JOBS"  # JSON of id@revision -> the command that stages it
MODELS = "models"
ARTIFACTS = "artifacts"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReference:
    """One model snapshot that is needed.

    Args:
        id: organisation/name. revision: commit or branch.
        command: starts the job that stages it.
    """

    id: str
    revision: str
    command: str

    @property
    def name(self) -> str:
        """Return id@revision."""
        return f"{self.id}@{self.revision}"

    @property
    def path(self) -> str:
        """Return its folder below the models' mount."""
        return f"{self.id}/{self.revision}"

    @property
    def prefix(self) -> str:
        """Return where it is stored, without a slash at its end."""
        return f"{MODELS}/{self.path}"


def read_artifact_key() -> ArtifactKey:
    """Return the key that the environment asks for.

    Raises:
        InputError: there is none, or it is no key of this release.
    """
    text = os.environ.get(KEY_VARIABLE, "")
    change = f"set {KEY_VARIABLE} to the key's fields, as the rendered manifests of this release do"
    try:
        fields = json.loads(text)
    except ValueError as error:
        problem = f"{KEY_VARIABLE} is no JSON ({error})" if text else f"{KEY_VARIABLE} is not set"
        raise InputError(problem, change=change) from None
    if not isinstance(fields, dict):
        raise InputError(f"{KEY_VARIABLE} is no mapping", change=change)
    try:
        return ArtifactKey.from_fields(fields)
    except ValueError as error:
        raise InputError(f"{KEY_VARIABLE} is {error}", change=f"{change}; use its own tools image") from None


def parse_model_references(names: Sequence[str]) -> tuple[ModelReference, ...]:
    """Return the snapshots that `--model id@revision` names, each with the command that stages it.

    Raises:
        InputError: a name is not in that form, or the environment's commands are no JSON.
    """
    commands = _read_stage_commands()
    references: list[ModelReference] = []
    for name in names:
        model_id, _, revision = name.partition("@")
        try:
            validate_path(f"{model_id}/{revision}")
            is_valid = model_id.count("/") == 1 and bool(revision) and "/" not in revision
        except ValueError:
            is_valid = False
        if not is_valid:
            raise InputError(f"{name!r} is no model", change="give --model as organisation/name@revision")
        command = str(commands.get(name, f"the job that stages {name}"))
        references.append(ModelReference(id=model_id, revision=revision, command=command))
    return tuple(references)


def read_compile_command() -> str:
    """Return the command that makes the artifact, in words where the environment does not say it."""
    return os.environ.get(COMPILE_VARIABLE) or "the job that compiles it"


def read_holder() -> str:
    """Return who runs this.

    Raises:
        InputError: nobody is named.
    """
    holder = os.environ.get(HOLDER_VARIABLE, "")
    if not holder or "/" in holder:
        raise InputError(
            f"{HOLDER_VARIABLE} is {'no name' if holder else 'not set'}",
            change=f"set {HOLDER_VARIABLE} to a name that no other run has, such as the Job's",
        )
    return holder


def _read_stage_commands() -> dict[str, Any]:
    text = os.environ.get(STAGE_VARIABLE) or "{}"
    try:
        commands = json.loads(text)
    except ValueError as error:
        raise InputError(f"{STAGE_VARIABLE} is no JSON ({error})", change="use the rendered manifest") from None
    if not isinstance(commands, dict):
        raise InputError(f"{STAGE_VARIABLE} is no mapping", change="use the rendered manifest")
    return commands
