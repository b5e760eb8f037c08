"""What of a run is drawn: which requests, and which classes where there are too many.

Invariant: the requests that a verdict rests on: none that failed, none of a round in which the client was the
bottleneck, and none of a control round, in which no variant was asked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tandem.bench.columns import BoolArray
from tandem.bench.quantiles import Values
from tandem.bench.request_table import RequestTable
from tandem.bench.schedule import LoadLevel
from tandem.judge import text_format
from tandem.judge.schema import Verdict
from tandem.report.colors import MAX_ARMS


class ChartCell(NamedTuple):
    """A class at a load, with the codes of both in the observations."""

    class_: str
    load: LoadLevel
    class_code: int
    load_code: int


def mask_good_requests(verdict: Verdict, requests: RequestTable) -> BoolArray:
    """Return which requests the figures are of."""
    excluded_rounds = [excluded_round.round for excluded_round in verdict.controls.marked]
    mask: BoolArray = ~requests.failed & ~np.isin(requests.round, excluded_rounds) & ~requests.control_round_mask()
    return mask


def select_arms(requests: RequestTable) -> tuple[str, ...]:
    """Return the arms that are drawn: the baseline, then variants."""
    return (requests.baseline, *requests.variants)[:MAX_ARMS] if requests.arms else ()


def select_cells(verdict: Verdict, requests: RequestTable, max_cells: int) -> tuple[list[ChartCell], int]:
    """Return the classes at loads that are drawn, and how many there are.

    Those whose verdict by the deciding metric of the first variant says most; where there is none, the first ones.
    """
    headline = verdict.headlines[0] if verdict.headlines else None
    cells = text_format.select_cells(verdict, headline) if headline is not None else ()
    if cells:
        class_codes = {name: code for code, name in enumerate(requests.classes)}
        load_codes = {load: code for code, load in enumerate(requests.loads)}
        chart_cells = [
            ChartCell(cell.class_, cell.load, class_codes[cell.class_], load_codes[cell.load])
            for cell in text_format.choose_telling_cells(cells, max_cells)
            if cell.class_ in class_codes and cell.load in load_codes
        ]
        return chart_cells, len(cells)
    pairs = np.unique(requests.class_ * max(1, len(requests.loads)) + requests.load)
    codes = [divmod(int(pair), max(1, len(requests.loads))) for pair in pairs]
    chart_cells = [
        ChartCell(requests.classes[class_], requests.loads[load], class_, load) for class_, load in codes[:max_cells]
    ]
    return chart_cells, len(codes)


def mask_cell(requests: RequestTable, cell: ChartCell) -> BoolArray:
    """Return which requests were asked there."""
    mask: BoolArray = (requests.class_ == cell.class_code) & (requests.load == cell.load_code)
    return mask


def select_figures(requests: RequestTable, metric: str, mask: BoolArray) -> Values:
    """Return the figures of some requests, those left out that have none."""
    values = requests.figures[metric][mask] if metric in requests.figures else np.empty(0)
    finite_values: Values = values[np.isfinite(values)]
    return finite_values


def format_cell_name(cell: ChartCell, *, load_count: int, short: bool = False) -> str:
    """Return how a row is called; its load is said where there are several."""
    load_text = text_format.format_short_load(cell.load) if short else text_format.format_load(cell.load)
    return f"{cell.class_}, {load_text}" if load_count > 1 else cell.class_
