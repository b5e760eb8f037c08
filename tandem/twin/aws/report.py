"""What a rehearsal found, for an operator and for a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tandem.twin.aws.fidelity import NOT_REHEARSED, Level
from tandem.twin.aws.play import Rehearsal


def lines(found: Rehearsal) -> Iterator[str]:
    """The summary: steps, stacks, and what was not rehearsed."""
    yield ""
    yield f"{found.environment}: {'rehearsed' if found.passed else 'FAILED'}, {_seconds(found):.0f} s"
    width = max(len(step.name) for step in found.steps)
    for step in found.steps:
        first = step.found.partition("\n")[0]
        yield f"  {'FAILED' if step.failed else 'ok':<6} {step.name:<{width}} {step.seconds:6.1f} s  {first}"
    if found.resources:
        yield ""
        yield from _stacks(found)
        yield ""
        yield from _not_rehearsed(found)


def _seconds(found: Rehearsal) -> float:
    return sum(step.seconds for step in found.steps)


def _stacks(found: Rehearsal) -> Iterator[str]:
    stacks = list(dict.fromkeys(item.stack for item in found.resources))
    width = max(len(stack) for stack in stacks)
    yield f"  {'stack':<{width}}  resources  properties held  differ    real  stored  recorded"
    for stack in stacks:
        items = [item for item in found.resources if item.stack == stack]
        levels = Counter(item.fidelity.level for item in items)
        held, differ = sum(len(item.held) for item in items), sum(len(item.differs) for item in items)
        counts = "".join(f"{levels[level]:>{width_}}" for level, width_ in zip(Level, (8, 8, 10), strict=True))
        yield f"  {stack:<{width}}  {len(items):>9}  {held:>15}  {differ:>6}{counts}"
    yield "  real: does what AWS's API would; stored: kept and described, nothing behind it; recorded: listed only"


def _not_rehearsed(found: Rehearsal) -> Iterator[str]:
    yield "Not rehearsed, so different on AWS:"
    for sentence in NOT_REHEARSED:
        yield f"  - {sentence}"
    for types, sentence in _rows(found):
        yield f"  - {', '.join(type_.removeprefix('AWS::') for type_ in types)}: {sentence}"


def _rows(found: Rehearsal) -> list[tuple[list[str], str]]:
    """The types of this rehearsal by what is said of them, and properties that nobody can see."""
    types: dict[str, list[str]] = {}
    unseen: dict[tuple[str, str], str] = {}
    for item in sorted(found.resources, key=lambda item: item.type):
        if item.type not in types.setdefault(item.fidelity.sentence, []):
            types[item.fidelity.sentence].append(item.type)
        unseen |= {(item.type, name): reason for name, reason in item.not_rehearsed.items() if name != "*"}
    properties = [([f"{type_} {name}"], reason) for (type_, name), reason in unseen.items()]
    return [(names, sentence) for sentence, names in types.items()] + properties


def document(found: Rehearsal) -> dict[str, Any]:
    """The same for a program."""
    return {
        "environment": found.environment,
        "account": found.account,
        "region": found.region,
        "passed": found.passed,
        "steps": [
            {"name": step.name, "seconds": round(step.seconds, 1), "failed": step.failed, "found": step.found}
            for step in found.steps
        ],
        "resources": [
            {
                "stack": item.stack,
                "logical_id": item.logical_id,
                "type": item.type,
                "physical_id": item.physical_id,
                "level": item.fidelity.level,
                "held": list(item.held),
                "differs": [
                    {"property": part.property, "template": part.template, "described": part.described}
                    for part in item.differs
                ],
                "not_rehearsed": dict(item.not_rehearsed),
            }
            for item in found.resources
        ],
        "not_rehearsed": [*NOT_REHEARSED, *(f"{', '.join(types)}: {sentence}" for types, sentence in _rows(found))],
    }
