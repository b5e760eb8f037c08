"""What a run was measured under: errors, warm-up, the measuring machine, where servers ran and how often they started.

Invariant: nothing is decided by a figure that a record, the manifest or rounds.jsonl does not have: then the check is
absent, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tandem.bench import client_load
from tandem.bench.client_load import RoundLoad
from tandem.bench.columns import IntArray
from tandem.bench.host import MAX_CLIENT_CPU, MAX_LAG_S
from tandem.bench.request_table import UNKNOWN, RequestTable
from tandem.judge.interval import FEWEST_STARTS, LogRatioEstimate
from tandem.judge.pairs import DECIDING_METRIC, RequestPairing
from tandem.judge.schema import MARGIN, BottleneckRound, ControlCheck
from tandem.judge.time_effects import ArmTimeline, describe_change, estimate_first_round, select_cautions

LEAST_S = 1.0
"""A part of a round that was watched for less says nothing of it."""

FAILURE_SHARE = 0.01
"""From so many failed requests of an arm on they are worth a caution."""

_MAX_NAMES = 5
_MS = 1000.0


def check_client_load(table: RequestTable) -> tuple[ControlCheck, tuple[BottleneckRound, ...]]:
    """Return whether the measuring machine kept up, and the rounds in which it did not.

    A round is marked where the client took more than MOST_CPU of a CPU, for its event loop has no more than one; or
    where one time in ten the loop woke late by more than MOST_LAG_S and by more than the margin of the round's median
    e2e_ms. What comes less often touches few requests, of both arms alike: it is in the intervals and the noise floor.

    Raises:
        BenchError: rounds.jsonl cannot be read.
    """
    round_loads = [
        load
        for load in client_load.read_round_loads(table.folder)
        if load.wall_s >= LEAST_S and load.client_cpu is not None
    ]
    if not round_loads:
        sentence = (
            "nothing tells how busy the measuring machine was in each round: no rounds.jsonl, or rounds of under 1 s"
        )
        return ControlCheck(name="client load", result="absent", sentence=sentence), ()
    reasons: dict[int, str] = {}
    for load in round_loads:
        reason = _explain_overload(load, _compute_median_s(table, load.round))
        if reason is not None:
            reasons.setdefault(load.round, reason)
    bottlenecks = tuple(
        BottleneckRound(round=round_number, sentence=reason) for round_number, reason in sorted(reasons.items())
    )
    return _judge_client_load(table, round_loads, bottlenecks), bottlenecks


def _explain_overload(load: RoundLoad, median_s: float | None) -> str | None:
    cpu, lag_s = load.client_cpu or 0.0, load.lag_p90_s or 0.0
    if cpu > MAX_CLIENT_CPU:
        return f"the client took {cpu:.0%} of a CPU, and its event loop has one"
    if lag_s > MAX_LAG_S and median_s is not None and lag_s > MARGIN * median_s:
        return (
            f"the client's event loop woke {_MS * lag_s:.0f} ms late or more one time in ten, beside a median request "
            f"of {_MS * median_s:.0f} ms"
        )
    return None


def _compute_median_s(table: RequestTable, round_number: int) -> float | None:
    values = (
        table.figures.get(DECIDING_METRIC, np.empty(0))[table.round == round_number]
        if DECIDING_METRIC in table.figures
        else np.empty(0)
    )
    finite_values = values[np.isfinite(values)]
    return float(np.median(finite_values)) / _MS if len(finite_values) else None


def _judge_client_load(
    table: RequestTable, round_loads: Sequence[RoundLoad], bottlenecks: Sequence[BottleneckRound]
) -> ControlCheck:
    round_numbers = set(np.unique(table.round).tolist())
    comparison_rounds = {
        round_number for round_number in round_numbers if round_number not in _find_control_rounds(table)
    } or round_numbers
    bottleneck_rounds = {bottleneck.round for bottleneck in bottlenecks} & round_numbers
    if (
        bottleneck_rounds and comparison_rounds <= bottleneck_rounds
    ):  # a run without a record has no round that could be left out
        sentence = (
            f"the client was the bottleneck in every round that compares arms: in round {_list_rounds(bottlenecks)}"
        )
        advice = "lower --concurrency, or measure from a machine with idle CPUs"
        return ControlCheck(name="client load", result="failed", sentence=f"{sentence}; {advice}")
    if bottleneck_rounds:
        sentence = (
            f"the client was the bottleneck in {len(bottleneck_rounds)} of {len(round_numbers)} rounds, "
            f"which are left out: {_list_rounds(bottlenecks)}"
        )
        return ControlCheck(name="client load", result="caution", sentence=sentence)
    cpu = max(load.client_cpu or 0.0 for load in round_loads)
    lag_s = max(load.lag_p90_s or 0.0 for load in round_loads)
    return ControlCheck(
        name="client load",
        result="passed",
        sentence=f"the client took at most {cpu:.0%} of a CPU in a round, and its "
        f"event loop woke up to {_MS * lag_s:.1f} ms late nine times in ten",
    )


def _find_control_rounds(table: RequestTable) -> set[int]:
    """Return the rounds in which no variant was asked."""
    variants = [table.arms.index(name) for name in table.variants if name in table.arms]
    variant_rounds = set(np.unique(table.round[np.isin(table.arm, variants)]).tolist())
    return set(np.unique(table.round).tolist()) - variant_rounds


def _list_rounds(bottlenecks: Sequence[BottleneckRound]) -> str:
    """Name rounds as the operator saw them, from 0, with the first reason."""
    rounds_text = ", ".join(str(bottleneck.round) for bottleneck in bottlenecks[:_MAX_NAMES])
    return f"{rounds_text}{', ...' if len(bottlenecks) > _MAX_NAMES else ''} ({bottlenecks[0].sentence})"


def check_warm_up(table: RequestTable, timeline: ArmTimeline) -> ControlCheck:
    """Return whether the arms stood still when measuring began: by their warm-up, and by the first round."""
    unstable_arms = [name for name, report in table.run.warm_up.items() if report.stable is False]
    first_round_changes = estimate_first_round(timeline)
    cold_starts = select_cautions(first_round_changes)
    if unstable_arms or cold_starts:
        report = [f"{name} was not stable when its warm-up was given up" for name in unstable_arms]
        report += [
            f"{name} was {describe_change(change)} in its first round than later, against {table.baseline}"
            for name, change in cold_starts.items()
        ]
        return ControlCheck(name="warm-up", result="caution", sentence="; ".join(report))
    stable_arms = [name for name, report in table.run.warm_up.items() if report.stable]
    if not stable_arms and not first_round_changes:
        return ControlCheck(
            name="warm-up", result="absent",
            sentence="no warm-up was asked until it was stable, and no variant was asked 3 prompts in two rounds",
        )  # fmt: skip
    report = [f"{' and '.join(stable_arms)} stood still before the first record"] if stable_arms else []
    return ControlCheck(
        name="warm-up",
        result="passed",
        sentence="; ".join([*report, *_describe_largest_change(first_round_changes, table.baseline)]),
    )


def _describe_largest_change(changes: Mapping[str, LogRatioEstimate], baseline: str) -> Iterator[str]:
    if changes:
        name, change = max(changes.items(), key=lambda item: abs(item[1].log))
        yield f"{name} was {describe_change(change)} in its first round than later, against {baseline}"


def check_placement(table: RequestTable) -> ControlCheck:
    """Return whether what halves of a host differ by can be told from what variants differ by."""
    placements_by_arm = _group_codes(table, table.placement)
    if not any(placements_by_arm.values()):
        absence = "no record says where its server ran (--placement)"
        return ControlCheck(name="placement", result="absent", sentence=absence)
    sentence = "; ".join(
        f"{arm} ran at {' and '.join(table.placements[code] for code in codes) or 'no place that was recorded'}"
        for arm, codes in placements_by_arm.items()
    )
    is_same = len({tuple(codes) for codes in placements_by_arm.values()}) == 1
    if is_same or all(len(codes) >= 2 for codes in placements_by_arm.values()):  # noqa: PLR2004 - swapped: here, then there
        return ControlCheck(name="placement", result="passed", sentence=sentence)
    return ControlCheck(name="placement", result="caution", sentence=sentence)


def check_starts(pairing: RequestPairing) -> ControlCheck:
    """Return whether what starts differ by is in the intervals; where it is not, the word itself says so."""
    table = pairing.table
    starts_by_arm = _group_codes(table, table.start)
    if not any(starts_by_arm.values()):
        return ControlCheck(name="start", result="absent", sentence="no record says which start of its server it met")
    counts_text = "; ".join(
        f"{arm} was met in {len(codes)} start{'' if len(codes) == 1 else 's'}" for arm, codes in starts_by_arm.items()
    )
    start_count = min(_count_starts(pairing), default=0)
    if start_count >= FEWEST_STARTS:
        sentence = (
            f"{counts_text}: starts are a factor of the intervals, {start_count} or more that share no server's start"
        )
        return ControlCheck(name="start", result="passed", sentence=sentence)
    shortage = f"{counts_text}: the interval leaves out how starts differ, {FEWEST_STARTS} starts of each arm put it in"
    return ControlCheck(name="start", result="absent", sentence=shortage)


def _count_starts(pairing: RequestPairing) -> Iterator[int]:
    """Yield how many independent starts each judged class has, by the deciding metric."""
    table = pairing.table
    for cell_code in np.unique(pairing.cell_codes()).tolist():
        class_, load = divmod(cell_code, len(table.loads))
        for variant in table.variants:
            pairs = pairing.pairs(
                baseline=table.baseline, variant=variant, class_=class_, load=load, metric=DECIDING_METRIC
            )
            if len(pairs.rounds):
                yield len(set(pairs.starts.tolist()) - {UNKNOWN})


def _group_codes(table: RequestTable, codes: IntArray) -> dict[str, list[int]]:
    """Return what each arm but the control had, as codes that are known; arms that were never asked are left out."""
    return {
        arm: [code for code in np.unique(codes[table.arm_mask(arm)]).tolist() if code != UNKNOWN]
        for arm in (table.baseline, *table.variants)
        if arm in table.arms and table.arm_mask(arm).any()
    }


def check_errors(table: RequestTable) -> ControlCheck:
    """Return whether every arm answered: the run is void where the baseline, or every variant, answered nothing."""
    counts = {}
    for arm in (table.baseline, *table.variants, *([table.control] if table.control else [])):
        rows = table.arm_mask(arm)
        counts[arm] = int(rows.sum()), int((rows & table.failed).sum())
    silent_arms = [arm for arm, (request_count, failure_count) in counts.items() if request_count == failure_count]
    failures_text = "; ".join(_describe_failures(arm, *counts[arm]) for arm in silent_arms) or "; ".join(
        _describe_failures(arm, request_count, failure_count)
        for arm, (request_count, failure_count) in counts.items()
        if failure_count
    )
    if table.baseline in silent_arms or (table.variants and set(table.variants) <= set(silent_arms)):
        return ControlCheck(name="errors", result="failed", sentence=failures_text)
    if silent_arms or any(
        failure_count > FAILURE_SHARE * request_count for request_count, failure_count in counts.values()
    ):
        return ControlCheck(name="errors", result="caution", sentence=failures_text)
    sentence = (
        failures_text or f"all {sum(request_count for request_count, _ in counts.values())} requests were answered"
    )
    return ControlCheck(name="errors", result="passed", sentence=sentence)


def _describe_failures(arm: str, request_count: int, failure_count: int) -> str:
    if not request_count:
        return f"{arm} was never asked"
    return (
        f"{arm} answered none of {request_count} requests"
        if request_count == failure_count
        else f"{arm} failed {failure_count} of {request_count} requests"
    )
