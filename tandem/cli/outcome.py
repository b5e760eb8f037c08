"""The form in which every command reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tandem.bench.terminal_text import clean_text
from tandem.errors import ExitCode, TandemError
from tandem.spec.faults import SpecFault
from tandem.spec.record import FILL_IN


def compute_exit_code(faults: Iterable[SpecFault], *, strict: bool) -> ExitCode:
    """Return the code of a command that found `faults`.

    A warning stops nothing unless --strict asks for it: an image with known vulnerabilities or an example
    account is true of a healthy checkout too, and a code that is always 1 is read by nobody.
    """
    severities = {fault.severity for fault in faults}
    if "refusal" in severities:
        return ExitCode.BAD_INPUT
    return ExitCode.STALE if strict and severities else ExitCode.DONE


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document on standard output; what a terminal would act on is written as an escape."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if not text.replace("\n", "").isprintable():
        text = "".join(
            character if character == "\n" or clean_text(character) == character else json.dumps(character)[1:-1]
            for character in text
        )
    print(text)


def print_error(error: TandemError) -> None:
    """Print a fault on standard error, beside whatever else was found."""
    location = f"{error.where}: " if error.where else ""
    print(f"error: {location}{error.problem.rstrip()}\n  change   {error.change}", file=sys.stderr)


def print_faults(faults: Iterable[SpecFault]) -> None:
    """Print refusals, then warnings, on standard error; the same fault in several files is told once.

    A placeholder of `tandem new` takes one line.
    """
    fault_groups: dict[tuple[object, ...], list[SpecFault]] = {}
    for fault in sorted(faults, key=lambda fault: fault.severity):
        fault_groups.setdefault((fault.severity, fault.path, fault.got, fault.allowed, fault.change), []).append(fault)
    for fault_group in fault_groups.values():
        print("\n".join(_format_fault_group(fault_group)), file=sys.stderr)


def _format_fault_group(fault_group: Sequence[SpecFault]) -> Iterator[str]:
    first, *other_faults = fault_group
    if first.got == FILL_IN:
        yield from (f"fill in: {fault.place}: {fault.path}: {first.allowed}" for fault in fault_group)
        return
    problem = f"{first.path}: got {first.got or 'nothing'}" if first.path else f"got {first.got}"
    yield f"{'error' if first.severity == 'refusal' else 'warning'}: {first.place}: {problem}"
    yield from (f"  also     {fault.place}" for fault in other_faults)
    yield f"  allowed  {first.allowed}"
    yield f"  change   {first.change}"
    if first.rule:
        yield f"  rule     {first.rule}, {first.source}"


def format_count(count: int, noun: str) -> str:
    """Return `1 warning`, `2 warnings`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
