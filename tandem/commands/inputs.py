"""What every command starts from: the declared files and what the rules say of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tandem.rules import judge
from tandem.spec.catalogue import Catalogue, catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import Fault, SpecError
from tandem.spec.load import Workspace, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Declared files, the data they are held against, and every fault found."""

    workspace: Workspace
    catalogue: Catalogue
    faults: tuple[Fault, ...]

    def environments(self) -> list[Environment]:
        """Return the environments of good form, in the order of their names."""
        return [declared.environment for declared in self.workspace.environments.values() if declared.environment]

    def hosted(self, environment: Environment) -> list[Experiment]:
        """Return the experiments an environment hosts, in its own order."""
        found = (self.workspace.experiments.get(name) for name in environment.experiments)
        return [declared.experiment for declared in found if declared and declared.experiment]


def read(environments: Path, experiments: Path, names: tuple[str, ...]) -> Inputs:
    """Load and judge the named environments and what they host; everything when none is named.

    Raises:
        SpecError: a folder or a named file does not exist.
    """
    workspace = load(environments, experiments, names)
    known = catalogue()
    return Inputs(workspace=workspace, catalogue=known, faults=workspace.faults + judge(workspace, known))


def legal(environments: Path, experiments: Path, names: tuple[str, ...], *, strict: bool) -> Inputs:
    """Load, judge, and refuse whatever may not be built; the warnings stay in `faults`.

    Raises:
        SpecError: there is a refusal, or with `strict` a warning.
    """
    inputs = read(environments, experiments, names)
    stopping = [fault for fault in inputs.faults if strict or fault.severity == "refusal"]
    if stopping:
        raise SpecError(stopping)
    return inputs
