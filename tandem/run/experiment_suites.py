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


def read_declared_suite(declared: SuiteFile, content: bytes, *, is_logged: bool = False) -> Suite:
    """Return the suite of a file's bytes, with all its classes; each is parsed once.

    Args:
        declared: by the experiment.
        content: of the file.
        is_logged: whether a log may keep a fault, which then shows nothing that a row holds.

    Raises:
        InputError: as `load_experiment_suites`.
    """
    _require_digest(declared, content)
    options = _build_options(declared)
    key = (declared.file, declared.sha256, options)
    if key not in _parsed_suites:
        try:
            _parsed_suites[key] = read_suite(
                content, name=declared.name, where=declared.file, options=options
            )
        except InputError as error:
            raise (_hide_rows(error) if is_logged else error) from None
    _require_classes(declared, _parsed_suites[key])
    return _parsed_suites[key]


def find_parsed_suite(declared: SuiteFile) -> Suite | None:
    """Return the suite of a file that this process has parsed; None if it has not.

    Raises:
        InputError: it has other classes than the experiment states.
    """
    suite = _parsed_suites.get((declared.file, declared.sha256, _build_options(declared)))
    if suite is not None:
        _require_classes(declared, suite)
    return suite


def _hide_rows(error: InputError) -> InputError:
    """Return the fault of a file with its places alone."""
    places = ", ".join(_PLACE.findall(error.problem)) or "the file as a whole"
    problem = f"it cannot be read as the experiment says: {places}"
    return InputError(problem, where=error.where, change=_CHECK_ADVICE)


def _build_options(declared: SuiteFile) -> FileOptions:
    return FileOptions(
        prompt_column=declared.prompt_column,
        class_field=declared.class_field,
        turns=declared.turns,
        sample=declared.sample,
        seed=declared.seed,
    )


def _require_digest(declared: SuiteFile, content: bytes) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != declared.sha256:
        problem = f"its SHA-256 is {sha256}, and the experiment states {declared.sha256}"
        change = f"bring back the file, or {_STAGE_ADVICE}"
        raise InputError(problem, where=declared.file, change=change)


def _require_classes(declared: SuiteFile, suite: Suite) -> None:
    if not declared.classes:
        return
    counts = {name: len(suite.class_prompts(name)) for name in suite.classes}
    differences = [
        f"class {name} has {counts.get(name, 0)} prompts, and the experiment states"
        f" {declared.classes.get(name, 0)}"
        for name in counts | declared.classes
        if counts.get(name) != declared.classes.get(name)
    ]
    if differences:
        raise InputError("; ".join(differences), where=declared.file, change=_STAGE_ADVICE)
