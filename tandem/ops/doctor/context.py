"""The subject of the checks, and their findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Literal

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.model import ModelConfig
from tandem.declarations.suite_file import SuiteFile

CheckLevel = Literal["ok", "warn", "fail", "unknown"]
CheckGroup = Literal["account", "network", "capacity", "artifacts", "cluster", "guard", "people"]

EXIT_MISMATCH = 2  # the declaration and the account differ, until somebody changes one
# AWS, the credentials, the network or a half-done deploy; or a necessary fact could not be read
EXIT_EXTERNAL = 3
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class RegistryError(RuntimeError):
    """A registry did not answer."""


class MissingImageError(RegistryError):
    """A registry answered that it has no such image."""


@dataclass(frozen=True, kw_only=True)
class DoctorContext:
    """One environment as declared.

    Args:
        experiments: on the environment.
        now: by which ages and windows are judged, UTC.
        resolve_digest: queries a registry for the digest behind `repository:tag` or
            `repository@sha256:...`; raises RegistryError.
        judge_suite: reads a file of prompts of an experiment with a client of S3, and judges it;
            raises a TandemError if S3 fails.
    """

    environment: Environment
    experiments: tuple[Experiment, ...]
    catalogue: Catalogue
    now: datetime
    resolve_digest: Callable[[str], str]
    judge_suite: Callable[[DoctorContext, Experiment, SuiteFile, Any], Finding]

    def list_models(self) -> list[ModelConfig]:
        """Return every model that the hosted experiments serve, each once."""
        ids = dict.fromkeys(chain.from_iterable(row.all_models() for row in self.experiments))
        return [self.catalogue.models[name] for name in ids if name in self.catalogue.models]


@dataclass(frozen=True)
class Finding:
    """One sentence of a check.

    Args:
        level: `ok` is as it must be, `warn` stops nothing today, `fail` breaks a deploy or a raise,
            `unknown` could not be read.
        message: the fact.
        action: what to do, in one sentence without its full stop; empty if nothing.
        command: to type, or lines to write into a file; empty for none.
        code: the exit code for this line alone: of a `fail` EXIT_MISMATCH or EXIT_EXTERNAL; the
            runner sets that of the others.
        group, check: of the finding; the runner sets them.
    """

    level: CheckLevel
    message: str
    action: str = ""
    command: str = ""
    code: int = EXIT_MISMATCH
    group: CheckGroup = "account"
    check: str = ""
