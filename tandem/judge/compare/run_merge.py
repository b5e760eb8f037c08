"""Two runs as one, in which each arm has its earlier and its later requests.

Invariant: prompts are paired by the content of their suite and their id. Suites have the earlier
run's names. Only arms and suites of both runs are in it, and no round that a control marked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from tandem.bench.figures.columns import BoolArray, IntArray
from tandem.bench.figures.request_table import UNKNOWN, RequestTable
from tandem.judge.compare.acceptance_drift import CHUNK_METRIC
from tandem.judge.compare.differences import CommonParts
from tandem.judge.pairs import JUDGED_METRICS, LENGTH_METRIC, find_figures
from tandem.judge.schema import RunControls

EARLIER = "earlier "
LATER = "later "
_COPY_COLUMNS = (
    "failed",
    "tokens",
    "output",
    "ids",
    "start_s",
    "end_s",
    "start",
    "placement",
    "repeat",
    "slot",
)


@dataclass(frozen=True)
class RunSide:
    """One of two runs.

    Args:
        prefix: of its arms' names in the merged run.
        table: the run.
        controls: of it.
        arms: names of the compared ones.
        suites: the compared ones, by the names of this run.
    """

    prefix: str
    table: RequestTable
    controls: RunControls
    arms: tuple[str, ...]
    suites: Collection[str]

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.table.folder.resolve().name

    @property
    def arm_names(self) -> list[str]:
        """The names of the run's arms in the merged run."""
        return [self.prefix + name for name in self.table.arms]

    @cached_property
    def arm_rows(self) -> BoolArray:
        """Which requests are of the compared arms."""
        codes = [code for code, name in enumerate(self.table.arms) if name in self.arms]
        return np.isin(self.table.arm, codes)

    @cached_property
    def mask(self) -> BoolArray:
        """Which requests are compared."""
        table = self.table
        prompts = [code for code, prompt in enumerate(table.prompts) if prompt.suite in self.suites]
        is_marked = np.isin(table.round, self.controls.marked_rounds)
        return ~is_marked & self.arm_rows & np.isin(table.prompt, prompts)


def merge_runs(sides: Sequence[RunSide], common: CommonParts) -> RequestTable:
    """Return one run with each arm twice in one round, as rounds of two runs do not pair."""
    tables = [side.table for side in sides]
    later_prompts = []
    for prompt in tables[1].prompts:
        suite = common.suites.get(prompt.suite, prompt.suite)
        later_prompts.append(prompt._replace(suite=suite))

    columns = {}
    for name in _COPY_COLUMNS:
        columns[name] = _join_columns(sides, [getattr(table, name) for table in tables])
    for plural, name, names in (
        ("arms", "arm", [side.arm_names for side in sides]),
        ("prompts", "prompt", [tables[0].prompts, later_prompts]),
        ("classes", "class_", [table.classes for table in tables]),
        ("loads", "load", [table.loads for table in tables]),
        ("contents", "content", [table.contents for table in tables]),
    ):
        columns[plural], columns[name] = _join_codes(sides, name, names)
    figures = {}
    for metric in (*JUDGED_METRICS, LENGTH_METRIC, CHUNK_METRIC):
        figures[metric] = _join_columns(sides, [find_figures(table, metric) for table in tables])
    zeros = np.zeros(len(columns["arm"]), np.intp)
    columns |= dict.fromkeys(("round", "error", "line_offsets"), zeros)
    return replace(
        tables[0],
        figures=figures,
        torn_lines=(),
        hit_token_limit=zeros.astype(bool),
        **columns,
    )


def _join_columns(sides: Sequence[RunSide], columns: Sequence[Any]) -> Any:
    """Return a column of both runs, of the compared requests alone."""
    return np.concatenate([column[side.mask] for column, side in zip(columns, sides, strict=True)])


def _join_codes(
    sides: Sequence[RunSide], column: str, names: Sequence[Sequence[Any]]
) -> tuple[tuple[Any, ...], IntArray]:
    """Return the names of a column for both runs, and the compared requests' codes among them."""
    places = {name: place for place, name in enumerate(dict.fromkeys(chain(*names)))}
    codes = []
    for side, own_names in zip(sides, names, strict=True):
        own_codes = np.array([*(places[name] for name in own_names), UNKNOWN], np.intp)
        codes.append(own_codes[getattr(side.table, column)])
    return tuple(places), _join_columns(sides, codes)
