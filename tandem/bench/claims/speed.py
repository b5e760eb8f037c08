"""Answers to claims about speed, from the cells of one variant.

Invariant: a claim of a difference is confirmed where a cell was called so and none was called otherwise; a claim of
equality where every cell lies inside the margin, never because nothing was found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from tandem.bench.claims.case import Case, Found, listed
from tandem.bench.claims.register import Claim
from tandem.bench.claims.said import Said
from tandem.bench.judge.form import Ratio
from tandem.bench.judge.interval import FEWEST_STARTS, LEVEL
from tandem.bench.judge.words import load, number, times

DECIDED = ("faster", "slower", "same")
"""Words of cells that answer; `mixed` answers neither way."""

ABOUT = 0.2
"""A figure that the post gives as "about" is met within this share of it; our own reading of the word."""

MOST_WINDOWS = 12
"""Into so many stretches of time a run is cut at most."""


def cells(claim: Claim, case: Case) -> Said:
    """Answer by what was called in the claim's classes."""
    found = case.found(claim.metrics[0], claim.classes)
    if not found:
        return not_asked(claim, case)
    said = _called(claim, found)
    if claim.level_ms is None:
        return said
    if case.differs():
        return said.and_("The milliseconds are of the post's models on its accelerators, and not held against this run")
    return _levels(claim, case, said)


def best_class(claim: Claim, case: Case) -> Said:
    """Answer whether any class reaches the factor."""
    every = [one for metric in claim.metrics for one in case.found(metric, claim.classes)]
    found = [one for one in every if _whole(one.speed_up)]
    if not found or claim.factor is None:
        return Said("no evidence", "no class has an interval")
    edge = claim.factor / (1 + case.margin)
    lows = {id(one): _wider(one, len(found)) for one in found}
    best = max(found, key=lambda one: lows[id(one)])
    told = f"of {len(found)} cells the best is {best}; made wider for the choice, its interval begins at " + times(
        lows[id(best)]
    )
    if lows[id(best)] >= edge and best.word == "faster":
        return Said("confirmed", told)
    unsure = [one for one in every if one.speed_up and not _whole(one.speed_up) and one.speed_up.value >= edge]
    if unsure:
        return Said("no evidence", f"{told}; without an interval, {listed(unsure)}")
    if all(one.speed_up is not None and (one.speed_up.high or math.inf) < claim.factor for one in found):
        return Said("contradicted", f"{told}; every interval ends below {times(claim.factor)}")
    return Said("no evidence", f"{told}, and some interval reaches {times(claim.factor)}")


def over_time(claim: Claim, case: Case) -> Said:
    """Answer whether the variant stays ahead in every stretch of the run."""
    found = case.found(claim.metrics[0], claim.classes)
    if not found:
        return not_asked(claim, case)
    said = [_of_windows(case, one) for one in found]
    seconds = np.nanmax(case.seen.end_s) - np.nanmin(case.seen.start_s)
    lasted = f"the run lasted {_duration(float(seconds))}, the post's about {case.set_up.hours:g} h"
    contrary = [one for one in said if one.answer == "contradicted"]
    if contrary:
        return Said("contradicted", f"{listed(one.why for one in contrary)}; {lasted}")
    if all(one.answer == "confirmed" for one in said):
        return Said("confirmed", f"{listed(one.why for one in said)}; {lasted}")
    return Said("no evidence", f"{listed(one.why for one in said if one.answer != 'confirmed')}; {lasted}")


def _duration(seconds: float) -> str:
    size, unit = next((one for one in ((3600, "h"), (60, "min")) if seconds >= one[0]), (1, "s"))
    return f"{number(seconds / size)} {unit}"


def pattern(claim: Claim, case: Case) -> Said:
    """Answer whether the first metric is faster and no other is."""
    whole, *parts = (case.found(metric, claim.classes) for metric in claim.metrics)
    if not whole:
        return not_asked(claim, case)
    told = listed([*whole, *(one for part in parts for one in part)])
    if any(one.word in {"slower", "same"} for one in whole):
        return Said("contradicted", f"there is no gain end to end: {told}")
    if any(one.word == "faster" for part in parts for one in part):
        return Said("contradicted", f"the gain is not absent from the parts: {told}")
    decided = all(one.word in DECIDED for one in [*whole, *(one for part in parts for one in part)])
    return Said("confirmed" if decided and all(parts) else "no evidence", told)


def not_asked(claim: Claim, case: Case) -> Said:
    """Say that the run did not ask what the claim is about."""
    suites = ", ".join(suite.name for suite in case.seen.run.suites) or "none"
    asked = f"none of its classes ({', '.join(claim.classes)})" if claim.classes else "no class with such a figure"
    return Said("not comparable", f"{case.variant} was asked {asked}; the suites of this run: {suites}")


def _called(claim: Claim, found: Sequence[Found]) -> Said:
    wanted = "same" if claim.direction == "same" else "faster"
    decided = [one for one in found if one.word in DECIDED]
    contrary = [one for one in decided if one.word != wanted]
    told = listed([*contrary, *(one for one in found if one not in contrary)])
    if contrary:
        return Said("contradicted", told)
    if decided and (not claim.every or len(decided) == len(found)):
        return Said("confirmed", told)
    if wanted == "same":
        told += f"; {len(decided)} of {len(found)} cells are shown to be the same: to find no difference shows nothing"
    return Said("no evidence", told)


def _levels(claim: Claim, case: Case, said: Said) -> Said:
    """Hold the post's milliseconds against a run of its own set-up."""
    stated = [(claim.classes, claim.level_ms, claim.level_of_both), (claim.beside, claim.beside_ms, False)]
    off, missed = [], []
    for classes, level_ms, of_both in stated:
        found = case.found(claim.metrics[0], classes) if classes and level_ms is not None else []
        for one in found:
            figures = (one.baseline, one.measured) if of_both else (one.measured,)
            if level_ms and not all(_near(figure, level_ms) for figure in figures):
                off.append(f"{one.class_} at {load(one.load)}: {number(one.measured)} ms, the post about {level_ms:g}")
        if classes and not found:
            missed.append(", ".join(classes))
    if off and said.answer != "no evidence":
        return Said("contradicted", f"{said.why}; {listed(off)}")
    return said.and_(f"Not asked: {', '.join(missed)}") if missed else said


def _near(figure: float | None, level_ms: float) -> bool:
    return figure is not None and abs(figure / level_ms - 1) <= ABOUT


def _whole(ratio: Ratio | None) -> bool:
    return ratio is not None and ratio.low is not None and ratio.high is not None


def _wider(one: Found, picked_from: int) -> float:
    """Return the low end of an interval that allows for having been picked from so many (Bonferroni)."""
    ratio = one.speed_up
    if ratio is None or ratio.low is None or one.units < 2:  # noqa: PLR2004 - one unit has no spread
        return 0.0
    tail, df = (1 - LEVEL) / 2, one.units - 1
    stretch = float(special.stdtrit(df, 1 - tail / picked_from) / special.stdtrit(df, 1 - tail))
    return float(ratio.value * (ratio.low / ratio.value) ** stretch)


def _of_windows(case: Case, one: Found) -> Said:
    logs = case.over_rounds(case.variant, one).rounds
    where = f"{one.class_} at {load(one.load)}"
    if one.word in {"slower", "same"}:
        return Said("contradicted", f"{one}")
    if len(logs) < FEWEST_STARTS:
        many = f"{len(logs)} round{'' if len(logs) == 1 else 's'}"
        return Said(
            "no evidence", f"{where}: {many}, and {FEWEST_STARTS} are the least that show a time: --rounds, --duration"
        )
    windows = [math.exp(part.mean()) for part in np.array_split(logs, min(MOST_WINDOWS, len(logs)))]
    floor, worst = one.floor or 1.0, min(windows)
    told = f"{where}: the least of {len(windows)} windows is {times(worst)} ({one.word} in all)"
    told += "" if one.floor is not None else ", without a noise floor"
    if worst * floor < 1:
        return Said("contradicted", told)
    return Said("confirmed" if worst > 1 and one.word == "faster" else "no evidence", told)
