"""What a run was measured under: errors, warm-up, the measuring machine, where servers ran and how often they started.

Invariant: nothing is decided by a figure that a record, the manifest or rounds.jsonl does not have: then the check is
absent, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tandem.bench import client_load
from tandem.bench.client_load import RoundLoad
from tandem.bench.columns import IntArray
from tandem.bench.host import MAX_CLIENT_CPU, MAX_LAG_S
from tandem.bench.request_table import UNKNOWN, RequestTable
from tandem.judge.interval import FEWEST_STARTS
from tandem.judge.pairs import DECIDING_METRIC, RequestPairing
from tandem.judge.schema import MARGIN, BottleneckRound, CheckFinding
from tandem.judge.time_effects import ArmTimeline, describe_change, estimate_first_round, select_cautions

LEAST_S = 1.0
"""A part of a round that was watched for less says nothing of it."""

FAILURE_SHARE = 0.01
"""From so many failed requests of an arm on they are worth a caution."""

_MAX_NAMES = 5
_MS = 1000.0


def check_client_load(table: RequestTable) -> tuple[CheckFinding, tuple[BottleneckRound, ...]]:
    """Return whether the measuring machine kept up, and the rounds in which it did not.

    A round is marked where the client took more than MAX_CLIENT_CPU of a CPU, for its event loop has no more than one;
    or where one time in ten the loop woke late by more than MAX_LAG_S and by more than the margin of the round's median
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
        reason = "no rounds.jsonl, or rounds of under 1 s"
        return ("absent", f"nothing tells how busy the measuring machine was in each round: {reason}"), ()
    reasons: dict[int, str] = {}
    for load in round_loads:
        reason = _explain_overload(load, _compute_median_s(table, load.round))
        if reason:
            reasons.setdefault(load.round, reason)
    bottlenecks = tuple(BottleneckRound(round=number, sentence=reasons[number]) for number in sorted(reasons))
    return _judge_client_load(table, round_loads, bottlenecks), bottlenecks


def _explain_overload(load: RoundLoad, median_s: float | None) -> str:
    """Return why the client was the bottleneck of a round; empty where it was not."""
    cpu, lag_s = load.client_cpu or 0.0, load.lag_p90_s or 0.0
    if cpu > MAX_CLIENT_CPU:
        return f"the client took {cpu:.0%} of a CPU, and its event loop has one"
    if lag_s > MAX_LAG_S and median_s is not None and lag_s > MARGIN * median_s:
        return (
            f"the client's event loop woke {_MS * lag_s:.0f} ms late or more one time in ten, beside a median request "
            f"of {_MS * median_s:.0f} ms"
        )
    return ""


def _compute_median_s(table: RequestTable, round_number: int) -> float | None:
    values = table.figures.get(DECIDING_METRIC, np.full(len(table), np.nan))[table.round == round_number]
    finite_values = values[np.isfinite(values)]
    return float(np.median(finite_values)) / _MS if len(finite_values) else None


def _judge_client_load(
    table: RequestTable, round_loads: Sequence[RoundLoad], bottlenecks: Sequence[BottleneckRound]
) -> CheckFinding:
    round_numbers = set(table.round.tolist())
    variants = [table.arms.index(name) for name in table.variants]
    comparison_rounds = set(table.round[np.isin(table.arm, variants)].tolist()) or round_numbers
    bottleneck_rounds = {bottleneck.round for bottleneck in bottlenecks} & round_numbers
    if bottleneck_rounds:
        more = ", ..." if len(bottlenecks) > _MAX_NAMES else ""
        numbers = ", ".join(str(bottleneck.round) for bottleneck in bottlenecks[:_MAX_NAMES])
        rounds_text = f"{numbers}{more} ({bottlenecks[0].sentence})"
        if comparison_rounds <= bottleneck_rounds:
            return (
                "failed",
                (
                    f"the client was the bottleneck in every round that compares arms: in round {rounds_text}; lower "
                    "--concurrency, or measure from a machine with idle CPUs"
                ),
            )
        counts = f"{len(bottleneck_rounds)} of {len(round_numbers)} rounds"
        return "caution", f"the client was the bottleneck in {counts}, which are left out: {rounds_text}"
    cpu = max(load.client_cpu or 0.0 for load in round_loads)
    lag_s = max(load.lag_p90_s or 0.0 for load in round_loads)
    return (
        "passed",
        (
            f"the client took at most {cpu:.0%} of a CPU in a round, and its event loop woke up to {_MS * lag_s:.1f} "
            "ms late nine times in ten"
        ),
    )


def check_warm_up(table: RequestTable, timeline: ArmTimeline) -> CheckFinding:
    """Return whether the arms stood still when measuring began: by their warm-up, and by the first round."""
    changes = estimate_first_round(timeline)
    change_texts = {
        name: f"{name} was {describe_change(change)} in its first round than later, against {table.baseline}"
        for name, change in changes.items()
    }
    cautions = [
        f"{name} was not stable when its warm-up was given up"
        for name, report in table.run.warm_up.items()
        if report.stable is False
    ]
    cautions += [change_texts[name] for name in select_cautions(changes)]
    if cautions:
        return "caution", "; ".join(cautions)
    stable_arms = [name for name, report in table.run.warm_up.items() if report.stable]
    if not stable_arms and not changes:
        return "absent", "no warm-up was asked until it was stable, and no variant was asked 3 prompts in two rounds"
    texts = [f"{' and '.join(stable_arms)} stood still before the first record"] if stable_arms else []
    texts += [change_texts[max(changes, key=lambda name: abs(changes[name].log))]] if changes else []
    return "passed", "; ".join(texts)


def check_placement(table: RequestTable) -> CheckFinding:
    """Return whether what halves of a host differ by can be told from what variants differ by."""
    placements_by_arm = _group_codes(table, table.placement)
    if not any(placements_by_arm.values()):
        return "absent", "no record says where its server ran (--placement)"
    sentence = "; ".join(
        f"{arm} ran at {' and '.join(table.placements[code] for code in codes) or 'no place that was recorded'}"
        for arm, codes in placements_by_arm.items()
    )
    is_same = len({tuple(codes) for codes in placements_by_arm.values()}) == 1
    is_swapped = all(len(codes) > 1 for codes in placements_by_arm.values())
    return "passed" if is_same or is_swapped else "caution", sentence


def check_starts(pairing: RequestPairing) -> CheckFinding:
    """Return whether what starts differ by is in the intervals; where it is not, the word itself says so."""
    table = pairing.table
    starts_by_arm = _group_codes(table, table.start)
    if not any(starts_by_arm.values()):
        return "absent", "no record says which start of its server it met"
    counts_text = "; ".join(
        f"{arm} was met in {len(codes)} start{'' if len(codes) == 1 else 's'}" for arm, codes in starts_by_arm.items()
    )
    start_count = min(_count_starts(pairing), default=0)
    if start_count < FEWEST_STARTS:
        shortage = f"the interval leaves out how starts differ, {FEWEST_STARTS} starts of each arm put it in"
        return "absent", f"{counts_text}: {shortage}"
    return (
        "passed",
        f"{counts_text}: starts are a factor of the intervals, {start_count} or more that share no server's start",
    )


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


def check_errors(table: RequestTable) -> CheckFinding:
    """Return whether every arm answered: the run is void where the baseline, or every variant, answered nothing."""
    counts = {}
    for arm in (table.baseline, *table.variants, *([table.control] if table.control else [])):
        rows = table.arm_mask(arm)
        counts[arm] = int(rows.sum()), int((rows & table.failed).sum())
    silent_arms = {arm for arm, (request_count, failure_count) in counts.items() if request_count == failure_count}
    failing_arms = silent_arms or {arm for arm, (_, failure_count) in counts.items() if failure_count}
    sentence = "; ".join(_describe_failures(arm, *counts[arm]) for arm in counts if arm in failing_arms)
    if table.baseline in silent_arms or (table.variants and set(table.variants) <= silent_arms):
        return "failed", sentence
    is_frequent = any(failure_count > FAILURE_SHARE * request_count for request_count, failure_count in counts.values())
    if silent_arms or is_frequent:
        return "caution", sentence
    return (
        "passed",
        sentence or f"all {sum(request_count for request_count, _ in counts.values())} requests were answered",
    )


def _describe_failures(arm: str, request_count: int, failure_count: int) -> str:
    if not request_count:
        return f"{arm} was never asked"
    if request_count == failure_count:
        return f"{arm} answered none of {request_count} requests"
    return f"{arm} failed {failure_count} of {request_count} requests"
