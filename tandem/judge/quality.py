"""Whether a variant answers tasks as well as the baseline: the same items, in pairs.

Invariant: `same` is said only where the whole interval of the difference lies inside the margin; a
difference only where the exact test shows it and the interval leaves out 0. Groups of items are the
unit (`item_groups`). Too few items or groups, or a baseline near chance, show nothing.

Sources: the test of McNemar (1947), exact on the pairs that differ; the score interval of the
difference of paired proportions of Tango (1998), Statistics in Medicine 17, 891, equations 12 to
14.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import TypeVar

from msgspec.structs import replace

from tandem.bench.records.quality_rows import QualityRow
from tandem.judge.item_groups import ItemGroup, compute_design_effect, compute_flip_p
from tandem.judge.schema import LEVEL, QualityWord, TaskQuality
from tandem.judge.text_format import count_things

FEWEST_ITEMS = 200
MARGIN = 0.02
LEAST_ABOVE_CHANCE = 0.1
FALSE_CALL = 0.02
"""How often a difference may be called between two arms that answer alike; several variants share a
run's 5 %."""

ItemKey = TypeVar("ItemKey", bound=Hashable)
NumberedItem = tuple[str, int]
"""The name of an item, and how many of the same name came before it: a task set may ask a question
twice."""


def judge_quality(
    rows: Sequence[QualityRow], baseline: str, variants: Sequence[str]
) -> Iterator[TaskQuality]:
    """Yield every variant on every task that both it and the baseline answered.

    Args:
        rows: of the run.
        baseline, variants: names of arms.
    """
    tasks = dict.fromkeys(row.task for row in rows)
    for task in tasks:
        own_rows = [row for row in rows if row.task == task]
        faults = [row.fault for row in own_rows if row.fault]
        chance = max(row.chance for row in own_rows)
        baseline_rows = _number_items(own_rows, baseline)
        for variant in variants:
            variant_rows = _number_items(own_rows, variant)
            if faults:
                quality = compare_quality(variant, {}, {}, chance=0, task=task)
                yield replace(quality, why=faults[0])
            elif baseline_rows and variant_rows:
                quality = compare_quality(
                    variant,
                    {item: row.right for item, row in baseline_rows.items()},
                    {item: row.right for item, row in variant_rows.items()},
                    chance=chance,
                    task=task,
                    task_count=len(tasks),
                    groups=_name_groups(baseline_rows),
                )
                numbers = [number for _, number in baseline_rows.keys() & variant_rows.keys()]
                yield _tell_repeats(quality, sum(map(bool, numbers)))


def _number_items(rows: Iterable[QualityRow], arm: str) -> dict[NumberedItem, QualityRow]:
    """Return the rows of an arm by item; of a name that stands there again none is lost."""
    counts = Counter[str]()
    numbered = {}
    for row in rows:
        if row.arm == arm:
            numbered[row.item, counts[row.item]] = row
            counts[row.item] += 1
    return numbered


def _name_groups(rows: Mapping[NumberedItem, QualityRow]) -> dict[NumberedItem, Hashable]:
    """Return the group of each item that has one: its own, or that of all items of its name."""
    groups = dict[NumberedItem, Hashable]()
    for (name, number), row in rows.items():
        if row.group:
            groups[name, number] = ("group", row.group)
        elif (name, 1) in rows:
            groups[name, number] = ("item", name)
    return groups


def _tell_repeats(quality: TaskQuality, repeats: int) -> TaskQuality:
    if not repeats:
        return quality
    limit = (
        f"{count_things(repeats, 'item')} with the name of another one;"
        " items of one name are one group"
    )
    return replace(quality, limits=(*quality.limits, limit))


def compare_quality(  # noqa: PLR0913 - the signature is a sentence: two sides, a task, the risk
    variant: str,
    baseline_right: Mapping[ItemKey, bool],
    variant_right: Mapping[ItemKey, bool],
    *,
    chance: float,
    task: str = "",
    task_count: int = 1,
    groups: Mapping[ItemKey, Hashable] | None = None,
) -> TaskQuality:
    """Return whether a variant answers as well as the baseline.

    Args:
        variant: its arm.
        baseline_right, variant_right: by item, whether the answer was right; items of both are
            compared.
        chance: share of items that guessing has right, from 0 to below 1.
        task: name of the task set.
        task_count: how many tasks share the risk of a false call (Bonferroni).
        groups: by item, the group that it belongs to; an item without one is taken as independent
            of all others.
    """
    names = groups or {}
    items = [item for item in baseline_right if item in variant_right]
    units = _count_groups(items, baseline_right, variant_right, names)
    right = sum(baseline_right[item] for item in items)
    only_baseline = sum(unit.only_baseline for unit in units)
    only_variant = sum(unit.only_variant for unit in units)
    low, high = _find_interval(units, only_baseline, only_variant, len(items))
    quality = TaskQuality(
        variant=variant,
        task=task,
        items=len(items),
        baseline_right=right,
        variant_right=right - only_baseline + only_variant,
        only_baseline=only_baseline,
        only_variant=only_variant,
        chance=chance,
        difference=(only_variant - only_baseline) / max(len(items), 1),
        low=low,
        high=high,
        p=compute_flip_p(units),
        word="no evidence",
        why="",
        groups=len(units),
        limits=_describe_independence(len(items), sum(item not in names for item in items)),
    )
    word, why = _decide_word(quality, FALSE_CALL / task_count)
    return replace(quality, word=word, why=why)


def _decide_word(quality: TaskQuality, most_p: float) -> tuple[QualityWord, str]:
    """Return the word of a comparison and the reason; a difference needs a p below `most_p`."""
    items = quality.items
    low = quality.low
    high = quality.high
    if items < FEWEST_ITEMS:
        return "no evidence", f"{items} items: {FEWEST_ITEMS} or more are needed"
    if 2 * 0.5**quality.groups >= most_p:
        return (
            "no evidence",
            f"the items belong to {quality.groups} groups: too few for a word",
        )
    share = quality.baseline_right / items
    if share < quality.chance + LEAST_ABOVE_CHANCE:
        shares = f"{100 * share:.0f} % right, and guessing {100 * quality.chance:.0f} %"
        return "no evidence", f"the baseline has {shares}: the task tells nothing"
    if quality.p < most_p and not low <= 0 <= high:
        counts = (
            f"{quality.only_baseline} items only the baseline has right,"
            f" {quality.only_variant} only the variant: p {quality.p:.2g}"
        )
        return "better" if quality.only_variant > quality.only_baseline else "worse", counts
    if low >= -MARGIN and high <= MARGIN:
        return "same", f"the whole interval lies inside {100 * MARGIN:g} points"
    ends = f"{100 * low:.1f} to {100 * high:.1f} points"
    return "no evidence", f"the interval, {ends}, reaches beyond {100 * MARGIN:g}"


def _count_groups(
    items: Iterable[ItemKey],
    baseline_right: Mapping[ItemKey, bool],
    variant_right: Mapping[ItemKey, bool],
    groups: Mapping[ItemKey, Hashable],
) -> list[ItemGroup]:
    """Return the answers of each group; an item without one is a group of its own."""
    units = dict[Hashable, ItemGroup]()
    for item in items:
        unit = ("named", groups[item]) if item in groups else ("own", item)
        earlier = units.get(unit, ItemGroup(0, 0, 0))
        is_baseline_alone = baseline_right[item] and not variant_right[item]
        is_variant_alone = variant_right[item] and not baseline_right[item]
        units[unit] = ItemGroup(
            items=earlier.items + 1,
            only_baseline=earlier.only_baseline + is_baseline_alone,
            only_variant=earlier.only_variant + is_variant_alone,
        )
    return list(units.values())


def _find_interval(
    units: Sequence[ItemGroup], only_baseline: int, only_variant: int, items: int
) -> tuple[float, float]:
    """Return the interval of the difference: that of as many items as the groups are worth."""
    effect = compute_design_effect(units) if units else math.inf
    if math.isinf(effect):
        return -1.0, 1.0
    return find_tango_interval(only_variant / effect, only_baseline / effect, items / effect)


def _describe_independence(items: int, alone: int) -> tuple[str, ...]:
    if not alone:
        return ()
    if alone == items:
        return ("no item names a group, so all were taken as independent",)
    return (f"taken as independent: {count_things(alone, 'item')} without a group",)


def find_tango_interval(
    first_alone: float, second_alone: float, count: float
) -> tuple[float, float]:
    """Return the interval at LEVEL of the share of the first less that of the second.

    Args:
        first_alone, second_alone: pairs in which one alone is right; fractions where groups are
            worth less than their items.
        count: of all pairs, above 0.
    """
    from scipy import optimize  # noqa: PLC0415 - it takes half a second to load

    quantile = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    estimate = (first_alone - second_alone) / count
    edge = 1 - 1e-12

    def excess(difference: float, sign: int) -> float:
        return sign * compute_tango_score(first_alone, second_alone, count, difference) - quantile

    low = -1.0
    high = 1.0
    if excess(-edge, 1) > 0 > excess(estimate, 1):
        low = float(optimize.brentq(excess, -edge, estimate, args=(1,)))
    if excess(edge, -1) > 0 > excess(estimate, -1):
        high = float(optimize.brentq(excess, estimate, edge, args=(-1,)))
    return low, high


def compute_tango_score(
    first_alone: float, second_alone: float, count: float, difference: float
) -> float:
    """Return the score statistic of a difference: its distance above zero in standard errors."""
    # the share of pairs in which the second alone is right, most likely under the difference
    linear = -first_alone - second_alone + (2 * count - first_alone + second_alone) * difference
    product = -second_alone * difference * (1 - difference)
    root = math.sqrt(max(linear**2 - 8 * count * product, 0.0))
    share = (root - linear) / (4 * count)

    gap = first_alone - second_alone - count * difference
    variance = count * (2 * share + difference * (1 - difference))
    if variance > 0:
        return gap / math.sqrt(variance)
    return math.copysign(math.inf, gap) if gap else 0.0
