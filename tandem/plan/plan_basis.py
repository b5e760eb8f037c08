"""What a plan rests on: figures of each draft, and what is published of a step's cost.

Invariant: a figure of one draft is never taken for another's. Drafts of which the same is known
cannot be told apart: they are one group, and only their windows can be ranked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tandem.plan.step_cost import StepCost

FigureBasis = Literal["measured", "given", "published", "assumed"]
# between the break-even of the post's pair, 0.58, and what llmperf's copying prompts give
ASSUMED_ACCEPTANCE = 0.8


@dataclass(frozen=True)
class DraftShare:
    """Time of one draft forward over a plain step at concurrency 1.

    Args:
        mean, low, high: the share, and its range.
        basis: where it comes from.
        verified: time of one more verified token over a plain step; 0 where the share has it in it.
        concurrency: the highest load for which it holds; None where it was measured or given.
    """

    mean: float
    low: float
    high: float
    basis: FigureBasis
    verified: float = 0.0
    concurrency: int | None = None


@dataclass(frozen=True, kw_only=True)
class DraftBasis:
    """What is known of one draft beside the target.

    Args:
        acceptance: chance that a drafted token is accepted after all before it were.
        acceptance_basis: where it comes from.
        position_rates: share of drafts accepted at each position, where that is known; the plan
            then uses it in place of the acceptance.
        share: of a draft forward; None where it is not known. The range of a measured one is that
            of the classes.
        is_simulated: whether a figure was measured on simulated servers.
    """

    acceptance: float = ASSUMED_ACCEPTANCE
    acceptance_basis: FigureBasis = "assumed"
    position_rates: tuple[float, ...] = ()
    share: DraftShare | None = None
    is_simulated: bool = False

    @property
    def has_acceptance(self) -> bool:
        """Whether somebody measured or gave the acceptance."""
        return self.acceptance_basis != "assumed"


@dataclass(frozen=True, kw_only=True)
class PlanBasis:
    """What every figure of a plan rests on.

    Args:
        drafts: id of each draft to what is known of it.
        cost: of a step, as published rows of the target's kind say; None where they say nothing.
        objection: why there is no `cost`; empty where there is one.
    """

    drafts: Mapping[str, DraftBasis]
    cost: StepCost | None = None
    objection: str = ""

    @property
    def is_simulated(self) -> bool:
        """Whether a figure was measured on simulated servers."""
        return any(draft.is_simulated for draft in self.drafts.values())

    def list_groups(self) -> list[tuple[str, ...]]:
        """Return the drafts that the plan cannot tell apart, each group in the drafts' order."""
        groups: dict[DraftBasis, tuple[str, ...]] = {}
        for draft, basis in self.drafts.items():
            groups[basis] = (*groups.get(basis, ()), draft)
        return list(groups.values())
