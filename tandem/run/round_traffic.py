"""The prompts of a round as a plan knows them: of suites that were read, else as declared.

Invariant: pure. A file that was not read counts by the classes that the experiment states; a file
without them is named, and nothing is guessed of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter

from tandem.bench.plan.run_size import RunSize
from tandem.bench.suites.prompt import Prompt
from tandem.bench.suites.suite import REAL, Suite, load_suite
from tandem.declarations.experiment import Experiment
from tandem.declarations.suite_file import SuiteFile
from tandem.run.experiment_suites import select_suites


@dataclass(frozen=True, kw_only=True)
class RoundTraffic:
    """What a round sends.

    Args:
        suites: of the round; a suite that was not read has as many prompts as it states.
        stated: names of the suites that were not read and count by their stated classes.
        uncounted: names of the suites that were not read and state no classes.
    """

    suites: tuple[Suite, ...]
    stated: tuple[str, ...]
    uncounted: tuple[str, ...]

    def describe(self) -> str:
        """Return the basis of files that were not read, after a semicolon; empty for none."""
        basis = ""
        if self.stated:
            basis += f"; {', '.join(self.stated)} by the stated classes, not read"
        if self.uncounted:
            basis += f"; not counted: {', '.join(self.uncounted)}, not read and without classes"
        return basis


def plan_traffic(
    size: RunSize, experiment: Experiment, file_suites: Mapping[str, Suite]
) -> RoundTraffic:
    """Return what a round of an experiment sends.

    Args:
        size: of the round.
        experiment: as declared.
        file_suites: the files that were read, by name, each with all its classes.
    """
    suites = []
    stated = []
    uncounted = []
    for suite in select_suites(size, experiment.suites):
        if not isinstance(suite, SuiteFile):
            suites.append(load_suite(suite))
        elif suite.name in file_suites:
            suites.append(file_suites[suite.name])
        elif suite.classes:
            suites.append(_draft_suite(suite, experiment.max_output_tokens))
            stated.append(suite.name)
        else:
            uncounted.append(suite.name)

    return RoundTraffic(
        suites=size.narrow_suites(suites), stated=tuple(stated), uncounted=tuple(uncounted)
    )


def _draft_suite(suite_file: SuiteFile, answer_tokens: int) -> Suite:
    """Return a suite of as many prompts as are stated, each with the longest answer.

    The largest class comes first: a quick run sends the first classes of the file, whose order is
    not known here, and takes no longer than this.
    """
    prompts: list[Prompt] = []
    largest_first = sorted(suite_file.classes.items(), key=itemgetter(1), reverse=True)
    for name, count in largest_first:
        prompts += (
            Prompt(id=f"{name}-{number}", class_=name, prompt=name, max_tokens=answer_tokens)
            for number in range(count)
        )
    return Suite(
        name=suite_file.name, prompts=tuple(prompts), sha256=suite_file.sha256, defaults=REAL
    )
