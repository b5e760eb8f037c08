"""What is examined: an environment, what it hosts, and the moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.model import ModelConfig


class RegistryError(Exception):
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
