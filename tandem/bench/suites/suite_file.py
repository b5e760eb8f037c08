"""The prompts of a file of one's own, in any form that docs/suites.md shows.

Invariant: every row is read before the file is refused, so one error lists all faults; what is left
out or not used of a file is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from tandem.bench.suites.conversation import OmissionError
from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.file_row import FileRow, RowError
from tandem.bench.suites.file_rows import read_rows
from tandem.bench.suites.prompt import Prompt
from tandem.bench.suites.row_prompt import REQUEST_KEYS, USED_KEYS, build_prompt, list_fields
from tandem.errors import InputError

MAX_FAULTS = 20  # faults in an error; a file of another format has one for every line
MAX_CLASSES = 100  # each is a block of its own in every round
SHOWN_KEYS = 12
CHANGE = "correct these; docs/suites.md shows each form of a file"
OWN_CHANGE = "write one JSON object a line, UTF-8, with the keys of docs/suites.md"
OWN_KEYS = frozenset(entry.encode_name for entry in msgspec.structs.fields(Prompt))


@dataclass(kw_only=True)
class FilePrompts:
    """The prompts of a file while its rows are read.

    Args:
        prompts: by id, in the file's order.
        places: where each stands in the file, by id.
        faults: of rows, each with its place.
        omitted: reason to number of conversations that are left out.
        unused_keys: of the rows; what they say is not sent.
        class_values: class to the first value of the class field that gives it.
        idle_option: what the user says and no row needs; empty for none.
    """

    prompts: dict[str, Prompt] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    omitted: Counter[str] = field(default_factory=Counter)
    unused_keys: dict[str, None] = field(default_factory=dict)
    class_values: dict[str, str] = field(default_factory=dict)
    idle_option: str = ""

    def list_notes(self) -> Iterator[str]:
        """Yield what a reader of the figures must know of the file."""
        if self.omitted:
            reasons = ", ".join(f"{count} with {reason}" for reason, count in self.omitted.items())
            yield f"conversations left out: {reasons}"
        if self.idle_option:
            yield f"no recorded conversation, so {self.idle_option} changes nothing"
        if self.unused_keys:
            keys = list(self.unused_keys)
            if len(keys) > SHOWN_KEYS:
                keys[SHOWN_KEYS:] = [f"{len(keys) - SHOWN_KEYS} more"]
            yield f"not used of its rows: {', '.join(keys)}"

    def add_prompt(self, prompt: Prompt, place: str) -> None:
        """Add the prompt of a row, or the fault that its id is taken."""
        if self.prompts.setdefault(prompt.id, prompt) is not prompt:
            self.faults.append((place, f"duplicate id {prompt.id!r}"))
        self.places.setdefault(prompt.id, place)


def read_prompts(content: bytes, where: str, options: FileOptions) -> FilePrompts:
    """Return the prompts of a file.

    Args:
        content: of the file.
        where: its path.
        options: what the user says of it.

    Raises:
        InputError: the file is in no known form, or rows are faulty; the error names the first
            MAX_FAULTS faults.
    """
    rows = read_rows(content, where, options)
    is_own = _is_own_form(rows, options)
    file = _read_own_rows(rows) if is_own else _read_rows(rows, options)
    if file.faults:
        _refuse_rows(file.faults, len(rows), where, OWN_CHANGE if is_own else CHANGE)
    if not file.prompts:
        problem = "; ".join(["the file has no prompt", *file.list_notes()])
        raise InputError(problem, where=where, change="name a file with prompts")
    has_turns = any(prompt.messages is not None for prompt in file.prompts.values())
    if options.turns is not None and (is_own or not has_turns):
        file.idle_option = options.name_option("turns")
    class_count = len({prompt.class_ for prompt in file.prompts.values()})
    if class_count > MAX_CLASSES:
        allowed = f"allowed: {MAX_CLASSES} classes"
        class_field = options.class_field or "class"  # of Tandem's own form
        problem = f"{class_field!r} has {class_count} values; {allowed}"
        flag = options.name_option("class_field", "NAME")
        change = f"name a field with fewer: {flag}"
        raise InputError(problem, where=where, change=change)
    return file


def _is_own_form(rows: Sequence[FileRow], options: FileOptions) -> bool:
    """Return whether a file is in Tandem's form: whether a row is."""
    if options.prompt_column or options.class_field:
        return False
    return any(_is_own_row(row) for row in rows)


def _is_own_row(row: FileRow) -> bool:
    """Return whether a row has id, class and prompt, or only keys of Tandem's form."""
    if not row.has_own_marks:
        return False
    return row.value.keys() <= OWN_KEYS or not row.value.keys().isdisjoint(REQUEST_KEYS)


def _read_own_rows(rows: Sequence[FileRow]) -> FilePrompts:
    """Read Tandem's form, which has no unknown key and no id twice."""
    file = FilePrompts()
    for row in rows:
        try:
            prompt = _convert_row(row)
        except (ValueError, RecursionError) as error:
            file.faults.append((row.place, str(error)))
        else:
            file.add_prompt(prompt, row.place)
    return file


def _convert_row(row: FileRow) -> Prompt:
    if row.fault is not None:
        raise ValueError(row.fault)
    if row.repeats_key:
        raise ValueError("duplicate key in one object")
    return msgspec.convert(row.value, Prompt)


def _read_rows(rows: Sequence[FileRow], options: FileOptions) -> FilePrompts:
    """Read any other form; a row whose id is taken is named by its place."""
    file = FilePrompts()
    used_keys = {*USED_KEYS, options.prompt_column, options.class_field}
    for row in rows:
        try:
            prompt = build_prompt(row, options)
            fields = list_fields(row.value)
            if options.class_field is not None:
                _note_class(file, prompt.class_, str(fields[options.class_field]))
        except OmissionError as error:
            file.omitted[str(error)] += 1
            continue
        except ValueError as error:
            file.faults.append((row.place, str(error)))
            continue
        if prompt.id in file.prompts:
            prompt = msgspec.structs.replace(prompt, id=row.place_id)
        file.add_prompt(prompt, row.place)
        unused_keys = [key for key in fields if key not in used_keys]
        file.unused_keys |= dict.fromkeys(unused_keys)
    return file


def _note_class(file: FilePrompts, class_: str, value: str) -> None:
    """Keep the value of a class.

    Raises:
        RowError: another value gives the same class.
    """
    first_value = file.class_values.setdefault(class_, value)
    if first_value.strip().lower() != value.strip().lower():
        raise RowError(f"{value!r} gives the class {class_} as {first_value!r} does: rename one")


def _refuse_rows(
    faults: Sequence[tuple[str, str]], row_count: int, where: str, change: str
) -> NoReturn:
    """Refuse a file with its first faults; one line where every row has the same."""
    places = [place for place, _ in faults[:MAX_FAULTS]]
    lines = [f"{place}: {fault}" for place, fault in faults[:MAX_FAULTS]]
    if len(faults) > MAX_FAULTS:
        rest = f"and {len(faults) - MAX_FAULTS} more lines"
        places.append(rest)
        lines.append(rest)
    problem = "\n".join(lines)
    is_same = len({fault for _, fault in faults}) == 1
    if is_same and len(faults) == row_count > 1:
        places = [f"all {row_count} rows"]
        problem = f"{lines[0]}; all {row_count} rows are like it"
    raise InputError(problem, where=where, change=change, places=places)
