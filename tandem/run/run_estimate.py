"""The estimate of a run: its steps with minutes and USD, and what they leave out.

Invariant: a figure gives its basis, and says what it is a bound of and what it does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

ASSUMED = "assumed"  # no source gives it


@dataclass(frozen=True, kw_only=True)
class StepEstimate:
    """One step of the plan.

    Args:
        step: its name in the journal.
        title: what it does, in a few words.
        minutes: how long it may take.
        basis: source of the minutes.
        is_bound: whether the minutes are the most it may take, because nothing better is known.
        deadline_minutes: then the step is ended; 0 for the way to zero, which nothing ends.
        ending: what its deadline does.
        lease: number of the lease that holds the step and pays nodes for it; 0 before the first.
        usd: for the paid nodes during the step, at the declared price; of staging, the models' way
            through NAT.
        unpriced: what else is paid, whose price nobody read in the region; empty for nothing.
        uncounted: suites whose prompts nobody has read or stated: the minutes are without them.
    """

    step: str
    title: str
    minutes: float
    basis: str = ASSUMED
    is_bound: bool = False
    deadline_minutes: float
    ending: str = "ends the run"
    lease: int = 0
    usd: float = 0.0
    unpriced: str = ""
    uncounted: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """The steps of a run in their order, and the number of nodes."""

    steps: tuple[StepEstimate, ...]
    nodes: int

    @property
    def minutes(self) -> float:
        """Return all minutes."""
        return sum(step.minutes for step in self.steps)

    @property
    def node_minutes(self) -> float:
        """Return the paid minutes, over all nodes."""
        return self.nodes * sum(step.minutes for step in self.steps if step.lease)

    @property
    def usd(self) -> float:
        """Return the cost of the nodes at the declared price, and of staging through NAT."""
        return sum(step.usd for step in self.steps)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Return what else is paid, whose price is not known."""
        return tuple(dict.fromkeys(step.unpriced for step in self.steps if step.unpriced))

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Return the suites whose prompts the minutes leave out."""
        return next((step.uncounted for step in self.steps if step.uncounted), ())

    @property
    def leases(self) -> int:
        """Return how many leases a run takes; each but the first takes `tandem run --resume`."""
        return max(step.lease for step in self.steps)

    @property
    def has_bounds(self) -> bool:
        """Whether a figure is only a bound: the most that a step may take."""
        return any(step.is_bound for step in self.steps)
