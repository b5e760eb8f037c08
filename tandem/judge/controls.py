"""All controls of a run: whether Tandem may conclude anything from it, and what limits the verdict.

Invariant: every check appears once, even if Tandem could not do it. A failed check voids the run.
The sentence of a caution says what the verdict leaves out. No figure of the other checks includes
marked rounds. If the records, the manifest or rounds.jsonl lack a figure, its check is absent.

The baseline against itself: a server is no faster than itself, so the interval there shows noise
that no other interval includes. The noise floor of a cell is the end of that interval farther from
1, never the middle. The run is void if the interval of a cell lies wholly beyond the margin. All
cells share the level (Bonferroni), so that a run whose noise the intervals include is void in less
than one of a hundred. A time to the first token must also differ by more than MAX_LAG_S, because
the client itself may be so late.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.request_table import UNKNOWN, RequestTable
from tandem.bench.figures.summary import ALL_CLASSES
from tandem.bench.load.host import MAX_CLIENT_CPU, MAX_LAG_S, RoundLoad, read_round_loads
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.server_starts import name_server
from tandem.judge.decision import is_beyond_margin
from tandem.judge.interval import (
    FEWEST_STARTS,
    LogRatioEstimate,
    convert_log_ratio,
)
from tandem.judge.pairs import DECIDING_METRIC, JUDGED_METRICS, RequestPairing, find_figures
from tandem.judge.schema import (
    MARGIN,
    BottleneckRound,
    CheckFinding,
    CheckName,
    ControlCheck,
    NoiseFloor,
    RunControls,
)
from tandem.judge.text_format import count_things, format_load, format_metric
from tandem.judge.time_effects import build_timeline, check_drift, check_order, check_warm_up

FALSE_VOID_RATE = 0.01
"""Largest share of healthy runs that the baseline against itself may void."""

LEAST_S = 1.0
"""Shortest part of a round that counts, in seconds; shorter parts are skipped."""

FAILURE_SHARE = 0.01
"""If more than this share of an arm's requests failed, the check cautions."""

_MS = 1000.0
_NO_FLOOR = ": a small difference may be noise"


def check_controls(table: RequestTable) -> RunControls:
    """Return every check of a run, its noise floors and the rounds that do not count.

    Raises:
        InputError: rounds.jsonl cannot be read.
    """
    client_finding, bottlenecks = _check_client_load(table)
    pairing = RequestPairing(table, tuple(bottleneck.round for bottleneck in bottlenecks))
    itself_finding, floors = _check_itself(pairing)
    overall_floors = tuple(_measure_overall_floors(pairing))
    timeline = build_timeline(pairing)
    findings: dict[CheckName, CheckFinding] = {
        "baseline against itself": itself_finding,
        "drift": check_drift(timeline),
        "order": check_order(table, timeline),
        "warm-up": check_warm_up(table, timeline),
        "client load": client_finding,
        "placement": _check_placement(table),
        "start": _check_starts(pairing),
        "errors": _check_errors(table),
    }
    return RunControls(
        checks=tuple(
            ControlCheck(name=name, result=result, sentence=sentence)
            for name, (result, sentence) in findings.items()
        ),
        floors=floors,
        overall_floors=overall_floors,
        marked=bottlenecks,
        void=tuple(sentence for result, sentence in findings.values() if result == "failed"),
    )


class _ControlCell(NamedTuple):
    """A cell of the control against the baseline.

    Args:
        floor: what follows from it.
        estimate: of the log speed-up.
        lag_ms: how much the prompts' medians differ.
    """

    floor: NoiseFloor
    estimate: LogRatioEstimate
    lag_ms: float

    def describe(self) -> str:
        """Return the place and the figures."""
        floor = self.floor
        ratio = floor.speed_up
        place = f"{format_metric(floor.metric)} of {floor.class_} at {format_load(floor.load)}"
        return f"{place}, {ratio.value:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"


def _check_itself(pairing: RequestPairing) -> tuple[CheckFinding, tuple[NoiseFloor, ...]]:
    """Return whether the baseline equals itself, and its difference in every cell."""
    table = pairing.table
    if table.control is None:
        reason = "the baseline was not measured against itself (--control-rounds)"
        return ("absent", f"no noise floor: {reason}{_NO_FLOOR}"), ()
    cells = []
    for code, metric in product(pairing.known_cells(), JUDGED_METRICS):
        cell = _measure_control(pairing, table.control, [code], metric)
        if cell is not None:
            cells.append(cell)
    floors = tuple(cell.floor for cell in cells)
    if not floors:
        reason = "no class has 3 prompts that the baseline answered both times in rounds that count"
        return ("absent", f"no noise floor: {reason}{_NO_FLOOR}"), ()

    differences = [
        cell
        for cell in cells
        if (cell.floor.metric != "ttft_ms" or cell.lag_ms > _MS * MAX_LAG_S)
        and is_beyond_margin(cell.estimate, FALSE_VOID_RATE, len(cells))
    ]
    if not differences:
        highest = max(cells, key=lambda cell: cell.floor.ratio)
        sentence = (
            f"asked twice, {table.baseline} is itself in {len(floors)} of {len(floors)} cells;"
            f" the highest noise floor is {highest.floor.ratio:.3g}, of {highest.describe()}"
        )
        return ("passed", sentence), floors
    farthest = max(differences, key=lambda cell: abs(cell.estimate.log))
    counts = f"the farthest of {count_things(len(differences), 'cell')}"
    sentence = (
        f"asked twice, {table.baseline} differs from itself by more than {MARGIN:.0%}:"
        f" {farthest.describe()}, {counts}; something beside the servers changes what is measured:"
        " see that nothing else uses them or this machine, and run again"
    )
    return ("failed", sentence), floors


def _measure_control(
    pairing: RequestPairing, control: str, codes: Sequence[int], metric: str
) -> _ControlCell | None:
    """Return the control against the baseline in some cells; None of too few prompts."""
    pairs = pairing.join_cells((pairing.table.baseline, control), codes, metric)
    estimate = pairs.estimate()
    if estimate is None:
        return None
    class_, load = pairing.cell_place(codes[0])
    floor = NoiseFloor(
        class_=class_,
        load=load,
        metric=metric,
        speed_up=estimate.convert(),
        ratio=convert_log_ratio(max(abs(estimate.low), abs(estimate.high))),
    )
    lag_ms = abs(float(np.median(pairs.variant_medians - pairs.baseline_medians)))
    return _ControlCell(floor, estimate, lag_ms)


def _measure_overall_floors(pairing: RequestPairing) -> Iterator[NoiseFloor]:
    """Yield by how much the baseline differs from itself over all classes, at each load."""
    control = pairing.table.control
    if control is None:
        return
    codes_by_load = pairing.group_loads()
    for load in pairing.table.loads:
        codes = codes_by_load.get(load, [])
        cell = _measure_control(pairing, control, codes, DECIDING_METRIC) if codes else None
        if cell is not None:
            yield replace(cell.floor, class_=ALL_CLASSES)


def _check_client_load(table: RequestTable) -> tuple[CheckFinding, tuple[BottleneckRound, ...]]:
    """Return whether the measuring machine kept up, and the rounds in which it did not.

    A round is marked if the client took more than MAX_CLIENT_CPU of a CPU, because its event loop
    has no more than one. A round is also marked if the loop woke late one time in ten, by more than
    MAX_LAG_S and by more than the margin of the round's median e2e_ms. Rarer delays touch few
    requests, of both arms alike: they are in the intervals and the noise floor.
    """
    loads = [
        load
        for load in read_round_loads(table.folder)
        if load.wall_s >= LEAST_S and load.client_cpu is not None
    ]
    if not loads:
        reason = "no rounds.jsonl, or rounds of under 1 s"
        return ("absent", f"the run does not say how busy the measuring machine was: {reason}"), ()
    reasons: dict[int, str] = {}
    for load in loads:
        reason = _explain_overload(table, load)
        if reason:
            reasons.setdefault(load.round, reason)
    marked = tuple(
        BottleneckRound(round=number, sentence=reasons[number]) for number in sorted(reasons)
    )
    rounds = set(table.round.tolist())
    marked_rounds = reasons.keys() & rounds
    if not marked_rounds:
        cpu = max(load.client_cpu or 0.0 for load in loads)
        lag_ms = _MS * max(load.lag_p90_s or 0.0 for load in loads)
        sentence = (
            f"the client took at most {cpu:.0%} of a CPU in a round, and its event loop woke up to"
            f" {lag_ms:.1f} ms late nine times in ten"
        )
        return ("passed", sentence), marked

    reason = f"the client was the bottleneck in round {marked[0].round} ({marked[0].sentence})"
    variants = [table.arms.index(name) for name in table.variants]
    variant_rounds = set(table.round[np.isin(table.arm, variants)].tolist())
    if (variant_rounds or rounds) <= marked_rounds:
        change = "lower the concurrency, or measure from a machine with idle CPUs"
        return ("failed", f"{reason}, and so in every round that compares arms; {change}"), marked
    counts = f"{len(marked_rounds)} of {len(rounds)} rounds are left out for it"
    return ("caution", f"{reason}; {counts}"), marked


def _explain_overload(table: RequestTable, load: RoundLoad) -> str:
    """Return why the client was the bottleneck of a round; empty where it was not."""
    cpu = load.client_cpu or 0.0
    lag_s = load.lag_p90_s or 0.0
    if cpu > MAX_CLIENT_CPU:
        return f"the client took {cpu:.0%} of a CPU, and its event loop has one"
    values_ms = find_figures(table, DECIDING_METRIC)[table.round == load.round]
    finite_ms = values_ms[np.isfinite(values_ms)]
    median_ms = math.inf
    if len(finite_ms):
        median_ms = float(np.median(finite_ms))
    if lag_s <= max(MAX_LAG_S, MARGIN * median_ms / _MS):
        return ""
    late = f"the client's event loop woke {_MS * lag_s:.0f} ms late or more one time in ten"
    return f"{late}, beside a median request of {median_ms:.0f} ms"


def _check_placement(table: RequestTable) -> CheckFinding:
    """Return whether halves of a host can be told from variants."""
    arm_codes = _group_codes(table, table.placement)
    if not any(arm_codes.values()):
        reason = "the intervals do not include how halves of a host differ"
        return "absent", f"no record says where its server ran (--placement): {reason}"
    texts = []
    for arm, codes in arm_codes.items():
        places = " and ".join(table.placements[code] for code in codes)
        texts.append(f"{arm} ran at {places or 'no place that was recorded'}")
    sentence = "; ".join(texts)
    is_same = len({tuple(codes) for codes in arm_codes.values()}) == 1
    if is_same or all(len(codes) > 1 for codes in arm_codes.values()):
        return "passed", sentence
    change = (
        "swap the servers: `tandem run --starts 2` does it,"
        " a bench of your own says it with --placement"
    )
    return "caution", f"{sentence}; the intervals do not include how halves differ: {change}"


def _check_starts(pairing: RequestPairing) -> CheckFinding:
    """Return whether intervals include differences between starts; else the word says so."""
    table = pairing.table
    if table.replicas:
        texts = [
            f"several servers answer at the address of {arm}: {reason}"
            for arm, reason in table.replicas
            if arm == name_server(arm)
        ]
        change = "starts cannot be told apart, and the counters are left out"
        return "caution", f"{'; '.join(texts)}; {change}: give the address of one server"

    arm_codes = _group_codes(table, table.start)
    if not any(arm_codes.values()):
        return "absent", "no record says in which start of its server it was measured"
    start_counts = []
    for cell, variant in product(pairing.known_cells(), table.variants):
        pairs = pairing.pairs((table.baseline, variant), cell, DECIDING_METRIC)
        if len(pairs.rounds):
            start_counts.append(len(set(pairs.starts.tolist()) - {UNKNOWN}))
    counts = "; ".join(
        f"{arm} was measured in {count_things(len(codes), 'start')}"
        for arm, codes in arm_codes.items()
    )
    least = min(start_counts, default=0)
    if least < FEWEST_STARTS:
        change = f"measure {FEWEST_STARTS} starts of each arm"
        return "absent", f"{counts}: the intervals do not include how starts differ; {change}"
    reason = f"starts are a factor of the intervals, {least} or more that share no server's start"
    return "passed", f"{counts}: {reason}"


def _group_codes(table: RequestTable, codes: IntArray) -> dict[str, list[int]]:
    """Return the known codes of each arm but the control, without arms that got no request."""
    arm_codes = {}
    for arm in (table.baseline, *table.variants):
        own_codes = np.unique(codes[table.arm_mask(arm)])
        if len(own_codes):
            arm_codes[arm] = own_codes[own_codes != UNKNOWN].tolist()
    return arm_codes


def _check_errors(table: RequestTable) -> CheckFinding:
    """Return whether every arm answered; without the baseline or all variants the run is void.

    Answers that ended without a finish reason count, and caution: a server that dies may end one
    so.
    """
    if not len(table):
        return "failed", f"no requests were recorded: {RECORDS_FILE} has no complete line"
    failures = {}
    silent = {}
    doubts = []
    has_many = False
    lacks_reason = table.suspects.get("end_without_reason", np.zeros(len(table), bool))
    for arm in filter(None, (table.baseline, *table.variants, table.control)):
        requests = table.arm_mask(arm)
        count = int(requests.sum())
        failure_count = int((requests & table.failed).sum())
        doubt_count = int((requests & lacks_reason).sum())
        has_many |= failure_count > FAILURE_SHARE * count
        if failure_count == count:
            silent[arm] = _describe_silence(arm, count)
        elif failure_count:
            failures[arm] = f"{arm} failed {failure_count} of {count} requests"
        if doubt_count:
            counts = f"{doubt_count} of {count} answers"
            doubts.append(f"{arm} ended {counts} with [DONE] and without a finish_reason")

    sentence = "; ".join((silent or failures).values())
    has_no_variant = bool(table.variants) and set(table.variants) <= silent.keys()
    if table.baseline in silent or has_no_variant:
        return "failed", sentence
    cautions = []
    if silent or has_many:
        cautions.append(f"{sentence}; no time includes a failed request")
    if doubts:
        cautions.append(f"{'; '.join(doubts)}: an answer that was cut would look the same")
    if cautions:
        return "caution", "; ".join(cautions)
    return "passed", sentence or f"all {len(table)} requests were answered"


def _describe_silence(arm: str, count: int) -> str:
    if not count:
        return f"no requests of {arm} were recorded"
    return f"{arm} answered none of {count} requests"
