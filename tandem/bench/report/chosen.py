"""What of a run is drawn: which requests, and which classes where there are too many.

Invariant: the requests that a verdict rests on: none that failed, none of a round in which the client was the
bottleneck, and none of a control round, in which no variant was asked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tandem.bench.columns import Mask
from tandem.bench.judge import words
from tandem.bench.judge.form import Load, Verdict
from tandem.bench.judge.observations import Observations
from tandem.bench.quantiles import Values
from tandem.bench.report.colors import ARMS


class Spot(NamedTuple):
    """A class at a load, with the codes of both in the observations."""

    class_: str
    load: Load
    class_code: int
    load_code: int


def good(verdict: Verdict, seen: Observations) -> Mask:
    """Return which requests the figures are of."""
    marked = [each.round for each in verdict.controls.marked]
    mask: Mask = ~seen.failed & ~np.isin(seen.round, marked) & ~seen.in_control_rounds()
    return mask


def arms(seen: Observations) -> tuple[str, ...]:
    """Return the arms that are drawn: the baseline, then variants."""
    return (seen.baseline, *seen.variants)[:ARMS] if seen.arms else ()


def spots(verdict: Verdict, seen: Observations, most: int) -> tuple[list[Spot], int]:
    """Return the classes at loads that are drawn, and how many there are.

    Those whose verdict by the deciding metric of the first variant says most; where there is none, the first ones.
    """
    headline = verdict.headlines[0] if verdict.headlines else None
    cells = words.cells_of(verdict, headline) if headline is not None else ()
    if cells:
        class_codes = {name: code for code, name in enumerate(seen.classes)}
        load_codes = {load: code for code, load in enumerate(seen.loads)}
        found = [
            Spot(cell.class_, cell.load, class_codes[cell.class_], load_codes[cell.load])
            for cell in words.most_telling(cells, most)
            if cell.class_ in class_codes and cell.load in load_codes
        ]
        return found, len(cells)
    pairs = np.unique(seen.class_ * max(1, len(seen.loads)) + seen.load)
    every = [divmod(int(pair), max(1, len(seen.loads))) for pair in pairs]
    found = [Spot(seen.classes[class_], seen.loads[load], class_, load) for class_, load in every[:most]]
    return found, len(every)


def at(seen: Observations, spot: Spot) -> Mask:
    """Return which requests were asked there."""
    mask: Mask = (seen.class_ == spot.class_code) & (seen.load == spot.load_code)
    return mask


def figures(seen: Observations, metric: str, there: Mask) -> Values:
    """Return the figures of some requests, those left out that have none."""
    values = seen.figures[metric][there] if metric in seen.figures else np.empty(0)
    found: Values = values[np.isfinite(values)]
    return found


def spot_name(spot: Spot, *, loads: int, short: bool = False) -> str:
    """Return how a row is called; its load is said where there are several."""
    asked = words.short_load(spot.load) if short else words.load(spot.load)
    return f"{spot.class_}, {asked}" if loads > 1 else spot.class_
