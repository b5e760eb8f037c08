"""Two runs beside each other: before and after an upgrade, or on two days.

Invariant: prompts are paired by the content of their suite and their id, and only arms, classes and loads of both runs
are compared. Between two runs the day and the machine differ as well as what was changed, so nothing is called unless
both runs measured how far a server is from itself, and nothing inside both floors together. What a variant gains over
its baseline is compared too: there each run is its own control, and what touched both arms alike is out of it. No arm
wins by what it left out: failures and refused answers that the other side has not bar a row, and a shorter time of
shorter answers is not called faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from tandem.bench.columns import Mask, Whole
from tandem.bench.compare.form import Comparison, Outputs, Row, Side
from tandem.bench.compare.set_up import Shared, alike, differences, shared
from tandem.bench.judge import because, survivors
from tandem.bench.judge.cells import counted_rounds, holm
from tandem.bench.judge.controls import controls
from tandem.bench.judge.form import Controls, Load, Ratio, Share, Word
from tandem.bench.judge.interval import LEVEL, Estimate, estimate
from tandem.bench.judge.observations import NO_DIGEST, UNKNOWN, Observations, observe
from tandem.bench.judge.pairs import JUDGED, Grouped
from tandem.bench.judge.ratio import exp, ratio_of
from tandem.bench.judge.words import interval, number
from tandem.bench.manifest import run_id
from tandem.bench.output.refused import BROKEN
from tandem.bench.quantiles import Values

CONFOUNDED = (
    "Between two runs the day, the machine and the start of each server differ as well as what was changed: an arm's "
    "own figures cannot tell these apart. The rows of gains can: there each run is its own control."
)
_BEFORE, _AFTER = "before ", "after "
_WHOLE, _LENGTH = "e2e_ms", "completion_tokens"
_SOUND, _REFUSED = 0, 1  # codes of contents in a merged run
_Place = tuple[str, Load, str]


def compare(before: Path, after: Path, *, margin: float) -> Comparison:
    """Compare the later of two runs with the earlier.

    Args:
        before, after: their folders.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`; above 0.

    Raises:
        BenchError: a folder is no run, or the two cannot be compared; it says why.
    """
    return compared(observe(before), observe(after), margin=margin)


def compared(before: Observations, after: Observations, *, margin: float) -> Comparison:
    """Compare two runs that are read already; else as `compare`."""
    both = shared(before, after)
    checked = (controls(before), controls(after))
    differ = differences(before.run, after.run, both)
    grouped = Grouped(_merged(before, after, both, checked))
    floors = _floors(*checked)
    rounds = [_count_rounds(seen, controls) for seen, controls in zip((before, after), checked, strict=True)]
    blocked = _blocked(checked, [one.what for one in differ if one.blocks], rounds)
    greedy = not before.run.temperature and not after.run.temperature
    outputs = tuple(_outputs(grouped.seen, both)) if greedy else ()
    found = [*_figures(grouped, both), *_gains(grouped, both, before.baseline, after.baseline)]
    adjusted = _adjusted([one.estimate for one in found])
    rows = tuple(
        _row(one, p, floors.get((one.class_, one.load, one.metric)), blocked, margin)
        for one, p in zip(found, adjusted, strict=True)
    )
    return Comparison(
        before=_side(before, checked[0], both), after=_side(after, checked[1], both), differences=differ,
        alike=alike(before.run, after.run, both), rows=rows, outputs=outputs,
        margin=margin, notes=tuple(_notes(before, after, both, checked, found)),
    )  # fmt: skip


class _Found(NamedTuple):
    """A row before it is held against the others.

    `lost` says why only survivors could be compared. `length` is that of the later answers as a ratio of the earlier
    ones, where the metric grows with it and servers counted tokens.
    """

    kind: Literal["figure", "gain"]
    arm: str
    class_: str
    load: Load
    metric: str
    logs: Values
    before: float
    after: float
    estimate: Estimate | None
    lost: str
    length: Ratio | None


def _merged(before: Observations, after: Observations, both: Shared, checked: Sequence[Controls]) -> Observations:
    """Return one run that has each arm twice; its rounds are one, since no round of one run belongs to one of another.

    Requests of other suites, of arms that only one run has and of marked rounds are left out.
    """
    parts = [
        _Part(before, _BEFORE, {suite: suite for suite in both.suites.values()}, checked[0]),
        _Part(after, _AFTER, dict(both.suites), checked[1]),
    ]
    rows = [_rows(part, both) for part in parts]
    coded: dict[str, Any] = {
        "arm": _recoded([[part.sign + name for name in part.seen.arms] for part in parts], parts, rows, "arm"),
        "prompt": _recoded([_prompts(part) for part in parts], parts, rows, "prompt"),
        **{
            name: _recoded([getattr(part.seen, names) for part in parts], parts, rows, name)
            for name, names in (("class_", "classes"), ("load", "loads"))
        },
    }
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part.seen, name)[mask] for part, mask in zip(parts, rows, strict=True)])
        for name in ("failed", "tokens", "output", "ids", "start_s", "end_s", "start", "placement", "repeat", "slot")
    }
    length = len(joined["failed"])
    return replace(
        before,
        arms=coded["arm"][0], prompts=coded["prompt"][0], classes=coded["class_"][0], loads=coded["load"][0],
        arm=coded["arm"][1], prompt=coded["prompt"][1], class_=coded["class_"][1], load=coded["load"][1],
        round=np.zeros(length, np.intp), error=np.zeros(length, np.intp), contents=("sound", "refused"),
        content=np.concatenate([_content(part.seen)[mask] for part, mask in zip(parts, rows, strict=True)]),
        cut=np.zeros(length, bool), at=np.zeros(length, np.intp), torn=(),
        figures={
            metric: np.concatenate(
                [_figure(part.seen, metric)[mask] for part, mask in zip(parts, rows, strict=True)]
            )
            for metric in (*JUDGED, _LENGTH)
        },
        **joined,
    )  # fmt: skip


class _Part(NamedTuple):
    """One run of a merge: the sign before its arms' names, and what its suites are called."""

    seen: Observations
    sign: str
    suites: Mapping[str, str]
    checked: Controls


def _rows(part: _Part, both: Shared) -> Mask:
    seen = part.seen
    arms = [code for code, name in enumerate(seen.arms) if name in both.arms]
    prompts = [code for code, prompt in enumerate(seen.prompts) if prompt.suite in part.suites]
    counted = Grouped(seen, counted_rounds(seen, part.checked)).rows()
    rows: Mask = counted & np.isin(seen.arm, arms) & np.isin(seen.prompt, prompts)
    return rows


def _prompts(part: _Part) -> list[Any]:
    return [prompt._replace(suite=part.suites.get(prompt.suite, prompt.suite)) for prompt in part.seen.prompts]


def _recoded(
    names: Sequence[Sequence[Any]], parts: Sequence[_Part], rows: Sequence[Mask], column: str
) -> tuple[tuple[Any, ...], Whole]:
    """Return names that serve both runs, and the codes of the rows that are kept."""
    known = {name: code for code, name in enumerate(dict.fromkeys(name for mine in names for name in mine))}
    codes = [
        np.array([known[name] for name in mine], np.intp)[getattr(part.seen, column)[mask]]
        for mine, part, mask in zip(names, parts, rows, strict=True)
    ]
    return tuple(known), np.concatenate(codes)


def _content(seen: Observations) -> Whole:
    """Return what the content check said of each answer: sound, refused, or UNKNOWN where it was not asked."""
    refused = np.isin(seen.content, [code for code, word in enumerate(seen.contents) if word in BROKEN])
    return np.where(seen.content == UNKNOWN, UNKNOWN, np.where(refused, _REFUSED, _SOUND))


def _figure(seen: Observations, metric: str) -> Values:
    return seen.figures[metric] if metric in seen.figures else np.full(len(seen), np.nan)


def _figures(grouped: Grouped, both: Shared) -> Iterator[_Found]:
    """Yield each arm's own figures, later against earlier."""
    seen = grouped.seen
    for arm in both.arms:
        pair = (_BEFORE + arm, _AFTER + arm)
        if not set(pair) <= set(seen.arms):
            continue
        lost = _Lost.of(grouped, *pair, ("the earlier run", "the later run"))
        for class_, load in _places(seen):
            length = ratio_of(estimate(_lengths(grouped, pair, class_, load)[1]))
            for metric in JUDGED:
                found = grouped.pairs(baseline=pair[0], variant=pair[1], class_=class_, load=load, metric=metric)
                if not len(found.logs):
                    continue
                yield _Found(
                    "figure", arm, seen.classes[class_], seen.loads[load], metric, found.logs,
                    float(np.median(found.baseline)), float(np.median(found.measured)), estimate(found.logs),
                    lost.why(class_, load), length if metric == _WHOLE else None,
                )  # fmt: skip


def _gains(grouped: Grouped, both: Shared, before: str, after: str) -> Iterator[_Found]:
    """Yield what each variant gains over its baseline, later against earlier; the baselines must be of one name."""
    seen = grouped.seen
    if before != after or not {_BEFORE + before, _AFTER + before} <= set(seen.arms):
        return
    for arm in both.arms:
        if arm == before:
            continue
        lost = [
            *(_Lost.of(grouped, sign + before, sign + arm, (f"{before} in {when}", f"{arm} in {when}"))
              for sign, when in ((_BEFORE, "the earlier run"), (_AFTER, "the later run"))),
            *(_Lost.of(grouped, _BEFORE + one, _AFTER + one, (f"{one} in the earlier run", f"{one} in the later run"))
              for one in (before, arm)),
        ]  # fmt: skip
        for class_, load in _places(seen):
            why = next(filter(None, (one.why(class_, load) for one in lost)), "")
            lengths = [_lengths(grouped, (sign + before, sign + arm), class_, load) for sign in (_BEFORE, _AFTER)]
            _, earlier, later = np.intersect1d(lengths[0][0], lengths[1][0], return_indices=True)
            length = ratio_of(estimate(lengths[1][1][later] - lengths[0][1][earlier]))
            for metric in JUDGED:
                sides = [
                    grouped.pairs(baseline=sign + before, variant=sign + arm, class_=class_, load=load, metric=metric)
                    for sign in (_BEFORE, _AFTER)
                ]
                _, first, second = np.intersect1d(sides[0].prompts, sides[1].prompts, return_indices=True)
                if not len(first):
                    continue
                logs = [sides[0].logs[first], sides[1].logs[second]]
                yield _Found(
                    "gain", arm, seen.classes[class_], seen.loads[load], metric, logs[1] - logs[0],
                    exp(float(np.mean(logs[0]))), exp(float(np.mean(logs[1]))), estimate(logs[1] - logs[0]),
                    why, length if metric == _WHOLE else None,
                )  # fmt: skip


def _lengths(grouped: Grouped, pair: tuple[str, str], class_: int, load: int) -> tuple[Whole, Values]:
    """Return prompts of two arms and the log ratio of their answers' tokens, above 0 where the second's are more."""
    found = grouped.pairs(baseline=pair[0], variant=pair[1], class_=class_, load=load, metric=_LENGTH)
    return found.prompts, -found.logs


class _Lost(NamedTuple):
    """What two arms lost, by cell: requests that failed, and answers that the content check refused."""

    names: tuple[str, str]
    loads: int
    failed: survivors.Counted
    refused: survivors.Counted

    @classmethod
    def of(cls, grouped: Grouped, first: str, second: str, names: tuple[str, str]) -> _Lost:
        """Count what two arms of a merged run lost.

        Args:
            grouped: the merged run.
            first, second: the arms.
            names: what they are called in a sentence.
        """
        seen, cells = grouped.seen, grouped.cells()
        checked = ~seen.failed & (seen.content != UNKNOWN)

        def count(rows: Mask) -> Whole:
            of_arms = (rows & seen.of_arm(arm) for arm in (first, second))
            return np.column_stack([np.bincount(cells[mine], minlength=grouped.number_of_cells) for mine in of_arms])

        refused = survivors.Counted(count(checked), count(checked & (seen.content == _REFUSED)))
        return cls(names, len(seen.loads), survivors.count(grouped, first, second), refused)

    def why(self, class_: int, load: int) -> str:
        """Return why a cell compares survivors; empty where it does not."""
        cell = class_ * self.loads + load
        failed, refused = self.failed.of_cell(cell), self.refused.of_cell(cell)
        if failed.differ:
            return f"{failed.sentence(*self.names)}, so only survivors could be compared"
        if refused.differ:
            return (
                f"the content check refused {refused.variant} of {refused.of_variant} answers of {self.names[1]}, "
                f"{refused.baseline} of {refused.of_baseline} of {self.names[0]}: broken answers are not compared"
            )
        return ""


def _places(seen: Observations) -> list[tuple[int, int]]:
    """Return the classes and loads that were asked, in the order of their names."""
    return sorted(set(zip(seen.class_.tolist(), seen.load.tolist(), strict=True)), key=lambda one: one[::-1])


def _floors(before: Controls, after: Controls) -> dict[_Place, float]:
    """Return the floors of both runs together, of the cells for which both have one."""
    known = [{(one.class_, one.load, one.metric): max(one.ratio, 1.0) for one in run.floors} for run in (before, after)]
    return {place: ratio * known[1][place] for place, ratio in known[0].items() if place in known[1]}


def _count_rounds(seen: Observations, checked: Controls) -> int:
    """Return how many rounds of a run count, control rounds left out."""
    counted = Grouped(seen, counted_rounds(seen, checked)).rows() & ~seen.in_control_rounds()
    return len(np.unique(seen.round[counted]))


def _blocked(checked: Sequence[Controls], asked: Sequence[str], rounds: Sequence[int]) -> str:
    """Say why nothing may be called, whatever the figures; empty where it may."""
    few = because.few_rounds(min(rounds))
    if few:
        return f"a run is short: {few}"
    void = [why for run in checked for why in run.void]
    if void:
        return f"a run is void: {void[0]}"
    return f"the runs were asked differently ({', '.join(asked)})" if asked else ""


def _adjusted(found: Sequence[Estimate | None]) -> list[float | None]:
    """Return each p with all of them taken into account; None where there is none."""
    known = [one.p for one in found if one is not None]
    adjusted = iter(holm(np.array(known)).tolist() if known else [])
    return [None if one is None else next(adjusted) for one in found]


def _row(one: _Found, adjusted: float | None, floor: float | None, blocked: str, margin: float) -> Row:
    verdict, why = _called(one, adjusted, floor, blocked, margin)
    made = one.estimate
    ratio = ratio_of(made) or Ratio(value=exp(float(np.mean(one.logs))))
    return Row(
        kind=one.kind, arm=one.arm, class_=one.class_, load=one.load, metric=one.metric, prompts=len(one.logs),
        before=one.before, after=one.after, speed_up=ratio, p=None if made is None else made.p, adjusted_p=adjusted,
        noise_floor=floor, verdict=verdict, why=why,
    )  # fmt: skip


def _called(one: _Found, adjusted: float | None, floor: float | None, blocked: str, margin: float) -> tuple[Word, str]:
    """Return what may be said of a row, and why."""
    made, edge = one.estimate, math.log1p(margin)
    why = blocked or _uncallable(one, floor)
    if why or made is None or floor is None or adjusted is None:
        return "no evidence", why
    same = -edge <= made.low and made.high <= edge
    if one.length is not None and (same or made.log > 0) and _other(one.length, margin, shorter=not same):
        beside = "beside its baseline's, " if one.kind == "gain" else ""
        long = f"{beside}the later answers are {number(one.length.value)} times as long ({interval(one.length)})"
        return "no evidence", f"{long}, so their times are not those of the same work: see TPOT"
    if same:
        return "same", f"the whole interval lies inside the margin of {100 * margin:g} %"
    if adjusted >= 1 - LEVEL:
        return "no evidence", "chance explains it, with every row taken into account"
    if abs(made.log) <= math.log(floor):
        return "no evidence", f"inside the noise floors of both runs together, {floor:.3f}"
    return ("faster" if made.log > 0 else "slower"), "beyond chance and beyond both noise floors"


def _other(length: Ratio, margin: float, *, shorter: bool) -> bool:
    """Return whether answers are of another length, interval and all; with `shorter`, whether they are shorter."""
    low, high = length.low or length.value, length.high or length.value
    return high < 1 / (1 + margin) or (not shorter and low > 1 + margin)


def _uncallable(one: _Found, floor: float | None) -> str:
    if one.lost:
        return one.lost
    if one.estimate is None:
        return "too few prompts for an interval"
    return "" if floor is not None else "no noise floor in one run or both: measure both with --control-rounds"


def _outputs(seen: Observations, both: Shared) -> Iterator[Outputs]:
    """Yield how many first answers are the same text in both runs."""
    for arm in both.arms:
        if not {_BEFORE + arm, _AFTER + arm} <= set(seen.arms):
            continue
        texts = [_first_texts(seen, sign + arm) for sign in (_BEFORE, _AFTER)]
        common = texts[0].keys() & texts[1].keys()
        if common:
            same = sum(texts[0][key] == texts[1][key] for key in common)
            yield Outputs(arm=arm, identical=Share(n=same, of=len(common)))


def _first_texts(seen: Observations, arm: str) -> dict[tuple[int, int], int]:
    rows = np.flatnonzero(seen.of_arm(arm) & ~seen.failed & (seen.output != NO_DIGEST))
    keys = zip(seen.prompt[rows].tolist(), seen.load[rows].tolist(), strict=True)
    found: dict[tuple[int, int], int] = {}
    for key, digest in zip(keys, seen.output[rows].tolist(), strict=True):
        found.setdefault(key, digest)
    return found


def _side(seen: Observations, checked: Controls, both: Shared) -> Side:
    rows = np.isin(seen.arm, [code for code, name in enumerate(seen.arms) if name in both.arms])
    return Side(
        run=run_id(seen.run), folder=seen.folder.resolve().name, created_utc=seen.run.created_utc,
        requests=int(rows.sum()), failed=int((rows & seen.failed).sum()), floors=bool(checked.floors),
        simulated=seen.run.simulated,
        void=checked.void,
    )  # fmt: skip


def _notes(
    before: Observations, after: Observations, both: Shared, checked: Sequence[Controls], found: Sequence[_Found]
) -> Iterator[str]:
    yield CONFOUNDED
    yield from both.left_out
    for seen, run in zip((before, after), checked, strict=True):
        name = seen.folder.resolve().name
        if not run.floors:
            yield f"{name} has no noise floor, so nothing is called: --control-rounds measures one"
        if run.marked:
            yield f"{name}: {len(run.marked)} rounds are left out, because the client was the bottleneck"
        yield from map(str, seen.torn)
    if before.baseline != after.baseline:
        yield f"the baselines are {before.baseline} and {after.baseline}, so gains are not compared"
    if not found:
        yield "no prompt was answered in both runs at the same load"
    for arm in both.arms:
        whole = [one for one in found if (one.kind, one.arm, one.metric) == ("figure", arm, _WHOLE) and one.estimate]
        if whole and all(one.length is None for one in whole):
            yield f"tokens of {arm} were not counted in both runs: whether its answers are of one length is not known"
    if before.run.created_utc > after.run.created_utc:
        yield "the first run is the later one: figures read from it to the earlier one"
