"""Whether a variant answers tasks as well as the baseline: the same items, right or wrong, in pairs.

Invariant: `same` is said only where the whole interval of the difference lies inside the margin; a difference only
where the exact test of the pairs shows it. Too few items, or a baseline near chance, show nothing.

Sources: the test of McNemar (1947), exact on the pairs that differ; the score interval of the difference of paired
proportions of Tango (1998), Statistics in Medicine 17, 891, equations 12 to 14.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist

import msgspec
from scipy import optimize

from tandem.bench.quality_rows import QualityRow
from tandem.judge.interval import LEVEL
from tandem.judge.schema import QualityWord, TaskQuality

FEWEST_ITEMS = 200
MARGIN = 0.02
LEAST_ABOVE_CHANCE = 0.1
FALSE_CALL = 0.02
"""How often a difference may be called between two arms that answer alike; several variants share a run's 5 %."""


def judge_quality(rows: Sequence[QualityRow], baseline: str, variants: Sequence[str]) -> Iterator[TaskQuality]:
    """Yield every variant on every task that both it and the baseline answered.

    Args:
        rows: of the run.
        baseline, variants: names of arms.
    """
    tasks = dict.fromkeys(row.task for row in rows)
    for task in tasks:
        own = [row for row in rows if row.task == task]
        if faults := [row.fault for row in own if row.fault]:
            yield from (
                msgspec.structs.replace(compare_quality(variant, {}, {}, chance=0, task=task), why=faults[0])
                for variant in variants
            )
            continue
        right = {arm: {row.item: row.right for row in own if row.arm == arm} for arm in (baseline, *variants)}
        chance = max(row.chance for row in own)
        for variant in variants:
            if right[baseline] and right[variant]:
                sides = right[baseline], right[variant]
                yield compare_quality(variant, *sides, chance=chance, task=task, task_count=len(tasks))


def compare_quality(  # noqa: PLR0913 - the signature is a sentence: two sides, a task, the risk
    variant: str,
    baseline_right: Mapping[str, bool],
    variant_right: Mapping[str, bool],
    *,
    chance: float,
    task: str = "",
    task_count: int = 1,
) -> TaskQuality:
    """Return whether a variant answers as well as the baseline.

    Args:
        variant: its arm.
        baseline_right, variant_right: by item, whether the answer was right; items of both are compared.
        chance: share of items that guessing has right, from 0 to below 1.
        task: name of the task set.
        task_count: how many tasks share the risk of a false call (Bonferroni).
    """
    pairs = [(baseline_right[item], variant_right[item]) for item in baseline_right.keys() & variant_right.keys()]
    items, only_baseline = len(pairs), sum(first and not second for first, second in pairs)
    only_variant, right = sum(second and not first for first, second in pairs), sum(first for first, _ in pairs)
    low, high = find_tango_interval(only_variant, only_baseline, items) if items else (-1.0, 1.0)
    p = compute_mcnemar_p(only_baseline, only_variant)
    share = right / items if items else 0.0
    word: QualityWord = "no evidence"
    if items < FEWEST_ITEMS:
        why = f"{items} items: {FEWEST_ITEMS} or more are needed"
    elif share < chance + LEAST_ABOVE_CHANCE:
        why = f"the baseline has {share:.0%} right, and guessing {chance:.0%}: the task tells nothing".replace(
            "%", " %"
        )
    elif p < FALSE_CALL / task_count:
        word = "better" if only_variant > only_baseline else "worse"
        why = f"{only_baseline} items only the baseline has right, {only_variant} only the variant: p {p:.2g}"
    elif low >= -MARGIN and high <= MARGIN:
        word, why = "same", f"the whole interval lies inside {100 * MARGIN:g} points"
    else:
        why = f"the interval, {100 * low:.1f} to {100 * high:.1f} points, reaches beyond {100 * MARGIN:g}"
    difference = (only_variant - only_baseline) / items if items else 0.0
    return TaskQuality(
        variant=variant, task=task, items=items, baseline_right=right,
        variant_right=right - only_baseline + only_variant,
        only_baseline=only_baseline, only_variant=only_variant, chance=chance, difference=difference, low=low,
        high=high, p=p, word=word, why=why,
    )  # fmt: skip


def compute_mcnemar_p(first_alone: int, second_alone: int) -> float:
    """Return the two-sided exact p-value that pairs differ one way as often as the other."""
    count = first_alone + second_alone
    if not count:
        return 1.0

    from scipy.stats import binomtest  # noqa: PLC0415 - it takes a second to load, and few runs ask tasks

    return float(binomtest(first_alone, count).pvalue)


def find_tango_interval(first_alone: int, second_alone: int, count: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval of the share of the first less that of the second.

    Args:
        first_alone, second_alone: pairs in which one alone is right.
        count: of all pairs, 1 or more.
        level: of the interval.
    """
    quantile = NormalDist().inv_cdf(0.5 + level / 2)
    estimate, edge = (first_alone - second_alone) / count, 1 - 1e-12

    def excess(difference: float, sign: int) -> float:
        return sign * compute_tango_score(first_alone, second_alone, count, difference) - quantile

    low = optimize.brentq(excess, -edge, estimate, args=(1,)) if excess(-edge, 1) > 0 > excess(estimate, 1) else -1.0
    high = optimize.brentq(excess, estimate, edge, args=(-1,)) if excess(edge, -1) > 0 > excess(estimate, -1) else 1.0
    return float(low), float(high)


def compute_tango_score(first_alone: int, second_alone: int, count: int, difference: float) -> float:
    """Return the score statistic of a difference: how many standard deviations the observed one lies above it."""
    # the share of pairs in which the second alone is right, most likely under the difference
    linear = -first_alone - second_alone + (2 * count - first_alone + second_alone) * difference
    product = -second_alone * difference * (1 - difference)
    share = (math.sqrt(max(linear**2 - 8 * count * product, 0.0)) - linear) / (4 * count)
    variance = count * (2 * share + difference * (1 - difference))
    gap = first_alone - second_alone - count * difference
    return gap / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, gap) if gap else 0.0
