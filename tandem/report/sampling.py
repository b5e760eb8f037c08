"""Choice of the data for charts: the requests, and the classes if there are too many.

Invariant: charts use the same requests as the verdict: none that failed, none of a round in which
the client was the bottleneck, and none of a control round, which has no requests to variants.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.request_table import RequestTable
from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.schema import Verdict
from tandem.judge.text_format import choose_telling_cells, select_cells


class ChartCell(NamedTuple):
    """A class at a load, with the codes of both in the observations."""

    class_: str
    load: LoadLevel
    class_code: int
    load_code: int


def mask_good_requests(verdict: Verdict, requests: RequestTable) -> BoolArray:
    """Return the mask of the requests that charts use. Shapes: (requests,)."""
    return (
        ~requests.failed
        & ~np.isin(requests.round, verdict.controls.marked_rounds)
        & ~requests.control_round_mask()
    )


def choose_cells(
    verdict: Verdict, requests: RequestTable, max_cells: int
) -> tuple[list[ChartCell], int]:
    """Return the classes at loads to draw, and the number of all.

    The choice is by the verdict of the first variant's deciding metric: the cells that say most. Of
    one server it is the cells with the most requests.
    """
    if not verdict.headlines:
        return _list_largest_cells(verdict, requests, max_cells)
    cells = select_cells(verdict, verdict.headlines[0])
    return [
        ChartCell(
            cell.class_,
            cell.load,
            requests.classes.index(cell.class_),
            requests.loads.index(cell.load),
        )
        for cell in choose_telling_cells(cells, max_cells)
    ], len(cells)


def _list_largest_cells(
    verdict: Verdict, requests: RequestTable, max_cells: int
) -> tuple[list[ChartCell], int]:
    good_mask = mask_good_requests(verdict, requests)
    codes = np.stack([requests.class_[good_mask], requests.load[good_mask]], axis=1)
    places, first_rows, counts = np.unique(codes, axis=0, return_index=True, return_counts=True)
    largest = sorted(range(len(places)), key=lambda at: (-counts[at], first_rows[at]))[:max_cells]
    cells = []
    for class_code, load_code in places[largest].tolist():
        class_ = requests.classes[class_code]
        cells.append(ChartCell(class_, requests.loads[load_code], class_code, load_code))
    return cells, len(places)


def mask_cell(requests: RequestTable, cell: ChartCell) -> BoolArray:
    """Return the mask of the requests of this class at this load. Shapes: (requests,)."""
    mask: BoolArray = (requests.class_ == cell.class_code) & (requests.load == cell.load_code)
    return mask
