"""Exit codes and the form in which every command reports.

Invariant: the same codes everywhere: 0 done; 1 stale or, with --strict, warned; 2 bad input; 3 the world
outside failed; 4 void.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any

from tandem.bench.shown import clean
from tandem.spec.faults import Fault
from tandem.spec.record import FILL_IN


class Exit(IntEnum):
    """What a command's exit code says."""

    DONE = 0
    STALE = 1
    BAD_INPUT = 2
    WORLD_FAILED = 3
    VOID = 4


def verdict(faults: Iterable[Fault], *, strict: bool) -> Exit:
    """Return the code of a command that found `faults`.

    A warning stops nothing unless --strict asks for it: an image with known vulnerabilities or an example
    account is true of a healthy checkout too, and a code that is always 1 is read by nobody.
    """
    severities = {fault.severity for fault in faults}
    if "refusal" in severities:
        return Exit.BAD_INPUT
    return Exit.STALE if strict and severities else Exit.DONE


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document on standard output; what a terminal would act on is written as an escape."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if not text.replace("\n", "").isprintable():
        text = "".join(sign if sign == "\n" or clean(sign) == sign else json.dumps(sign)[1:-1] for sign in text)
    print(text)


def print_faults(faults: Iterable[Fault]) -> None:
    """Print refusals, then warnings, on standard error; the same fault in several files is told once.

    A placeholder of `tandem new` takes one line.
    """
    together: dict[tuple[object, ...], list[Fault]] = {}
    for fault in sorted(faults, key=lambda fault: fault.severity):
        together.setdefault((fault.severity, fault.path, fault.got, fault.allowed, fault.change), []).append(fault)
    for same in together.values():
        print("\n".join(_block(same)), file=sys.stderr)


def _block(same: Sequence[Fault]) -> Iterator[str]:
    first, *others = same
    if first.got == FILL_IN:
        yield from (f"fill in: {fault.place}: {fault.path}: {first.allowed}" for fault in same)
        return
    said = f"{first.path}: got {first.got or 'nothing'}" if first.path else f"got {first.got}"
    yield f"{'error' if first.severity == 'refusal' else 'warning'}: {first.place}: {said}"
    yield from (f"  also     {fault.place}" for fault in others)
    yield f"  allowed  {first.allowed}"
    yield f"  change   {first.change}"
    if first.rule:
        yield f"  rule     {first.rule}, {first.source}"


def counted(count: int, noun: str) -> str:
    """Return `1 warning`, `2 warnings`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
