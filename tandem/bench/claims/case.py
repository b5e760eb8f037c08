"""What a claim is answered from: one variant of one run, with everything that was found of it.

Invariant: a class that has too few prompts for an interval over prompts is judged over its rounds, and what is said of
it says so: it holds of those prompts alone, as the post's two do. Nothing is called inside the noise floor, nor what
chance explains with every cell of the report taken into account. A cell of too few rounds for a verdict has no interval
here, whatever its prompts give.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tandem.bench.claims.register import SetUp
from tandem.bench.judge import survivors
from tandem.bench.judge.form import Acceptance, Cell, Equality, Load, Ratio, Word
from tandem.bench.judge.interval import FEWEST_PROMPTS, FEWEST_ROUNDS, FEWEST_STARTS, LEVEL, estimate
from tandem.bench.judge.observations import Observations
from tandem.bench.judge.pairs import Grouped, Pairs
from tandem.bench.judge.ratio import ratio_of
from tandem.bench.judge.words import interval, load, number, short_metric, times, unit
from tandem.bench.judge.worth import worthless
from tandem.bench.manifest import Arm
from tandem.bench.quantiles import Values

ALL = "all"
_TOLD = 4  # cells that are spelt out in an answer


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one metric shows in one class at one load.

    Args:
        class_, load, metric: of which cell.
        word: what may be said.
        speed_up: with its interval; None where there is none.
        baseline, measured: in the metric's unit.
        units: prompts, or rounds, that the interval is over.
        of: `prompts`; of rounds, how many prompts they were of.
        floor: how far the baseline is from itself there, as a ratio above 1; None without a control.
    """

    class_: str
    load: Load
    metric: str
    word: Word
    speed_up: Ratio | None
    baseline: float | None
    measured: float | None
    units: int
    of: str = "prompts"
    floor: float | None = None

    def __str__(self) -> str:
        """Say it with its figures."""
        name, of = short_metric(self.metric), unit(self.metric)
        figures = f"{name} {number(self.baseline)} to {number(self.measured)}{'' if of == name else f' {of}'}"
        ratio = f", {times(self.speed_up.value)}" if self.speed_up else ""
        ratio += f" ({interval(self.speed_up)})" if self.speed_up and self.speed_up.low is not None else ""
        over = "" if self.of == "prompts" else f" over {self.units} round{'' if self.units == 1 else 's'} of {self.of}"
        over += ", without a noise floor" if over and self.floor is None and self.word != "no evidence" else ""
        where = f"{self.class_} at {load(self.load)}"
        return f"{where}: {figures}{ratio}, {self.word}{over}"


class Between(NamedTuple):
    """The log speed-up of each round of one cell, in the order of time, and how sure their mean is.

    `p` is of the test that it is 0, alone; None with `speed_up`, of too few rounds.
    """

    rounds: Values
    speed_up: Ratio | None
    p: float | None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One variant before the register.

    Args:
        grouped: the run, without the rounds that a control marked.
        variant: its arm.
        cells: its cells.
        equality: of its output; None where it was not judged.
        acceptance: of every arm.
        margin: within which a speed-up is the same.
        set_up: what the post measured.
        family: how many cells of the report, of all variants, are judged, over prompts or over rounds.
    """

    grouped: Grouped
    variant: str
    cells: tuple[Cell, ...]
    equality: Equality | None
    acceptance: tuple[Acceptance, ...]
    margin: float
    set_up: SetUp
    family: int = 1

    @property
    def seen(self) -> Observations:
        """The run."""
        return self.grouped.seen

    @property
    def arm(self) -> Arm | None:
        """What the manifest says of the variant."""
        return named(self.seen, self.variant)

    def arms(self) -> tuple[str, str]:
        """Return the baseline and the variant."""
        return self.seen.baseline, self.variant

    def loads(self) -> tuple[Load, ...]:
        """Return the loads that answer: the post's where the run has it, else all."""
        posts = tuple(one for one in self.seen.loads if one.concurrency == self.set_up.concurrency)
        return posts or self.seen.loads

    def found(self, metric: str, classes: Sequence[str] = ()) -> list[Found]:
        """Return what a metric shows in some classes; in all of the run where none is named.

        A class of few prompts is judged over its rounds where it is named: then the claim is about these very prompts.
        """
        loads = self.loads()
        return [
            self._found(cell, over_rounds=bool(classes))
            for cell in self.cells
            if cell.metric == metric and cell.load in loads and (not classes or cell.class_ in classes)
        ]

    def _found(self, cell: Cell, *, over_rounds: bool) -> Found:
        said = Found(
            class_=cell.class_, load=cell.load, metric=cell.metric, word=cell.verdict, speed_up=cell.speed_up,
            baseline=cell.baseline, measured=cell.measured, units=cell.prompts, floor=cell.noise_floor,
        )  # fmt: skip
        if cell.rounds < FEWEST_ROUNDS:
            bare = Ratio(value=cell.speed_up.value) if cell.speed_up else None
            return replace(said, word="no evidence", speed_up=bare)
        if not over_rounds or cell.prompts >= FEWEST_PROMPTS or not cell.prompts:
            return said
        of_rounds, floor = self.over_rounds(self.variant, cell), self._floor(cell)
        return replace(
            said, word=self._word(of_rounds, floor), speed_up=of_rounds.speed_up or cell.speed_up,
            units=len(of_rounds.rounds), of=f"{cell.prompts} prompt{'s' if cell.prompts > 1 else ''}",
            floor=floor,
        )  # fmt: skip

    def count_rounds(self, metrics: Sequence[str], classes: Sequence[str] = ()) -> int:
        """Return the most rounds of a cell of some metrics in some classes, of all where none is named; 0 of none."""
        loads = self.loads()
        return max(
            (
                cell.rounds
                for cell in self.cells
                if cell.metric in metrics and cell.load in loads and (not classes or cell.class_ in classes)
            ),
            default=0,
        )

    def over_rounds(self, arm: str, cell: Cell | Found) -> Between:
        """Return the speed-up of an arm against the baseline round by round."""
        found = self._pairs(arm, cell)
        known = np.isfinite(found.by_round)
        sums, counts = np.where(known, found.by_round, 0.0).sum(axis=0), known.sum(axis=0)
        logs: Values = sums[counts > 0] / counts[counts > 0]
        made = estimate(logs) if len(logs) >= FEWEST_STARTS else None
        return Between(logs, ratio_of(made), None if made is None else made.p)

    def _floor(self, cell: Cell) -> float | None:
        """Return the floor of a cell that is judged over rounds, which is found over rounds too."""
        if cell.noise_floor is not None or self.seen.control is None:
            return cell.noise_floor
        ratio = self.over_rounds(self.seen.control, cell).speed_up
        return max(1 / ratio.low, ratio.high) if ratio is not None and ratio.low and ratio.high else None

    def _pairs(self, arm: str, cell: Cell | Found) -> Pairs:
        seen = self.seen
        return self.grouped.pairs(
            baseline=seen.baseline, variant=arm, class_=seen.classes.index(cell.class_),
            load=seen.loads.index(cell.load), metric=cell.metric,
        )  # fmt: skip

    def _word(self, of_rounds: Between, floor: float | None) -> Word:
        ratio, p = of_rounds.speed_up, of_rounds.p
        if ratio is None or ratio.low is None or ratio.high is None or p is None:
            return "no evidence"
        least, edge = floor or 1.0, 1 + self.margin
        if 1 / edge <= ratio.low and ratio.high <= edge:
            return "same"
        if p * self.family >= 1 - LEVEL:  # Bonferroni: Holm's would need what the report made of all others
            return "no evidence"
        if ratio.value > least:
            return "faster"
        return "slower" if ratio.value < 1 / least else "no evidence"

    def differs(self, *, tuned: bool = False) -> str:
        """Say in what the run is not the post's set-up; empty where it is, as far as the manifest knows.

        Args:
            tuned: draft and window may be others: a claim about tuning compares them.
        """
        arms = [named(self.seen, name) for name in self.arms()]
        known = [arm for arm in arms if arm is not None]
        if len(known) < len(arms):
            return "the manifest does not know both arms"
        return next(list_differences(self.set_up, *known, tuned=tuned), "")

    @cached_property
    def worthless(self) -> str:
        """Why no figure of these arms is worth anything; empty where their answers are text."""
        return worthless(self.grouped, *self.arms())

    def survivors(self) -> str:
        """Say how differently the arms failed; empty where what is compared are no survivors."""
        failures = survivors.count(self.grouped, *self.arms()).of_all()
        return failures.sentence(*self.arms()) if failures.differ else ""


def list_differences(set_up: SetUp, base: Arm, variant: Arm, *, tuned: bool) -> Iterator[str]:
    """Yield what of two arms is not the post's, most important first."""
    models = sorted({base.model, variant.model} - {set_up.target})
    if models:
        yield f"the target is {', '.join(models)}, not {set_up.target}"
    runtimes = sorted({arm.runtime or "not known" for arm in (base, variant)} - set(set_up.runtimes))
    if runtimes:
        yield f"the runtime is {', '.join(runtimes)}, so nothing says that this is the post's accelerator"
    if base.speculation is None or base.speculation.method is not None:
        yield f"nothing says that {base.name} decodes without speculation"
    if tuned:
        return
    method = variant.speculation.method if variant.speculation else None
    window = variant.speculation.num_speculative_tokens if variant.speculation else None
    if (method, window) != (set_up.mode, set_up.num_speculative_tokens):
        yield f"the variant's speculation is not {set_up.mode} with {set_up.num_speculative_tokens} tokens"
    if draft(variant) != slug(set_up.draft):
        yield f"nothing says that the draft is {set_up.draft}"


def named(seen: Observations, arm: str) -> Arm | None:
    """Return what the manifest says of an arm."""
    return next((one for one in seen.run.arms if one.name == arm), None)


def slug(model: str) -> str:
    """Return a model's name as it stands in the readable part of an artifact key."""
    return re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")


def draft(arm: Arm | None) -> str | None:
    """Return the draft that an arm's artifact key names; None where it has no key or names none."""
    mode = arm.speculation.method if arm is not None and arm.speculation is not None else None
    found = re.search(rf"-{re.escape(mode)}-(.+)-k\d+-tp", arm.artifact_key or "") if arm is not None and mode else None
    return found[1] if found else None


def listed(found: Iterable[object]) -> str:
    """Return the first few of many, and how many more there are."""
    every = [str(one) for one in found]
    more = f"; and {len(every) - _TOLD} more" if len(every) > _TOLD else ""
    return "; ".join(every[:_TOLD]) + more


def llmperf(case: Case, classes: Sequence[str]) -> str | None:
    """Return the figures of some classes by llmperf's definition beside the true ones; None where nobody has them."""
    return listed(_by_llmperf(case, classes)) or None


def _by_llmperf(case: Case, classes: Sequence[str]) -> Iterator[str]:
    for class_ in classes:
        for asked in case.loads():
            told = [
                f"{name} {number(before)} to {number(after)} ms"
                for metric, name in (("llmperf_inter_token_latency_ms", "by llmperf's definition"), ("tpot_ms", "TPOT"))
                for before, after in [[_median(case, arm, class_, asked, metric) for arm in case.arms()]]
                if before is not None and after is not None
            ]
            if told:
                yield f"{class_} at {load(asked)}: {', '.join(told)}"


def _median(case: Case, arm: str, class_: str, asked: Load, metric: str) -> float | None:
    seen = case.seen
    if class_ not in seen.classes or metric not in seen.figures:
        return None
    rows = case.grouped.rows() & seen.of_arm(arm) & ~seen.failed
    rows &= (seen.class_ == seen.classes.index(class_)) & (seen.load == seen.loads.index(asked))
    values = seen.figures[metric][rows]
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else None
