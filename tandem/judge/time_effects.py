"""Effects of time and order on a variant against the baseline: drift, first round, place in a pass.

Invariant: a prompt is compared only with itself, in the same class and load, so its length is in no
figure. A prompt is one value. An effect on both arms alike, such as a machine that warms up, is in
no speed-up and so in no figure here. Every figure is a share of e2e_ms, the deciding metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import RequestTable
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.judge.decision import is_beyond_margin
from tandem.judge.interval import LogRatioEstimate, convert_log_ratio, estimate_log_ratio
from tandem.judge.pairs import DECIDING_METRIC, RequestPairing
from tandem.judge.schema import CheckFinding

FALSE_CAUTION_RATE = 0.01
"""Largest share of healthy runs in which one of these checks cautions, all arms taken together."""

TurnRows = NDArray[Any]
"""Rows of `_COLUMNS`, ascending by unit, arm and round."""

_COLUMNS = [
    ("unit", np.intp),  # code of class, load and prompt together
    ("cell", np.intp),  # code of class and load
    ("arm", np.intp),
    ("turn", np.intp),  # code of unit and round together
    ("round", np.intp),
    ("slot", float),  # mean place in the round
    ("at_s", float),  # mean start of the requests
    ("log", float),  # mean of the logs of e2e_ms
]


class ArmTimeline(NamedTuple):
    """Means over each arm's requests of a prompt in a round, and the arms' names."""

    arms: tuple[str, ...]
    rows: TurnRows

    def pair_arms(self) -> Iterator[tuple[str, TurnRows, TurnRows]]:
        """Yield each arm but the baseline: its name, and the rows that both have."""
        baseline = self.rows[_read_codes(self.rows, "arm") == 0]
        for code, name in enumerate(self.arms[1:], start=1):
            arm = self.rows[_read_codes(self.rows, "arm") == code]
            _, *places = np.intersect1d(
                _read_codes(baseline, "turn"),
                _read_codes(arm, "turn"),
                assume_unique=True,
                return_indices=True,
            )
            yield name, baseline[places[0]], arm[places[1]]

    def compare_arms(self) -> Iterator[tuple[str, TurnRows]]:
        """Yield each arm but the baseline, its times as shares of the baseline's, by prompt."""
        for name, baseline, arm in self.pair_arms():
            ratio = arm.copy()
            ratio["log"] = _read_column(arm, "log") - _read_column(baseline, "log")
            ratio["at_s"] = (_read_column(arm, "at_s") + _read_column(baseline, "at_s")) / 2
            _, places, unit_counts = np.unique(
                _read_codes(ratio, "unit"), return_inverse=True, return_counts=True
            )
            if (unit_counts > 1).any():
                yield name, ratio[unit_counts[places] > 1]


def _read_column(rows: TurnRows, name: str) -> Values:
    """Return a column of floats; its type spares mypy the overloads of numpy."""
    return rows[name]


def _read_codes(rows: TurnRows, name: str) -> IntArray:
    """Return a column of codes."""
    return rows[name]


def build_timeline(pairing: RequestPairing) -> ArmTimeline:
    """Group the requests that succeeded and stand in rounds that count."""
    table = pairing.table
    is_usable = pairing.row_mask() & ~table.failed
    is_usable &= pairing.metric_mask(DECIDING_METRIC) & np.isfinite(table.start_s)
    requests = np.flatnonzero(is_usable)
    prompt_count = max(len(table.prompts), 1)
    arm_count = len(table.arms)
    units = (pairing.cell_codes() * prompt_count + table.prompt)[requests]
    rounds, round_ = np.unique(table.round[requests], return_inverse=True)
    round_count = max(len(rounds), 1)
    codes = (units * arm_count + table.arm[requests]) * round_count + round_
    keys, group, group_sizes = np.unique(codes, return_inverse=True, return_counts=True)
    rows = np.zeros(len(keys), _COLUMNS)
    if len(keys):
        places, round_places = np.divmod(keys, round_count)
        rows["unit"], rows["arm"] = np.divmod(places, arm_count)
        rows["cell"] = rows["unit"] // prompt_count
        rows["round"] = rounds[round_places]
        rows["turn"] = rows["unit"] * round_count + round_places
        columns = {
            "slot": table.slot[requests],
            "at_s": table.start_s[requests],
            "log": np.log(table.figures[DECIDING_METRIC][requests]),
        }
        for name, column in columns.items():
            rows[name] = np.bincount(group, column) / group_sizes
    return ArmTimeline(table.arms, rows)


def check_drift(timeline: ArmTimeline) -> CheckFinding:
    """Return whether an arm became slower or faster against the baseline while the run went on.

    The change is along a line through each prompt's rounds, from the first request to the last.
    """
    drifts = {}
    for name, rows in timeline.compare_arms():
        units = _read_codes(rows, "unit")
        starts, owner = np.unique(units, return_index=True, return_inverse=True)[1:]
        at_s = _read_column(rows, "at_s")
        first = np.minimum.reduceat(at_s, starts)
        last = np.maximum.reduceat(at_s, starts)
        products, squares = _sum_products(owner, at_s, _read_column(rows, "log"))
        if squares.mean() > 0:
            slopes = products / squares.mean()
            drift = estimate_log_ratio(slopes * float(np.mean(last - first)))
            if drift is not None:
                drifts[name] = drift
    if not drifts:
        reason = f"so a drift cannot be seen: --rounds {FEWEST_ROUNDS}"
        return "absent", f"no variant was asked 3 prompts in two rounds, {reason}"
    template = (
        f"from its first round to its last, {{arm}} became {{change}} against {timeline.arms[0]}"
    )
    return _report_changes(drifts, template, "; the speed-up depends on when it was measured")


def check_warm_up(table: RequestTable, timeline: ArmTimeline) -> CheckFinding:
    """Return whether arms were stable when measuring began, by warm-up and first round."""
    is_cold = False
    sentences = []
    for name, warm_up in table.run.warm_up.items():
        if warm_up.stable:
            sentences.append(f"{name} had reached steady state before the first record")
        elif warm_up.stable is not None:
            is_cold = True
            sentences.append(f"{name} had not reached steady state when its warm-up ended")
    changes = _estimate_first_round(timeline)
    if changes:
        template = f"{{arm}} was {{change}} in its first round than later, against {table.baseline}"
        result, sentence = _report_changes(changes, template, "")
        is_cold |= result == "caution"
        sentences.append(sentence)

    if not sentences:
        reason = (
            "no warm-up ran until the server was stable, and no variant got 3 prompts in two rounds"
        )
        return "absent", reason
    if is_cold:
        sentences.append("figures of the first round may be those of a cold server")
        return "caution", "; ".join(sentences)
    return "passed", "; ".join(sentences)


def _estimate_first_round(timeline: ArmTimeline) -> dict[str, LogRatioEstimate]:
    """Return how much slower each variant was in its first round than later, by the baseline."""
    changes = {}
    for name, rows in timeline.compare_arms():
        owner = np.unique(_read_codes(rows, "unit"), return_inverse=True)[1]
        is_first = rows["round"] == rows["round"].min()
        products, squares = _sum_products(owner, is_first.astype(float), rows["log"])
        with np.errstate(invalid="ignore"):  # a prompt of one side alone is NaN, and so absent
            change = estimate_log_ratio(products / squares)
        if change is not None:
            changes[name] = change
    return changes


def _sum_products(owner: IntArray, cause: Values, log: Values) -> tuple[Values, Values]:
    """Return each owner's sums of cause times log and of cause squared, about the owner's means."""
    cause = _center_groups(owner, cause)
    products = np.bincount(owner, cause * _center_groups(owner, log))
    squares = np.bincount(owner, cause * cause)
    return products.astype(float), squares.astype(float)


def check_order(table: RequestTable, timeline: ArmTimeline) -> CheckFinding:
    """Return whether a prompt takes longer in the arm that gets it second.

    The check compares the difference of two arms with their order, inside one class at one load of
    one pair of arms. Subtracting the mean takes out the arms' own difference. A prompt is one
    value.
    """
    if table.run.schedule == "simultaneous" and table.control is None:
        return "absent", "all arms were asked at once"
    columns = [np.empty((4, 0))]  # log, sign, pair of arms in a cell, unit
    for code, (_, baseline, arm) in enumerate(timeline.pair_arms(), start=1):
        sign = np.sign(_read_column(arm, "slot") - _read_column(baseline, "slot"))
        has_order = sign != 0  # 0: both at once, or first as often as second
        cell = _read_codes(baseline, "cell") * len(timeline.arms) + code
        difference = _read_column(arm, "log") - _read_column(baseline, "log")
        columns.append(
            np.stack([difference, sign, cell, _read_codes(baseline, "unit")])[:, has_order]
        )
    log, sign, cell, unit = np.concatenate(columns, axis=1)
    if not len(log):
        return "absent", "no prompt was asked of one arm before another, so there is no order"
    owner = np.unique(cell, return_inverse=True)[1]
    log = _center_groups(owner, log)
    sign = _center_groups(owner, sign)
    squares = float((sign * sign).sum())
    if squares < 1:
        reason = (
            "every class went to the arms in one order only, so each speed-up includes the effect"
            f" of the order: ask {FEWEST_ROUNDS} rounds, or so many prompts that half of them fill"
            " the concurrency"
        )
        return "caution", reason
    prompts, prompt = np.unique(unit, return_inverse=True)
    effect = estimate_log_ratio(np.bincount(prompt, sign * log) * len(prompts) / squares)
    if effect is None:
        reason = "fewer than 3 prompts went to two arms, so an order's effect cannot be seen"
        return "absent", reason
    template = "asked of the second arm of a pass, a prompt was {change} than of the first"
    suffix = "; of classes asked in one order it is in the speed-up"
    return _report_changes({"": effect}, template, suffix)


def _select_cautions(estimates: Mapping[str, LogRatioEstimate]) -> list[str]:
    """Return the arms whose change is surely beyond the margin, all arms taken together."""
    count = len(estimates)
    return [
        arm
        for arm, change in estimates.items()
        if is_beyond_margin(change, FALSE_CAUTION_RATE, count)
    ]


def _describe_change(estimate: LogRatioEstimate) -> str:
    """Return a log change of a time in words, with its interval."""
    change = convert_log_ratio(estimate.log) - 1
    low = convert_log_ratio(estimate.low) - 1
    high = convert_log_ratio(estimate.high) - 1
    word = "slower" if estimate.log > 0 else "faster"
    return f"{abs(change):.1%} {word} ({low:+.1%} to {high:+.1%})"


def _report_changes(
    estimates: Mapping[str, LogRatioEstimate], template: str, caution_suffix: str
) -> CheckFinding:
    """Return a finding: a caution if a change is surely beyond the margin, else the largest one."""
    cautions = _select_cautions(estimates)
    largest = max(estimates, key=lambda arm: abs(estimates[arm].log))
    sentences = [
        template.format(arm=arm, change=_describe_change(estimates[arm]))
        for arm in cautions or [largest]
    ]
    text = "; ".join(sentences)
    if cautions:
        return "caution", f"{text}{caution_suffix}"
    return "passed", text


def _center_groups(owner: IntArray, values: Values) -> Values:
    """Return values less the mean of their owner's values."""
    means = np.bincount(owner, values) / np.bincount(owner)
    return values - means[owner]
