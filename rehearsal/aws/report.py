"""Reports the result of a rehearsal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rehearsal.aws.fidelity import REHEARSAL_LIMITS, FidelityLevel
from rehearsal.aws.rehearsal_steps import RehearsalResult


def format_summary(result: RehearsalResult) -> Iterator[str]:
    """Yield the lines of the summary: steps, stacks, and what was not rehearsed."""
    yield ""
    yield (
        f"{result.environment}: {'rehearsed' if result.is_success else 'FAILED'},"
        f" {_total_seconds(result):.0f} s"
    )
    width = max(len(step.name) for step in result.steps)
    for step in result.steps:
        first = step.outcome.partition("\n")[0]
        yield (
            f"  {'FAILED' if step.is_failure else 'ok':<6} {step.name:<{width}} {step.seconds:6.1f}"
            f" s  {first}"
        )
    if result.resources:
        yield ""
        yield from _format_stacks(result)
        yield ""
        yield from _format_limits(result)


def _total_seconds(result: RehearsalResult) -> float:
    return sum(step.seconds for step in result.steps)


def _format_stacks(result: RehearsalResult) -> Iterator[str]:
    stacks = list(dict.fromkeys(item.stack for item in result.resources))
    width = max(len(stack) for stack in stacks)
    yield f"  {'stack':<{width}}  resources  properties held  differ    real  stored  recorded"
    for stack in stacks:
        items = [item for item in result.resources if item.stack == stack]
        levels = Counter(item.fidelity.level for item in items)
        matching_count = sum(len(item.matching_properties) for item in items)
        difference_count = sum(len(item.differences) for item in items)
        counts = "".join(
            f"{levels[level]:>{width_}}"
            for level, width_ in zip(FidelityLevel, (8, 8, 10), strict=True)
        )
        yield (
            f"  {stack:<{width}}  {len(items):>9}  {matching_count:>15} "
            f" {difference_count:>6}{counts}"
        )
    yield (
        "  real: does what AWS's API would; stored: kept and described, nothing behind it;"
        " recorded: listed only"
    )


def _format_limits(result: RehearsalResult) -> Iterator[str]:
    yield "Not rehearsed, so different on AWS:"
    for sentence in REHEARSAL_LIMITS:
        yield f"  - {sentence}"
    for types, sentence in _limit_rows(result):
        yield f"  - {', '.join(type_.removeprefix('AWS::') for type_ in types)}: {sentence}"


def _limit_rows(result: RehearsalResult) -> list[tuple[list[str], str]]:
    """Return this rehearsal's types by sentence, and properties nobody can see by reason."""
    types: dict[str, list[str]] = {}
    hidden_reasons: dict[tuple[str, str], str] = {}
    for item in sorted(result.resources, key=lambda item: item.type):
        if item.type not in types.setdefault(item.fidelity.sentence, []):
            types[item.fidelity.sentence].append(item.type)
        hidden_reasons |= {
            (item.type, name): reason
            for name, reason in item.unverifiable_properties.items()
            if name != "*"
        }
    properties = [([f"{type_} {name}"], reason) for (type_, name), reason in hidden_reasons.items()]
    return [(names, sentence) for sentence, names in types.items()] + properties
