"""The knee of each arm as sentences and tables, for a terminal and for the page.

Invariant: a load that holds a limit is named with the limit, the share and the interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.bench.records.terminal_table import WIDTH, format_table
from tandem.bench.records.terminal_text import wrap_text
from tandem.judge import text_format as fmt
from tandem.judge.knee import ArmKnee, KneeFinding, KneeRange, KneeWord

_BAR_COLUMNS = 20
_HEADS = ("Arm", "Requests/s", "Good", "Of", "Share", "Curve")

_REASONS: dict[KneeWord, str] = {
    "found": "",
    "too few rounds": "an interval needs 3 rounds: go on with --resume",
    "above": "the curve falls through {share} above the measured rates: repeat with another --seed",
    "below": "the curve falls through {share} below the measured rates: repeat with another --seed",
    "too fast to send": (
        "this machine cannot send more: measure from a machine with idle CPUs and a faster network"
    ),
    "not reached": "fewer than {share} keep {limits} even alone: choose other limits",
}
_BOUNDS: dict[KneeWord, str] = {
    "above": "above {bound} requests/s",
    "below": "below {bound} requests/s",
    "too fast to send": "at least {bound} requests/s",
    "not reached": "no knee",
}


def describe_limits(finding: KneeFinding) -> str:
    """Return the limits and the share, as in `TTFT 500 ms, 95 % of requests`."""
    return f"{_list_limits(finding)}, {_format_share(finding)} of requests"


def describe_ratios(finding: KneeFinding) -> Iterator[str]:
    """Yield the sentence on each variant; a knee alone, where nothing is compared."""
    for entry in finding.ratios:
        ratio = entry.ratio
        sentence = (
            f"{fmt.clean_text(entry.variant)} holds {fmt.format_number(ratio.value)} times the load"
            f" of {fmt.clean_text(entry.baseline)}{_format_ends(ratio)} at"
            f" {describe_limits(finding)}"
        )
        is_even = ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high
        yield f"{sentence}: no difference is shown" if is_even else sentence
    if len(finding.ratios) < len(finding.arms) - 1:
        yield f"not every arm has a knee at {describe_limits(finding)}, so not all are compared"


def describe_arm(arm: ArmKnee, finding: KneeFinding) -> str:
    """Return the knee of an arm as a sentence, with what is missing if there is none."""
    words = {
        "share": _format_share(finding),
        "limits": _list_limits(finding),
        "bound": "0" if arm.bound_per_s is None else fmt.format_number(arm.bound_per_s),
    }
    reason = _REASONS[arm.word].format(**words)
    if arm.rate_per_s is None:
        text = _BOUNDS.get(arm.word, "not known yet").format(**words)
    else:
        rounds = "1 round" if arm.rounds == 1 else f"{arm.rounds} rounds"
        knee = f"{fmt.format_number(arm.rate_per_s.value)} requests/s"
        text = f"holds {knee}{_format_ends(arm.rate_per_s)} at {describe_limits(finding)}; {rounds}"
    return f"{fmt.clean_text(arm.arm)}: {text}{'; ' if reason else ''}{reason}"


def list_curve_rows(finding: KneeFinding) -> Iterator[tuple[str, ...]]:
    """Yield arm, rate, good and counted requests, share and fitted share of each point."""
    for arm in finding.arms:
        for point in arm.points:
            yield (
                fmt.shorten_text(arm.arm),
                fmt.format_number(point.rate_per_s),
                f"{point.good:,}",
                f"{point.counted:,}",
                f"{100 * point.good / point.counted:.1f} %",
                fmt.ABSENT if point.fitted is None else f"{100 * point.fitted:.1f} %",
            )


def render_knee_lines(
    finding: KneeFinding, notes: Sequence[str], *, is_simulated: bool, width: int = WIDTH
) -> Iterator[str]:
    """Yield the lines for a terminal.

    Args:
        finding: to print.
        notes: of the run.
        is_simulated: whether a server was simulated.
        width: of a line, in columns.
    """
    if is_simulated:
        yield SIMULATED_BAND
    for sentence in describe_ratios(finding):
        yield from wrap_text(sentence, width, indent="  ")
    for arm in finding.arms:
        yield from wrap_text(f"  {describe_arm(arm, finding)}", width, indent="    ")
    yield ""
    shares = [point.good / point.counted for arm in finding.arms for point in arm.points]
    bars = ["\u2501" * round(share * _BAR_COLUMNS) for share in shares]
    rows = [(*row, bar) for row, bar in zip(list_curve_rows(finding), bars, strict=True)]
    if rows:
        yield from format_table((*_HEADS, ""), rows, numbers=range(1, len(_HEADS)), width=width)
        yield ""
    for note in notes:
        yield from wrap_text(f"note: {note}", width, indent="      ")


def _list_limits(finding: KneeFinding) -> str:
    return ", ".join(
        f"{fmt.format_metric(name)} {limit:g} {fmt.metric_unit(name)}".rstrip()
        for name, limit in finding.limits.items()
    )


def _format_share(finding: KneeFinding) -> str:
    return f"{100 * finding.share:g} %"


def _format_ends(estimate: KneeRange) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f" ({fmt.format_number(estimate.low)} to {fmt.format_number(estimate.high)})"
