"""What every command starts from: the declared files and what the rules say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tandem.commands import watching
from tandem.commands.selection import Selection
from tandem.rules import judge
from tandem.spec.catalogue import Catalogue, catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import Fault, SpecError
from tandem.spec.load import Workspace, load
from tandem.watch.cost import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Declared files, the data they are held against, every fault found, and what watching costs by environment."""

    workspace: Workspace
    catalogue: Catalogue
    faults: tuple[Fault, ...]
    watching: Mapping[str, Cost] = field(default_factory=dict)

    def environments(self) -> list[Environment]:
        """Return the environments of good form, in the order of their names."""
        return [declared.environment for declared in self.workspace.environments.values() if declared.environment]

    def hosted(self, environment: Environment) -> list[Experiment]:
        """Return the experiments an environment hosts, in its own order."""
        found = (self.workspace.experiments.get(name) for name in environment.experiments)
        return [declared.experiment for declared in found if declared and declared.experiment]


def read(chosen: Selection, now: datetime | None = None) -> Inputs:
    """Load and judge the chosen environments and what they host; everything when none is named.

    Args:
        chosen: environments and folders.
        now: the moment by which dates are judged, UTC; None judges no date.

    Raises:
        SpecError: a folder or a named file does not exist.
    """
    workspace = load(chosen.environments, chosen.experiments, chosen.names)
    known = catalogue()
    faults = workspace.faults + judge(workspace, known, now)
    costs = watching.costs(workspace, faults)
    return Inputs(
        workspace=workspace, catalogue=known, watching=costs,
        faults=(
            *faults, *watching.over_limit(workspace, costs), *watching.too_many_alarms(workspace, costs),
            *watching.never_measured(workspace, costs),
        ),
    )  # fmt: skip


def legal(chosen: Selection) -> Inputs:
    """Load, judge, and refuse whatever may not be built; warnings that may stand remain in `faults`.

    Raises:
        SpecError: there is a refusal, or with `strict` a warning.
    """
    inputs = read(chosen)
    stopping = [fault for fault in inputs.faults if chosen.strict or fault.severity == "refusal"]
    if stopping:
        raise SpecError(stopping)
    return inputs
