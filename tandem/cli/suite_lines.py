"""The lines by which an experiment names a file of prompts, for `tandem artifacts stage-suite`."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from cyclopts import Parameter
from pydantic import ValidationError

from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.suite import read_suite
from tandem.cli.flags import Whole
from tandem.cli.selection import Selection
from tandem.declarations.record import describe_allowed_values
from tandem.declarations.suite_file import SuiteFile
from tandem.errors import InputError


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SuiteFlags:
    """How prompts are read from the file.

    Args:
        prompt_column: column or key of the prompts
        class_field: column or key of the class of each prompt (default: one class)
        turns: turns of the user to send of a recorded conversation
        sample: draw N prompts by the seed (default: all)
        seed: of the draw
    """

    prompt_column: str | None = None
    class_field: str | None = None
    turns: Whole | None = None
    sample: Whole | None = None
    seed: Whole = 0


NO_SUITE_FLAGS = SuiteFlags()


def draft_suite_lines(
    file: Path, content: bytes, flags: SuiteFlags, selection: Selection
) -> list[str]:
    """Return the lines of YAML that name a file as a suite, with its prompts by class.

    Args:
        file: its path.
        content: of the file.
        flags: of the command.
        selection: whose folder of experiments the file's path counts from.

    Raises:
        InputError: the file has a name that no experiment can state, or is in no known form.
    """
    suite_file = _declare_file(file, hashlib.sha256(content).hexdigest(), flags, selection)
    suite = read_suite(
        content,
        name=suite_file.name,
        where=suite_file.file,
        options=FileOptions(**asdict(flags)),
        sha256=suite_file.sha256,
    )
    fields = suite_file.model_dump(exclude_defaults=True) | {"classes": suite.count_classes()}
    text = yaml.safe_dump({"suites": [fields]}, sort_keys=False, allow_unicode=True)
    return text.splitlines()


def _declare_file(file: Path, sha256: str, flags: SuiteFlags, selection: Selection) -> SuiteFile:
    """Return the declaration of a file; beside the project it stands by its name alone.

    Raises:
        InputError: an experiment cannot state its path or a flag.
    """
    root = selection.experiments.resolve().parent
    path = file.parent.resolve() / file.name  # a link is stored by its own name
    place = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    try:
        return SuiteFile(file=place, sha256=sha256, **asdict(flags))
    except ValidationError as error:
        (fault, *_) = error.errors()
        field = str(fault["loc"][0])
        if field == "file":
            problem = f"an experiment cannot state the path {place!r}"
            change = "rename it: letters, digits, . _ and -, with an ending such as .jsonl"
        else:
            # a flag that is left out stands for null; no flag writes it
            allowed = describe_allowed_values(SuiteFile.model_fields[field], with_null=False)
            flag = f"--{field.replace('_', '-')}"
            problem = f"{flag} {fault['input']!r}; allowed: {allowed}"
            change = "write an allowed value"
        raise InputError(problem, where=str(file), change=change) from error
