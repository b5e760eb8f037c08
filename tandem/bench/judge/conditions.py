"""What a run was measured under: errors, warm-up, the measuring machine, where servers ran and how often they started.

Invariant: nothing is decided by a figure that a record, the manifest or rounds.jsonl does not have: then the check is
absent, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tandem.bench import rounds
from tandem.bench.columns import Whole
from tandem.bench.host import MOST_CPU, MOST_LAG_S
from tandem.bench.judge.course import Course, beyond, changed, first_round
from tandem.bench.judge.form import MARGIN, Check, MarkedRound
from tandem.bench.judge.interval import FEWEST_STARTS, Estimate
from tandem.bench.judge.observations import UNKNOWN, Observations
from tandem.bench.judge.pairs import DECIDING, Grouped
from tandem.bench.rounds import RoundLoad

LEAST_S = 1.0
"""A part of a round that was watched for less says nothing of it."""

FAILED_SHARE = 0.01
"""From so many failed requests of an arm on they are worth a caution."""

_MOST_NAMED = 5
_MS = 1000.0


def marked(seen: Observations) -> tuple[Check, tuple[MarkedRound, ...]]:
    """Return whether the measuring machine kept up, and the rounds in which it did not.

    A round is marked where the client took more than MOST_CPU of a CPU, for its event loop has no more than one; or
    where one time in ten the loop woke late by more than MOST_LAG_S and by more than the margin of the round's median
    e2e_ms. What comes less often touches few requests, of both arms alike: it is in the intervals and the noise floor.

    Raises:
        BenchError: rounds.jsonl cannot be read.
    """
    known = [load for load in rounds.read(seen.folder) if load.wall_s >= LEAST_S and load.client_cpu is not None]
    if not known:
        said = "nothing tells how busy the measuring machine was in each round: no rounds.jsonl, or rounds of under 1 s"
        return Check(name="client load", result="absent", sentence=said), ()
    found: dict[int, str] = {}
    for load in known:
        why = _overload(load, _median_s(seen, load.round))
        if why is not None:
            found.setdefault(load.round, why)
    told = tuple(MarkedRound(round=number, sentence=why) for number, why in sorted(found.items()))
    return _client(seen, known, told), told


def _overload(load: RoundLoad, median_s: float | None) -> str | None:
    cpu, lag_s = load.client_cpu or 0.0, load.lag_p90_s or 0.0
    if cpu > MOST_CPU:
        return f"the client took {cpu:.0%} of a CPU, and its event loop has one"
    if lag_s > MOST_LAG_S and median_s is not None and lag_s > MARGIN * median_s:
        return (
            f"the client's event loop woke {_MS * lag_s:.0f} ms late or more one time in ten, beside a median request "
            f"of {_MS * median_s:.0f} ms"
        )
    return None


def _median_s(seen: Observations, number: int) -> float | None:
    values = seen.figures.get(DECIDING, np.empty(0))[seen.round == number] if DECIDING in seen.figures else np.empty(0)
    known = values[np.isfinite(values)]
    return float(np.median(known)) / _MS if len(known) else None


def _client(seen: Observations, known: Sequence[RoundLoad], told: Sequence[MarkedRound]) -> Check:
    numbers = set(np.unique(seen.round).tolist())
    compared = {number for number in numbers if number not in _only_control(seen)} or numbers
    out = {one.round for one in told} & numbers
    if out and compared <= out:  # a run without a record has no round that could be left out
        said = f"the client was the bottleneck in every round that compares arms: in round {_listed(told)}"
        more = "lower --concurrency, or measure from a machine with idle CPUs"
        return Check(name="client load", result="failed", sentence=f"{said}; {more}")
    if out:
        said = (
            f"the client was the bottleneck in {len(out)} of {len(numbers)} rounds, which are left out: {_listed(told)}"
        )
        return Check(name="client load", result="caution", sentence=said)
    cpu = max(load.client_cpu or 0.0 for load in known)
    lag_s = max(load.lag_p90_s or 0.0 for load in known)
    return Check(
        name="client load", result="passed", sentence=f"the client took at most {cpu:.0%} of a CPU in a round, and its "
        f"event loop woke up to {_MS * lag_s:.1f} ms late nine times in ten",
    )  # fmt: skip


def _only_control(seen: Observations) -> set[int]:
    """Return the rounds in which no variant was asked."""
    variants = [seen.arms.index(name) for name in seen.variants if name in seen.arms]
    asked = set(np.unique(seen.round[np.isin(seen.arm, variants)]).tolist())
    return set(np.unique(seen.round).tolist()) - asked


def _listed(told: Sequence[MarkedRound]) -> str:
    """Name rounds as the operator saw them, from 0, with the first reason."""
    numbers = ", ".join(str(one.round) for one in told[:_MOST_NAMED])
    return f"{numbers}{', ...' if len(told) > _MOST_NAMED else ''} ({told[0].sentence})"


def warm_up(seen: Observations, course: Course) -> Check:
    """Return whether the arms stood still when measuring began: by their warm-up, and by the first round."""
    unstable = [name for name, said in seen.run.warm_up.items() if said.stable is False]
    first = first_round(course)
    slower = {name: found for name, found in first.items() if beyond(found, len(first))}
    if unstable or slower:
        said = [f"{name} was not stable when its warm-up was given up" for name in unstable]
        said += [
            f"{name} was {changed(found)} in its first round than later, against {seen.baseline}"
            for name, found in slower.items()
        ]
        return Check(name="warm-up", result="caution", sentence="; ".join(said))
    stable = [name for name, said in seen.run.warm_up.items() if said.stable]
    if not stable and not first:
        return Check(
            name="warm-up", result="absent",
            sentence="no warm-up was asked until it was stable, and no variant was asked 3 prompts in two rounds",
        )  # fmt: skip
    said = [f"{' and '.join(stable)} stood still before the first record"] if stable else []
    return Check(name="warm-up", result="passed", sentence="; ".join([*said, *_mildest(first, seen.baseline)]))


def _mildest(first: Mapping[str, Estimate], baseline: str) -> Iterator[str]:
    if first:
        name, found = max(first.items(), key=lambda item: abs(item[1].log))
        yield f"{name} was {changed(found)} in its first round than later, against {baseline}"


def placement(seen: Observations) -> Check:
    """Return whether what halves of a host differ by can be told from what variants differ by."""
    had = _by_arm(seen, seen.placement)
    if not any(had.values()):
        said = "no record says where its server ran (--placement)"
        return Check(name="placement", result="absent", sentence=said)
    told = "; ".join(
        f"{arm} ran at {' and '.join(seen.placements[code] for code in codes) or 'no place that was recorded'}"
        for arm, codes in had.items()
    )
    alike = len({tuple(codes) for codes in had.values()}) == 1
    if alike or all(len(codes) >= 2 for codes in had.values()):  # noqa: PLR2004 - swapped: here, then there
        return Check(name="placement", result="passed", sentence=told)
    return Check(name="placement", result="caution", sentence=told)


def start(grouped: Grouped) -> Check:
    """Return whether what starts differ by is in the intervals; where it is not, the word itself says so."""
    seen = grouped.seen
    had = _by_arm(seen, seen.start)
    if not any(had.values()):
        return Check(name="start", result="absent", sentence="no record says which start of its server it met")
    told = "; ".join(
        f"{arm} was met in {len(codes)} start{'' if len(codes) == 1 else 's'}" for arm, codes in had.items()
    )
    independent = min(_count_starts(grouped), default=0)
    if independent >= FEWEST_STARTS:
        said = f"{told}: starts are a factor of the intervals, {independent} or more that share no server's start"
        return Check(name="start", result="passed", sentence=said)
    few = f"{told}: the interval leaves out how starts differ, {FEWEST_STARTS} starts of each arm put it in"
    return Check(name="start", result="absent", sentence=few)


def _count_starts(grouped: Grouped) -> Iterator[int]:
    """Yield how many independent starts each judged class has, by the deciding metric."""
    seen = grouped.seen
    for place in np.unique(grouped.cells()).tolist():
        class_, load = divmod(place, len(seen.loads))
        for variant in seen.variants:
            pairs = grouped.pairs(baseline=seen.baseline, variant=variant, class_=class_, load=load, metric=DECIDING)
            if len(pairs.rounds):
                yield len(set(pairs.starts.tolist()) - {UNKNOWN})


def _by_arm(seen: Observations, codes: Whole) -> dict[str, list[int]]:
    """Return what each arm but the control had, as codes that are known; arms that were never asked are left out."""
    return {
        arm: [code for code in np.unique(codes[seen.of_arm(arm)]).tolist() if code != UNKNOWN]
        for arm in (seen.baseline, *seen.variants)
        if arm in seen.arms and seen.of_arm(arm).any()
    }


def errors(seen: Observations) -> Check:
    """Return whether every arm answered: the run is void where the baseline, or every variant, answered nothing."""
    counts = {}
    for arm in (seen.baseline, *seen.variants, *([seen.control] if seen.control else [])):
        rows = seen.of_arm(arm)
        counts[arm] = int(rows.sum()), int((rows & seen.failed).sum())
    silent = [arm for arm, (asked, failed) in counts.items() if asked == failed]
    told = "; ".join(_failures(arm, *counts[arm]) for arm in silent) or "; ".join(
        _failures(arm, asked, failed) for arm, (asked, failed) in counts.items() if failed
    )
    if seen.baseline in silent or (seen.variants and set(seen.variants) <= set(silent)):
        return Check(name="errors", result="failed", sentence=told)
    if silent or any(failed > FAILED_SHARE * asked for asked, failed in counts.values()):
        return Check(name="errors", result="caution", sentence=told)
    said = told or f"all {sum(asked for asked, _ in counts.values())} requests were answered"
    return Check(name="errors", result="passed", sentence=said)


def _failures(arm: str, asked: int, failed: int) -> str:
    if not asked:
        return f"{arm} was never asked"
    return (
        f"{arm} answered none of {asked} requests" if asked == failed else f"{arm} failed {failed} of {asked} requests"
    )
