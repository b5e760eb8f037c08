"""The files of prompts that an experiment names, as far as they are at hand.

Invariant: a path counts from the folder that holds experiments/. A file that is not there is no
fault of an experiment: its digest stands for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tandem.bench.suites.suite import Suite, load_suite
from tandem.cli.console import format_count
from tandem.cli.selection import Selection
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecFault
from tandem.declarations.suite_file import DeclaredSuite, SuiteFile, find_suite_name
from tandem.declarations.suite_limit import read_suite_file
from tandem.declarations.workspace import SpecFile
from tandem.errors import InputError
from tandem.run.experiment_suites import read_declared_suite
from tandem.run.prompt_lengths import (
    ESTIMATED,
    describe_long_prompts,
    estimate_tokens,
    measure_prompts,
)

CLASS_ADVICE = (
    "Rename classes in your file, or state another class_field: the figures of a class pool every"
    " suite that has it"
)
LENGTH_ADVICE = "Shorten them, or raise max_prompt_tokens, which compiles again"


def find_project_file(selection: Selection, suite: SuiteFile) -> Path | None:
    """Return the path of a suite's file; None where it is not at hand."""
    path = selection.experiments.absolute().parent / suite.file
    return path if path.exists() else None


def read_project_suite(selection: Selection, suite: SuiteFile) -> Suite:
    """Return a suite of an experiment, with all its classes.

    Raises:
        InputError: the file is not at hand, cannot be read or is too large, has another digest, is
            in no known form, or has other classes than the experiment states.
    """
    path = find_project_file(selection, suite)
    if path is None:
        where = str(selection.experiments.absolute().parent / suite.file)
        change = f"put the file there, below the folder that holds {selection.experiments.name}/"
        raise InputError("file not found", where=where, change=change)
    content = read_suite_file(path)
    return read_declared_suite(suite, content, hashlib.sha256(content).hexdigest())


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
    """What a check finds in the files of prompts that one experiment names.

    Args:
        limit: the longest prompt of the experiment, in tokens.
        suites: of the files at hand, by name.
        longest: of each, about how many tokens its longest prompt has.
        absent: paths of the files that are not at hand.
        faults: of the files at hand, at the experiment's keys.
    """

    limit: int
    suites: Mapping[str, Suite]
    longest: Mapping[str, int]
    absent: Sequence[str]
    faults: Sequence[SpecFault]

    def as_dict(self) -> dict[str, Any]:
        """Return what `tandem check --json` prints of them."""
        rows = {
            name: {
                "classes": suite.count_classes(),
                "estimated_tokens": self.longest[name],
                "notes": suite.notes,
            }
            for name, suite in self.suites.items()
        }
        return {"read": rows, "not_at_hand": self.absent}

    def list_rows(self) -> list[tuple[str, str]]:
        """Return rows of each file: its prompts, the longest and notes; or that it is absent."""
        rows = []
        for name, suite in self.suites.items():
            counts = ", ".join(
                f"{class_} {count}" for class_, count in suite.count_classes().items()
            )
            prompts = format_count(len(suite.prompts), "prompt")
            longest = f"about {self.longest[name]} of {self.limit} tokens"
            rows.append((name, f"{prompts}: {counts}; the longest {longest}, {ESTIMATED}"))
            rows += (("", note.removeprefix(f"{name}: ")) for note in suite.notes)
        absence = "not at hand: its form, classes and lengths are not checked"
        return [*rows, *((path, absence) for path in self.absent)]


def check_project_suites(selection: Selection, declaration: SpecFile[Experiment]) -> SuiteCheck:
    """Check form, ids and classes of the files at hand, and their lengths by an estimate."""
    experiment = declaration.record
    build_fault = declaration.document.build_fault
    suites: dict[str, Suite] = {}
    longest = {}
    absent = []
    faults = []
    for index, suite_file in enumerate(experiment.suites):
        if not isinstance(suite_file, SuiteFile):
            continue
        if find_project_file(selection, suite_file) is None:
            absent.append(suite_file.file)
            continue
        path = f"suites[{index}].file"
        try:
            suite = read_project_suite(selection, suite_file)
        except InputError as error:
            faults.append(build_fault(path, f"{error.where}: {error.problem}", "", error.change))
            continue
        suites[suite.name] = suite
        lengths = measure_prompts(suite, estimate_tokens)
        longest[suite.name] = max(row.tokens for row in lengths)
        long_text = describe_long_prompts(lengths, experiment.max_prompt_tokens)
        if long_text:
            got = f"{suite_file.file}: {long_text} ({ESTIMATED})"
            warning = build_fault(path, got, "", LENGTH_ADVICE)
            faults.append(replace(warning, severity="warning"))

    faults += _find_shared_classes(declaration, suites)
    return SuiteCheck(
        limit=experiment.max_prompt_tokens,
        suites=suites,
        longest=longest,
        absent=absent,
        faults=faults,
    )


def _find_shared_classes(
    declaration: SpecFile[Experiment], suites: Mapping[str, Suite]
) -> Iterator[SpecFault]:
    """Yield a warning for each suite with classes that a suite before it has too."""
    first_suites: dict[str, str] = {}
    for index, suite in enumerate(declaration.record.suites):
        name = find_suite_name(suite)
        shared_classes = [
            f"{class_} of {first_suites[class_]}"
            for class_ in _list_classes(suite, suites)
            if first_suites.setdefault(class_, name) != name
        ]
        if shared_classes:
            got = f"also has {', '.join(shared_classes)}"
            warning = declaration.document.build_fault(f"suites[{index}]", got, "", CLASS_ADVICE)
            yield replace(warning, severity="warning")


def _list_classes(suite: DeclaredSuite, suites: Mapping[str, Suite]) -> tuple[str, ...]:
    """Return the classes of a suite: of a file that was not read, those that are stated."""
    if not isinstance(suite, SuiteFile):
        return load_suite(suite).classes
    if suite.name in suites:
        return suites[suite.name].classes
    return tuple(suite.classes)
