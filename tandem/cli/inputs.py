"""What every command starts from: the declared files and what the rules say of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tandem.cli import monitoring_cost
from tandem.cli.console import print_message
from tandem.cli.selection import Selection
from tandem.declarations.catalogue import Catalogue, load_catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.project_image import ProjectImage, list_hosted_images
from tandem.declarations.workspace import SpecFile, Workspace, load_experiment, load_workspace
from tandem.errors import InputError
from tandem.monitoring.cost import MonitoringCost
from tandem.rules import check_workspace


@dataclass(frozen=True, kw_only=True)
class CommandInputs:
    """Declared files, the rules' data, every fault, and the cost of watching by environment."""

    workspace: Workspace
    catalogue: Catalogue
    faults: tuple[SpecFault, ...]
    watching_costs: Mapping[str, MonitoringCost] = field(default_factory=dict)

    def environments(self) -> list[Environment]:
        """Return the environments of good form, in the order of their names."""
        return [file.record for file in self.workspace.environments.values()]

    def list_experiments(self, environment: Environment) -> list[Experiment]:
        """Return the experiments an environment hosts, in its own order."""
        files = self.workspace.experiments
        return [files[name].record for name in environment.experiments if name in files]

    def list_images(self, environment: Environment) -> tuple[ProjectImage, ...]:
        """Return the images of ours that an environment's pods run."""
        return list_hosted_images(self.list_experiments(environment))

    def find_experiment(self, environment: Environment, name: str) -> Experiment:
        """Return an experiment that an environment hosts.

        Raises:
            InputError: it hosts none of this name.
        """
        experiments = {
            experiment.name: experiment for experiment in self.list_experiments(environment)
        }
        if name not in experiments:
            change = f"name one of: {', '.join(experiments)}"
            suggestions = difflib.get_close_matches(name, experiments, n=1)
            if suggestions:
                change = f"did you mean {suggestions[0]!r}?"
            problem = "no experiment is named"
            if name:
                problem = f"{environment.name} hosts no experiment {name!r}"
            raise InputError(problem, where="--experiment", change=change)
        return experiments[name]


def require_variants(experiment: Experiment, names: Iterable[str]) -> None:
    """Refuse a name that is no variant of the experiment.

    Raises:
        InputError: there is one.
    """
    variants = [variant.name for variant in experiment.all_variants()]
    unknown_names = sorted(set(names) - set(variants))
    if unknown_names:
        raise InputError(
            f"{experiment.name} has no variant {', '.join(unknown_names)}",
            where="--variants",
            change=f"name some of: {', '.join(variants)}",
        )


def read_inputs(selection: Selection, now: datetime | None = None) -> CommandInputs:
    """Load and judge the chosen environments and what they host; everything when none is named.

    Args:
        selection: environments and folders.
        now: the moment by which dates are judged, UTC; None judges no date.

    Raises:
        SpecError: a folder or a named file does not exist.
    """
    workspace = load_workspace(selection.environments, selection.experiments, selection.names)
    catalogue = load_catalogue()
    faults = workspace.faults + check_workspace(workspace, catalogue, now)
    costs = monitoring_cost.compute_costs(workspace, faults)
    return CommandInputs(
        workspace=workspace,
        catalogue=catalogue,
        watching_costs=costs,
        faults=(*faults, *monitoring_cost.list_faults(workspace, costs)),
    )


def read_legal_inputs(selection: Selection) -> CommandInputs:
    """Load, judge, and refuse what may not be built; allowed warnings stay in `faults`.

    Raises:
        SpecError: there is a refusal, or with `strict` a warning.
    """
    inputs = read_inputs(selection)
    blocking_faults = [
        fault for fault in inputs.faults if selection.strict or fault.severity == "refusal"
    ]
    if blocking_faults:
        raise SpecError(blocking_faults)
    return inputs


def read_experiment(selection: Selection, name: str) -> SpecFile[Experiment]:
    """Load a valid experiment that no environment has to host; say if it comes with Tandem.

    Raises:
        SpecError: there is no such experiment, or its file is malformed.
    """
    experiment_file = load_experiment(selection.experiments, name)
    own_file = selection.experiments / f"{name}.yaml"
    if experiment_file.document.file != str(own_file):
        print_message(
            f"experiment {name}: the one that comes with Tandem, for there is no {own_file}"
        )
    return experiment_file


def read_legal_experiment(selection: Selection, name: str, catalogue: Catalogue) -> Experiment:
    """Load an experiment that no environment has to host, and refuse what the rules refuse.

    Raises:
        SpecError: there is no such experiment, or it is refused.
    """
    experiment_file = read_experiment(selection, name)
    faults = check_workspace(Workspace(experiments={name: experiment_file}), catalogue)
    refusals = [fault for fault in faults if fault.severity == "refusal"]
    if refusals:
        raise SpecError(refusals)
    return experiment_file.record
