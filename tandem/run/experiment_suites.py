"""How the suites of an experiment become prompts: ours by name, a person's own by file.

Invariant: a file is used only if its classes are those that the experiment states. A fault that a
log may keep names lines, and nothing that they hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from tandem.bench.plan.run_size import RunSize
from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.suite import Suite, read_suite
from tandem.declarations.suite_file import SuiteFile, find_suite_name
from tandem.errors import InputError

STAGE_ADVICE = "write the lines that `tandem artifacts stage-suite` prints of the file"
_CHECK_ADVICE = "run `tandem check` where the file is at hand: it says what is wrong there"


def select_suites(size: RunSize, suites: Sequence[str | SuiteFile]) -> list[str | SuiteFile]:
    """Return those of an experiment's suites that a run of a size sends."""
    names = size.select_names([find_suite_name(suite) for suite in suites])
    return [suite for suite in suites if find_suite_name(suite) in names]


def read_declared_suite(
    suite_file: SuiteFile, content: bytes, sha256: str, *, is_logged: bool = False
) -> Suite:
    """Return the suite of a file's bytes, with all its classes.

    Args:
        suite_file: of the experiment.
        content: of the file.
        sha256: of the content, as the caller computed it.
        is_logged: whether a log may keep a fault, which then shows nothing that a row holds.

    Raises:
        InputError: the content has another digest or other classes than the experiment states, or
            is in no known form.
    """
    if sha256 != suite_file.sha256:
        problem = f"its SHA-256 is {sha256}, and the experiment states {suite_file.sha256}"
        change = f"bring back the file, or {STAGE_ADVICE}"
        raise InputError(problem, where=suite_file.file, change=change)
    options = FileOptions(
        prompt_column=suite_file.prompt_column,
        class_field=suite_file.class_field,
        turns=suite_file.turns,
        sample=suite_file.sample,
        seed=suite_file.seed,
        is_declared=True,
    )
    try:
        suite = read_suite(
            content,
            name=suite_file.name,
            where=suite_file.file,
            options=options,
            sha256=sha256,
        )
    except InputError as error:
        raise (_hide_rows(error) if is_logged else error) from None
    _require_classes(suite_file, suite)
    return suite


def _hide_rows(error: InputError) -> InputError:
    """Return the fault of a file with its places alone."""
    places = ", ".join(error.places) or "the file as a whole"
    problem = f"it cannot be read as the experiment says: {places}"
    return InputError(problem, where=error.where, change=_CHECK_ADVICE)


def _require_classes(suite_file: SuiteFile, suite: Suite) -> None:
    if not suite_file.classes:
        return
    counts = suite.count_classes()
    differences = [
        f"class {name} has {counts.get(name, 0)} prompts, and the experiment states"
        f" {suite_file.classes.get(name, 0)}"
        for name in counts | suite_file.classes
        if counts.get(name) != suite_file.classes.get(name)
    ]
    if differences:
        raise InputError("; ".join(differences), where=suite_file.file, change=STAGE_ADVICE)
