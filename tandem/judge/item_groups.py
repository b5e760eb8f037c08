"""Statistics of items that belong together, such as the questions on one passage.

The answers to such items depend on each other, so the group is the unit, not the item.

Invariant: with one item in each group the test is McNemar's and the design effect is 1. With few
groups the test cannot reach a small p, and the design effect is large.

Sources: sign changes of whole groups, Canay, Romano and Shaikh (2017), Econometrica 85, 1013. The
design effect, by which counts of grouped answers are divided, Rao and Scott (1992), Biometrics 48,
577. Groups of questions in evaluations of language models, Miller (2024), arXiv 2411.00640.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy import special

from tandem.judge.schema import LEVEL


class ItemGroup(NamedTuple):
    """The answers to a group of items.

    Args:
        items: that both arms answered.
        only_baseline, only_variant: items that one arm alone had right.
    """

    items: int
    only_baseline: int
    only_variant: int

    @property
    def difference(self) -> int:
        """Items right of the variant less those of the baseline."""
        return self.only_variant - self.only_baseline


def compute_flip_p(groups: Sequence[ItemGroup]) -> float:
    """Return the two-sided exact p-value that each group might as well differ the other way.

    Two equal arms may swap their answers to a whole group. So each difference has either sign with
    the same chance, and the sum over all groups has an exact distribution: groups of the same size
    of difference give a binomial one.
    """
    differences = np.array([group.difference for group in groups])
    sizes, counts = np.unique(np.abs(differences[differences != 0]), return_counts=True)
    chances = np.ones(1)  # of each sum, from the least possible one on
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        positive = np.arange(count + 1)
        logs = (
            special.gammaln(count + 1)
            - special.gammaln(positive + 1)
            - special.gammaln(count - positive + 1)
        )
        spread = np.zeros(2 * size * count + 1)
        spread[:: 2 * size] = np.exp(logs - count * math.log(2))
        chances = np.convolve(chances, spread)

    sums = np.arange(len(chances)) - len(chances) // 2
    is_as_far = np.abs(sums) >= abs(differences.sum())
    return min(1.0, float(chances[is_as_far].sum()))


def compute_design_effect(groups: Sequence[ItemGroup]) -> float:
    """Return how many grouped items tell as much as one alone, the doubt of few groups included.

    It is the variance of the difference between groups over that of items taken alone. Groups that
    do not differ show no variance, so that of a few groups whose items all differ alike is added to
    both: the square of the normal quantile, as many as the score interval adds to a share.
    Student's quantile in place of the normal one counts for few groups.

    Args:
        groups: one at least, of all items.
    """
    sizes = [group.items for group in groups]
    group_count = len(groups)
    if set(sizes) == {1}:
        return 1.0
    if group_count == 1:
        return math.inf

    items = sum(sizes)
    share = sum(group.difference for group in groups) / items
    between = sum((group.difference - group.items * share) ** 2 for group in groups)
    one_sided = sum(group.only_baseline + group.only_variant for group in groups)
    alone = one_sided - items * share**2

    # the effect where the items of a group answer alike
    likeness = sum(size**2 for size in sizes) / items
    level = 0.5 + LEVEL / 2
    normal = NormalDist().inv_cdf(level)
    student = float(special.stdtrit(group_count - 1, level))
    grouped_variance = between + normal**2 * likeness**2
    single_variance = alone + normal**2 * likeness
    effect = max(1.0, grouped_variance / single_variance)
    effect = effect * group_count / (group_count - 1)
    return effect * (student / normal) ** 2
