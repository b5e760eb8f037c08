"""What the time and the order of asking did to a variant against the baseline: drift, first round, place in a pass.

Invariant: a prompt is compared with itself alone, in the same class and load, so its length is in no figure; a prompt
is one value. What touches both arms alike, such as a machine that warms up, is in no speed-up and so in no figure here.
Every figure is a share of e2e_ms, the deciding metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.quantiles import Values
from tandem.bench.request_table import RequestTable
from tandem.bench.schedule import FEWEST_ROUNDS
from tandem.judge.decision import is_beyond_margin
from tandem.judge.interval import LogRatioEstimate, convert_log_ratio, estimate_log_ratio
from tandem.judge.pairs import DECIDING_METRIC
from tandem.judge.schema import CheckFinding

FALSE_CAUTION_RATE = 0.01
"""Most healthy runs in which one of these checks cautions, all arms taken together."""


@dataclass(frozen=True)
class ArmTimeline:
    """Medians of one arm's prompts, round by round; columns have one value a prompt and round.

    Args:
        arms: names.
        arm: code of the arm.
        unit: code of class, load and prompt together; `cell` of class and load.
        round: its number. slot: mean place in it. at_s: mean moment of asking.
        log: mean of the logs of e2e_ms.
    """

    arms: tuple[str, ...]
    arm: IntArray
    unit: IntArray
    cell: IntArray
    round: IntArray
    slot: Values
    at_s: Values
    log: Values

    @classmethod
    def from_requests(cls, table: RequestTable, row_mask: BoolArray) -> ArmTimeline:
        """Group the requests that succeeded and stand in rounds that count.

        Args:
            table: the run.
            row_mask: which requests count.
        """
        value = table.figures.get(DECIDING_METRIC, np.full(len(table), np.nan))
        with np.errstate(invalid="ignore"):
            rows = row_mask & ~table.failed & np.isfinite(value) & (value > 0) & np.isfinite(table.start_s)
        cells = table.class_[rows] * len(table.loads) + table.load[rows]
        units = cells * len(table.prompts) + table.prompt[rows]
        rounds, round_ = np.unique(table.round[rows], return_inverse=True)
        round_count = max(len(rounds), 1)
        arm_count = len(table.arms)
        keys, group = np.unique((units * arm_count + table.arm[rows]) * round_count + round_, return_inverse=True)
        group_sizes = np.bincount(group, minlength=len(keys))

        def average_groups(values: Values | IntArray) -> Values:
            means: Values = np.bincount(group, values, minlength=len(keys)) / group_sizes
            return means

        unit = keys // (round_count * arm_count)
        return cls(
            arms=table.arms,
            arm=keys // round_count % arm_count,
            unit=unit,
            cell=unit // max(len(table.prompts), 1),
            round=rounds[keys % round_count] if len(keys) else np.empty(0, np.intp),
            slot=average_groups(table.slot[rows]),
            at_s=average_groups(table.start_s[rows]),
            log=average_groups(np.log(value[rows])),
        )

    def select_rows(self, row_mask: BoolArray) -> ArmTimeline:
        """Return some lines of it."""
        columns: list[Any] = [self.arm, self.unit, self.cell, self.round, self.slot, self.at_s, self.log]
        return ArmTimeline(self.arms, *(column[row_mask] for column in columns))

    def pair_arms(self) -> Iterator[tuple[str, ArmTimeline, ArmTimeline]]:
        """Yield each arm but the baseline: its name, and baseline's and its own lines of what both were asked."""
        round_count = 1 + int(self.round.max(initial=0))
        baseline = self.select_rows(self.arm == 0)
        for code, name in enumerate(self.arms[1:], start=1):
            arm_timeline = self.select_rows(self.arm == code)
            _, baseline_places, arm_places = np.intersect1d(
                baseline.unit * round_count + baseline.round,
                arm_timeline.unit * round_count + arm_timeline.round,
                assume_unique=True,
                return_indices=True,
            )
            yield name, baseline.select_rows(baseline_places), arm_timeline.select_rows(arm_places)

    def compare_arms(self) -> Iterator[tuple[str, ArmTimeline]]:
        """Yield each arm but the baseline, its times as a share of the baseline's, of prompts with several rounds."""
        for name, baseline, arm in self.pair_arms():
            ratio = replace(arm, log=arm.log - baseline.log, at_s=(arm.at_s + baseline.at_s) / 2)
            _, places, unit_counts = np.unique(ratio.unit, return_inverse=True, return_counts=True)
            ratio = ratio.select_rows(unit_counts[places] > 1)
            if len(ratio.log):
                yield name, ratio


def check_drift(timeline: ArmTimeline) -> CheckFinding:
    """Return whether an arm became slower or faster against the baseline while the run went on."""
    drifts = {name: _estimate_drift(arm_timeline) for name, arm_timeline in timeline.compare_arms()}
    known_drifts = {name: drift for name, drift in drifts.items() if drift is not None}
    if not known_drifts:
        return (
            "absent",
            f"no variant was asked 3 prompts in two rounds, so a drift cannot be seen: --rounds {FEWEST_ROUNDS}",
        )
    template = f"from its first round to its last, {{arm}} became {{change}} against {timeline.arms[0]}"
    return _report_changes(known_drifts, template, "; the speed-up depends on when it was measured")


def _estimate_drift(timeline: ArmTimeline) -> LogRatioEstimate | None:
    """Return the log change from first to last request, of the line through each prompt's rounds."""
    prompts, owner = np.unique(timeline.unit, return_inverse=True)
    time, log = (
        timeline.at_s - _reduce_by_owner(owner, timeline.at_s)[owner],
        timeline.log - _reduce_by_owner(owner, timeline.log)[owner],
    )
    squares = np.bincount(owner, time * time).mean()
    if squares <= 0 or not len(prompts):
        return None
    first, last = _reduce_by_owner(owner, timeline.at_s, np.minimum), _reduce_by_owner(owner, timeline.at_s, np.maximum)
    return estimate_log_ratio(np.bincount(owner, time * log) / squares * float(np.mean(last - first)))


def estimate_first_round(timeline: ArmTimeline) -> dict[str, LogRatioEstimate]:
    """Return how much slower each variant was, against the baseline, in its first round than in its later ones."""
    changes = {}
    for name, arm_timeline in timeline.compare_arms():
        is_first = arm_timeline.round == arm_timeline.round.min()
        owner = np.unique(arm_timeline.unit, return_inverse=True)[1]
        unit_count = int(owner.max()) + 1
        row_counts = [np.bincount(owner[part], minlength=unit_count) for part in (is_first, ~is_first)]
        with np.errstate(invalid="ignore", divide="ignore"):
            early_means, late_means = (
                np.bincount(owner[part], arm_timeline.log[part], minlength=unit_count) / times
                for part, times in zip((is_first, ~is_first), row_counts, strict=True)
            )
        change = estimate_log_ratio((early_means - late_means)[(row_counts[0] > 0) & (row_counts[1] > 0)])
        if change is not None:
            changes[name] = change
    return changes


def check_order(table: RequestTable, timeline: ArmTimeline) -> CheckFinding:
    """Return whether a prompt takes longer for whoever is asked it second."""
    if table.run.schedule == "simultaneous" and table.control is None:
        return "absent", "all arms were asked at once"
    shares = _compute_order_shares(timeline)
    if isinstance(shares, str):
        if shares == "none":
            return "absent", "no prompt was asked of one arm before another, so there is no order"
        return (
            "caution",
            (
                "every class was asked of the arms in one order only, so what an order does is in every speed-up: "
                f"ask {FEWEST_ROUNDS} rounds, or so many prompts that half of them fill the concurrency"
            ),
        )
    effect = estimate_log_ratio(shares)
    if effect is None:
        return "absent", "fewer than 3 prompts were asked of two arms, so an order's effect cannot be seen"
    template = "asked of the second arm of a pass, a prompt was {change} than of the first"
    return _report_changes({"": effect}, template, "; each arm is first as often as second")


def _compute_order_shares(timeline: ArmTimeline) -> Values | Literal["none", "one"]:
    """Return, for each prompt, its share in the log change by being asked later; or how many orders there were.

    The difference of two arms is held against which of them came later, inside one class at one load of one pair of
    arms: the arms' own difference is taken out as the mean of it.
    """
    logs, signs, cells, units = [], [], [], []
    for code, (_, baseline, arm) in enumerate(timeline.pair_arms(), start=1):
        sign = np.sign(arm.slot - baseline.slot)
        has_order = sign != 0  # asked at once, or first as often as second already
        logs.append((arm.log - baseline.log)[has_order])
        signs.append(sign[has_order])
        cells.append(baseline.cell[has_order] * len(timeline.arms) + code)
        units.append(baseline.unit[has_order])
    if not sum(map(len, logs)):
        return "none"
    log, sign, cell, unit = map(np.concatenate, (logs, signs, cells, units))
    owner = np.unique(cell, return_inverse=True)[1]
    log, sign = log - _reduce_by_owner(owner, log)[owner], sign - _reduce_by_owner(owner, sign)[owner]
    prompt = np.unique(unit, return_inverse=True)[1]
    squares = float((sign * sign).sum())
    if squares < 1:
        return "one"
    shares: Values = np.bincount(prompt, sign * log) * (int(prompt.max()) + 1) / squares
    return shares


def select_cautions(estimates: Mapping[str, LogRatioEstimate]) -> dict[str, LogRatioEstimate]:
    """Return the changes that are surely beyond the margin, all arms taken together."""
    return {
        arm: estimate
        for arm, estimate in estimates.items()
        if is_beyond_margin(estimate, FALSE_CAUTION_RATE, len(estimates))
    }


def describe_change(estimate: LogRatioEstimate) -> str:
    """Return a log change of a time in words, with its interval."""
    low, high = sorted((convert_log_ratio(estimate.low) - 1, convert_log_ratio(estimate.high) - 1))
    return (
        f"{abs(convert_log_ratio(estimate.log) - 1):.1%} {'slower' if estimate.log > 0 else 'faster'} "
        f"({low:+.1%} to {high:+.1%})"
    )


def _report_changes(estimates: Mapping[str, LogRatioEstimate], template: str, caution_suffix: str) -> CheckFinding:
    """Return a finding that cautions where a change is surely beyond the margin, else tells the largest."""
    cautions = select_cautions(estimates)
    reports = cautions or dict([max(estimates.items(), key=lambda item: abs(item[1].log))])
    sentence = "; ".join(
        template.format(arm=arm, change=describe_change(estimate)) for arm, estimate in reports.items()
    )
    return ("caution", f"{sentence}{caution_suffix}") if cautions else ("passed", sentence)


def _reduce_by_owner(owner: IntArray, values: Values, reducer: np.ufunc | None = None) -> Values:
    """Return the mean of each owner's values, or what `reducer` leaves of them."""
    if reducer is not None:
        reductions: Values = reducer.reduceat(values, np.searchsorted(owner, np.arange(int(owner.max()) + 1)))
        return reductions
    means: Values = np.bincount(owner, values) / np.bincount(owner)
    return means
