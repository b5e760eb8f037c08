"""How the suites of an experiment become prompts: ours by name, a person's own by file.

Invariant: a file is used only if its bytes have the digest that the experiment states, and its
classes are those that the experiment states. A fault that a log may keep names lines, and nothing
that they hold.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence

from tandem.bench.plan.run_size import RunSize
from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.suite import Suite, read_suite
from tandem.declarations.suite_file import SuiteFile, find_suite_name
from tandem.errors import InputError

_STAGE_ADVICE = "write the lines that `tandem artifacts stage-suite` prints of the file"
_CHECK_ADVICE = "run `tandem check` where the file is at hand: it says what is wrong there"
_PLACE = re.compile(r"^(?:line|entry) \d+(?=:)|^and \d+ more lines$", re.MULTILINE)
# a runner looks at its experiments again and again
_parsed_suites: dict[tuple[str, str, FileOptions], Suite] = {}


def load_experiment_suites(
    size: RunSize, suites: Sequence[str | SuiteFile], read_file: Callable[[SuiteFile], Suite]
) -> tuple[Suite, ...]:
    """Return the suites that a run of a size asks, each with the classes of the size.

    Args:
        size: of the run.
        suites: of the experiment.
        read_file: returns the suite of a file, with all its classes.

    Raises:
        InputError: a file cannot be read, has another digest, is in no known form, or has other
            classes than the experiment states.
        ExternalError: S3 failed.
    """
    asked_names = size.select_names([find_suite_name(suite) for suite in suites])
    entries = [
        suite if isinstance(suite, str) else read_file(suite)
        for suite in suites
        if find_suite_name(suite) in asked_names
    ]
    return size.load_suites(entries)


def read_declared_suite(suite_file: SuiteFile, content: bytes, *, is_logged: bool = False) -> Suite:
    """Return the suite of a file's bytes, with all its classes; each is parsed once.

    Args:
        suite_file: of the experiment.
        content: of the file.
        is_logged: whether a log may keep a fault, which then shows nothing that a row holds.

    Raises:
        InputError: as `load_experiment_suites`.
    """
    _require_digest(suite_file, content)
    options = _build_options(suite_file)
    key = (suite_file.file, suite_file.sha256, options)
    if key not in _parsed_suites:
        try:
            _parsed_suites[key] = read_suite(
                content, name=suite_file.name, where=suite_file.file, options=options
            )
        except InputError as error:
            raise (_hide_rows(error) if is_logged else error) from None
    _require_classes(suite_file, _parsed_suites[key])
    return _parsed_suites[key]


def find_parsed_suite(suite_file: SuiteFile) -> Suite | None:
    """Return the suite of a file that this process has parsed; None if it has not.

    Raises:
        InputError: it has other classes than the experiment states.
    """
    suite = _parsed_suites.get((suite_file.file, suite_file.sha256, _build_options(suite_file)))
    if suite is not None:
        _require_classes(suite_file, suite)
    return suite


def _hide_rows(error: InputError) -> InputError:
    """Return the fault of a file with its places alone."""
    places = ", ".join(_PLACE.findall(error.problem)) or "the file as a whole"
    problem = f"it cannot be read as the experiment says: {places}"
    return InputError(problem, where=error.where, change=_CHECK_ADVICE)


def forget_parsed_suites() -> None:
    """Forget what this process parsed: a runner lives longer than its requests."""
    _parsed_suites.clear()


def _build_options(suite_file: SuiteFile) -> FileOptions:
    return FileOptions(
        prompt_column=suite_file.prompt_column,
        class_field=suite_file.class_field,
        turns=suite_file.turns,
        sample=suite_file.sample,
        seed=suite_file.seed,
    )


def _require_digest(suite_file: SuiteFile, content: bytes) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != suite_file.sha256:
        problem = f"its SHA-256 is {sha256}, and the experiment states {suite_file.sha256}"
        change = f"bring back the file, or {_STAGE_ADVICE}"
        raise InputError(problem, where=suite_file.file, change=change)


def _require_classes(suite_file: SuiteFile, suite: Suite) -> None:
    if not suite_file.classes:
        return
    counts = {name: len(suite.class_prompts(name)) for name in suite.classes}
    differences = [
        f"class {name} has {counts.get(name, 0)} prompts, and the experiment states"
        f" {suite_file.classes.get(name, 0)}"
        for name in counts | suite_file.classes
        if counts.get(name) != suite_file.classes.get(name)
    ]
    if differences:
        raise InputError("; ".join(differences), where=suite_file.file, change=_STAGE_ADVICE)
