"""What a pod's manifest asks of a program: the artifact's key, the models, the commands that make what is missing.

Invariant: what is malformed is refused before anything is read or written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tandem.artifacts.fault import RefusedError
from tandem.artifacts.manifest import inside
from tandem.spec.artifact_key import KEY_VARIABLE, ArtifactKey

HOLDER_VARIABLE = "TANDEM_HOLDER"  # the Job's name and uid: a name that no other run has
COMPILE_VARIABLE = "TANDEM_COMPILE_JOB"  # the command that makes the artifact
STAGE_VARIABLE = "TANDEM_STAGE_JOBS"  # JSON of id@revision -> the command that stages it
MODELS = "models"
ARTIFACTS = "artifacts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
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


def asked_key() -> ArtifactKey:
    """Return the key that the environment asks for.

    Raises:
        RefusedError: there is none, or it is no key of this release.
    """
    said = os.environ.get(KEY_VARIABLE, "")
    change = f"set {KEY_VARIABLE} to the key's fields, as the rendered manifests of this release do"
    try:
        plain = json.loads(said)
    except ValueError as error:
        what = f"{KEY_VARIABLE} is no JSON ({error})" if said else f"{KEY_VARIABLE} is not set"
        raise RefusedError(what, change=change) from None
    if not isinstance(plain, dict):
        raise RefusedError(f"{KEY_VARIABLE} is no mapping", change=change)
    try:
        return ArtifactKey.from_fields(plain)
    except ValueError as error:
        raise RefusedError(f"{KEY_VARIABLE} is {error}", change=f"{change}; use its own tools image") from None


def asked_models(named: Sequence[str]) -> tuple[Snapshot, ...]:
    """Return the snapshots that `--model id@revision` names, each with the command that stages it.

    Raises:
        RefusedError: a name is not in that form, or the environment's commands are no JSON.
    """
    commands = _commands()
    found: list[Snapshot] = []
    for name in named:
        identity, _, revision = name.partition("@")
        try:
            inside(f"{identity}/{revision}")
            formed = identity.count("/") == 1 and bool(revision) and "/" not in revision
        except ValueError:
            formed = False
        if not formed:
            raise RefusedError(f"{name!r} is no model", change="give --model as organisation/name@revision")
        command = str(commands.get(name, f"the job that stages {name}"))
        found.append(Snapshot(id=identity, revision=revision, command=command))
    return tuple(found)


def asked_compile() -> str:
    """Return the command that makes the artifact, in words where the environment does not say it."""
    return os.environ.get(COMPILE_VARIABLE) or "the job that compiles it"


def asked_holder() -> str:
    """Return who runs this.

    Raises:
        RefusedError: nobody is named.
    """
    holder = os.environ.get(HOLDER_VARIABLE, "")
    if not holder or "/" in holder:
        raise RefusedError(
            f"{HOLDER_VARIABLE} is {'no name' if holder else 'not set'}",
            change=f"set {HOLDER_VARIABLE} to a name that no other run has, such as the Job's",
        )
    return holder


def _commands() -> dict[str, Any]:
    said = os.environ.get(STAGE_VARIABLE) or "{}"
    try:
        plain = json.loads(said)
    except ValueError as error:
        raise RefusedError(f"{STAGE_VARIABLE} is no JSON ({error})", change="use the rendered manifest") from None
    if not isinstance(plain, dict):
        raise RefusedError(f"{STAGE_VARIABLE} is no mapping", change="use the rendered manifest")
    return plain
