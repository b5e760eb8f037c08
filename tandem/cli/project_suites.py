"""The files of prompts that an experiment names, as far as they are at hand.

Invariant: a path counts from the folder that holds experiments/. A file that is not there is no
fault of an experiment: its digest stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.bench.suites.suite import Suite
from tandem.cli.console import format_count
from tandem.cli.selection import Selection
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecFault
from tandem.declarations.suite_file import SuiteFile
from tandem.declarations.workspace import SpecFile
from tandem.errors import InputError, convert_os_errors
from tandem.run.experiment_suites import read_declared_suite


def find_project_file(selection: Selection, suite: SuiteFile) -> Path | None:
    """Return the path of a suite's file; None where it is not at hand."""
    path = selection.experiments.absolute().parent / suite.file
    return path if path.exists() else None


def read_project_suite(selection: Selection, suite: SuiteFile) -> Suite:
    """Return a suite of an experiment, with all its classes.

    Raises:
        InputError: the file is not at hand or cannot be read, has another digest, is in no known
            form, or has other classes than the experiment states.
    """
    return read_declared_suite(suite, _read_file(selection, suite))


def read_project_suites(selection: Selection, experiment: Experiment) -> dict[str, Suite]:
    """Return the suites whose files are at hand, by name.

    Raises:
        InputError: a file that is at hand cannot be used.
    """
    return {
        suite.name: read_project_suite(selection, suite)
        for suite in experiment.list_suite_files()
        if find_project_file(selection, suite) is not None
    }


@dataclass(frozen=True, kw_only=True)
class SuiteCheck:
    """What a check sees of the files of prompts that one experiment names.

    Args:
        suites: that were read, by name.
        absent: paths of the files that are not at hand.
        faults: of the files at hand, at the experiment's keys.
    """

    suites: dict[str, Suite]
    absent: tuple[str, ...]
    faults: tuple[SpecFault, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return what `tandem check --json` prints of them."""
        counts = {name: count_classes(suite) for name, suite in self.suites.items()}
        return {"prompts": counts, "not_at_hand": list(self.absent)}


def count_classes(suite: Suite) -> dict[str, int]:
    """Return how many prompts each class of a suite has."""
    return {name: len(suite.class_prompts(name)) for name in suite.classes}


def describe_suite(suite: Suite) -> str:
    """Return how many prompts a suite has, by class."""
    counts = ", ".join(f"{name} {count}" for name, count in count_classes(suite).items())
    return f"{format_count(len(suite.prompts), 'prompt')}: {counts}"


def check_project_suites(selection: Selection, declaration: SpecFile[Experiment]) -> SuiteCheck:
    """Check form, ids and classes of the files at hand, and their lengths by an estimate."""
    experiment = declaration.record
    suites = {}
    absent = []
    faults = []
    for index, suite in enumerate(experiment.suites):
        if not isinstance(suite, SuiteFile):
            continue
        if find_project_file(selection, suite) is None:
            absent.append(suite.file)
            continue
        path = f"suites[{index}].file"
        try:
            suites[suite.name] = read_project_suite(selection, suite)
        except InputError as fault:
            got = f"{fault.where}: {fault.problem}"
            faults.append(declaration.document.build_fault(path, got, "", fault.change))
    return SuiteCheck(suites=suites, absent=tuple(absent), faults=tuple(faults))


def _read_file(selection: Selection, suite: SuiteFile) -> bytes:
    path = find_project_file(selection, suite)
    root = selection.experiments.absolute().parent
    if path is None:
        change = f"put the file there, below the folder that holds {selection.experiments.name}/"
        raise InputError("file not found", where=str(root / suite.file), change=change)
    with convert_os_errors("it cannot be read", path, "correct the path or its rights"):
        return path.read_bytes()
