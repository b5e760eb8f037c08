"""What is examined, and what a check says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.model import ModelConfig

CheckLevel = Literal["ok", "warn", "fail", "unknown"]
CheckGroup = Literal["account", "network", "capacity", "artifacts", "cluster", "guard", "people"]

EXIT_MISMATCH = 2  # the declaration and the account differ, until somebody changes one
EXIT_EXTERNAL = 3  # AWS, the credentials, the network or a half-done deploy; or what is needed could not be seen
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class RegistryError(RuntimeError):
    """A registry could not be asked."""


class MissingImageError(RegistryError):
    """A registry answered that it has no such image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorContext:
    """One environment as it is declared.

    Args:
        experiments: that it hosts.
        now: by which ages and windows are judged, UTC.
        resolve_digest: asks a registry for the digest behind `repository:tag` or `repository@sha256:...`; raises
            RegistryError.
    """

    environment: Environment
    experiments: tuple[Experiment, ...]
    catalogue: Catalogue
    now: datetime
    resolve_digest: Callable[[str], str]

    def list_models(self) -> list[ModelConfig]:
        """Return every model that the hosted experiments serve, each once."""
        ids = dict.fromkeys(name for experiment in self.experiments for name in experiment.all_models())
        return [self.catalogue.models[name] for name in ids if name in self.catalogue.models]


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of a check.

    Args:
        level: `ok` is as it must be, `warn` stops nothing today, over `fail` a deploy or a raise will stumble,
            `unknown` could not be seen.
        message: what is so.
        action: what to do about it, in one sentence without its full stop; empty where nothing is to be done.
        command: to type, or lines to write into a file; empty for none.
        code: the exit code that this line alone asks for: of a `fail` EXIT_MISMATCH or EXIT_EXTERNAL; the runner sets
            that of the others.
        group, check: whose it is; the runner sets them.
    """

    level: CheckLevel
    message: str
    action: str = ""
    command: str = ""
    code: int = EXIT_MISMATCH
    group: CheckGroup = "account"
    check: str = ""
