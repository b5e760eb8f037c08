"""The one console: rows, faults and JSON; colours and width where a terminal reads.

Invariant: a text of others moves no cursor. What a person pastes stands on one line, however long
it is.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from rich.console import Console
from rich.text import Text

from tandem.bench.records.terminal_text import clean_text, wrap_text
from tandem.declarations.faults import SpecError, SpecFault
from tandem.errors import ExitCode, InputError, TandemError

PIPE_WIDTH = 100  # columns where no terminal and no COLUMNS says another width; of tables, the most
LABEL_COLUMNS = 10
MIN_COLUMNS = 20  # of a text on the narrowest terminal
STYLES = {"error": "bold red", "warning": "yellow", "attention": "yellow", "unknown": "yellow"}


class VerbatimText(str):
    """A text that is never folded: a command or a path to be pasted."""

    __slots__ = ()


class PipeConsole(Console):
    """A console whose reader may go: the program decides what that means."""

    def on_broken_pipe(self) -> None:
        """Let the error of the closed pipe reach the program.

        Raises:
            BrokenPipeError: always.
        """
        raise BrokenPipeError


def open_console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or error as it is now, with no markup of its own."""
    stream = sys.stderr if stderr else sys.stdout
    stream = getattr(stream, "raw_stream", stream)
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return PipeConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def count_columns() -> int:
    """Return a text's width: the terminal's, but no wider than a line reads well."""
    return min(open_console().width, PIPE_WIDTH)


def print_line(text: str, *, style: str = "", stderr: bool = False) -> None:
    """Print one line that is never folded; its first word may have a style."""
    word, separator, rest = clean_text(text).partition(" ")
    open_console(stderr=stderr).print(Text.assemble((word, style), separator, rest), soft_wrap=True)


def print_message(text: str, *, style: str = "", is_brief: bool = False) -> None:
    """Print a sentence to standard error, folded to the width or COLUMNS, or cut where brief."""
    console = open_console(stderr=True)
    lines = [clean_text(text)]
    if console.is_terminal or "COLUMNS" in os.environ:
        lines = wrap_text(text, console.width, indent="  ")
        if is_brief and len(lines) > 1:
            lines = [f"{clean_text(text)[: console.width - 1].rstrip()}…"]
    for line in lines:
        print_line(line, style=style, stderr=True)
        style = ""


def print_rows(
    rows: Iterable[Sequence[str]],
    *,
    indent: int = 2,
    label_columns: int = LABEL_COLUMNS,
    stderr: bool = False,
) -> None:
    """Print labelled texts below each other, each folded below itself within the console's width.

    Args:
        rows: labels, where there are some, then a text; VerbatimText is not folded, and no word is.
        indent: columns before each row.
        label_columns: from a row's first label to its text, which stands on the next line where the
            labels are longer.
        stderr: print on standard error.
    """
    console = open_console(stderr=stderr)
    for *labels, text in rows:
        label = clean_text("  ".join(labels))
        style = ""
        start = indent
        if labels:
            style = STYLES.get(labels[0].strip(), "")
            start += label_columns
        if labels and len(label) >= label_columns:
            console.print(Text(" " * indent + label, style=style), soft_wrap=True)
            label = ""
        for line in _fold_text(text, max(console.width - start, MIN_COLUMNS)):
            head = Text(f"{' ' * indent}{label}".ljust(start if line else 0), style=style)
            console.print(head + line, soft_wrap=True)
            label = ""


def _fold_text(text: str, columns: int) -> list[str]:
    line = clean_text(text)
    if isinstance(text, VerbatimText):
        return [line]
    return textwrap.wrap(line, columns, break_long_words=False, break_on_hyphens=False) or [""]


def ask_consent(question: str, *, where: str) -> bool:
    """Ask on standard error, and return whether somebody said yes.

    Raises:
        InputError: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise InputError(
            "no terminal to confirm on", where=where, change="read the plan, then pass --yes"
        )
    print(f"  {question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def print_json(value: Mapping[str, Any], code: ExitCode = ExitCode.DONE) -> ExitCode:
    """Print one JSON document to standard output in ASCII, so that no terminal acts on it.

    Args:
        value: the document.
        code: what the command ends with, added as `exit_code`; it is returned.
    """
    document = {**value, "exit_code": int(code)}
    print(json.dumps(document, indent=2, default=str).replace("\x7f", "\\u007f"))
    return code


def print_result(
    document: Mapping[str, Any],
    lines: Iterable[str],
    *,
    as_json: bool,
    code: ExitCode = ExitCode.DONE,
) -> ExitCode:
    """Print one JSON document, or for a person the lines; return the code.

    Args:
        document, code: as of `print_json`.
        lines: not folded.
        as_json: which of the two.
    """
    if as_json:
        return print_json(document, code)
    print(*lines, sep="\n")
    return code


def print_fault(
    fault: TandemError, *, as_json: bool = False, done: Mapping[str, Any] | None = None
) -> ExitCode:
    """Print what a command refuses or what failed on standard error, and return the exit code.

    Args:
        fault: with every fault of a declared file, or one.
        as_json: print `{"error": {...}, "exit_code": n}` on standard output too.
        done: what the document has of what was done before.
    """
    faults = fault.faults if isinstance(fault, SpecError) else ()
    is_warning = bool(faults) and all(spec_fault.severity == "warning" for spec_fault in faults)
    code = ExitCode.STALE if is_warning else fault.exit_code
    if as_json:
        error: dict[str, Any] = fault.as_dict()
        if faults:
            error["faults"] = [spec_fault.as_dict() for spec_fault in faults]
        print_json({**(done or {}), "error": error}, code)
    if faults:
        print_spec_faults(faults)
    else:
        location = f"{fault.where}: " if fault.where else ""
        for line in f"error: {location}{fault.problem.rstrip()}".splitlines():
            print_message(line, style=STYLES["error"])
        if fault.change:
            print(f"  change   {fault.change}", file=sys.stderr)
    return code


def print_spec_faults(
    faults: Iterable[SpecFault], *, is_brief: bool = False, has_sources: bool = False
) -> None:
    """Print refusals, then warnings, to standard error; print a fault of several files once.

    A placeholder of `tandem new` takes one line.

    Args:
        faults: in any order.
        is_brief: give each warning one line.
        has_sources: name the rule of each fault, and where it comes from.
    """
    from tandem.declarations.record import FILL_IN  # noqa: PLC0415 - pydantic, for who reads declared files

    fault_groups: dict[tuple[str, ...], list[SpecFault]] = {}
    for fault in sorted(faults, key=attrgetter("severity")):
        text = (fault.severity, fault.path, fault.got, fault.allowed, fault.change)
        fault_groups.setdefault(text, []).append(fault)
    for group in fault_groups.values():
        if group[0].got == FILL_IN:
            for fault in group:
                print_line(f"fill in: {fault.place}: {fault.path}: {fault.allowed}", stderr=True)
        else:
            _print_fault_group(group, is_brief=is_brief, has_sources=has_sources)


def _print_fault_group(group: Sequence[SpecFault], *, is_brief: bool, has_sources: bool) -> None:
    """Print a fault that several files have."""
    first = group[0]
    word = "error" if first.severity == "refusal" else "warning"
    is_short = is_brief and word == "warning"
    message = f"{word}: {first.place}: {first.describe_problem()}"
    if not first.allowed:
        message += f". {first.change}"
    if is_short and len(group) > 1:
        message += f" (and {len(group) - 1} more)"
    print_message(message, style=STYLES[word], is_brief=is_short)
    lines = []
    if not is_short:
        lines += [f"also     {fault.place}" for fault in group[1:]]
        if first.allowed:
            lines += [f"allowed  {first.allowed}", f"change   {first.change}"]
    if first.rule and has_sources:
        lines.append(f"why      rule {first.rule}: {first.source}")
    for line in lines:
        print_line(f"  {line}", stderr=True)


def format_count(count: int, noun: str) -> str:
    """Return `1 warning`, `2 warnings`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"
