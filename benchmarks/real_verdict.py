"""The verdict of Tandem's own judge on a pair of real servers, for the measurement's page.

Invariant: the judge starts from the records each time; nothing comes from an earlier verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from tandem.bench.figures.request_table import read_request_table
from tandem.judge.schema import CellVerdict, RatioEstimate, Verdict
from tandem.judge.text_format import ALL_PROMPTS, list_overall_cells, name_word
from tandem.judge.verdict import JudgeOptions, judge_run

METRICS = ("e2e_ms", "tpot_ms", "ttft_ms")


def lines(folder: Path) -> list[str]:
    """Return a run's verdict as a Markdown table: a row a class, speed-ups with intervals.

    Raises:
        InputError: the folder holds no run.
    """
    verdict = judge_run(read_request_table(folder), JudgeOptions())
    return [
        *_said(verdict),
        "",
        "| class | prompts | E2E | TPOT | TTFT |",
        "|---|---|---|---|---|",
        *_rows(verdict),
    ]


def _said(verdict: Verdict) -> Iterator[str]:
    for headline in verdict.headlines:
        yield f"Verdict: **{headline.verdict}**. {headline.sentence}"
    reasons = itertools.chain.from_iterable(headline.reasons for headline in verdict.headlines)
    for reason in dict.fromkeys(reasons):
        yield f"- {reason}"
    for equal in verdict.equality:
        yield f"- {equal.sentence}"


def _rows(verdict: Verdict) -> Iterator[str]:
    for headline in verdict.headlines:
        by_metric = [list_overall_cells(verdict, headline, metric) for metric in METRICS]
        overall = list(itertools.chain.from_iterable(by_metric))
        if overall:
            yield f"| {ALL_PROMPTS} | {overall[0].prompts} | {' | '.join(map(_cell, overall))} |"
    cells = {(cell.class_, cell.metric): cell for cell in verdict.cells}
    for class_ in dict.fromkeys(cell.class_ for cell in verdict.cells):
        mine = [cells.get((class_, metric)) for metric in METRICS]
        prompts = max((cell.prompts for cell in mine if cell), default=0)
        yield f"| {class_} | {prompts} | {' | '.join(map(_cell, mine))} |"


def _cell(cell: CellVerdict | None) -> str:
    if cell is None or cell.speed_up is None:
        return "-"
    return f"{_ratio(cell.speed_up)}: {name_word(cell)}"


def _ratio(found: RatioEstimate) -> str:
    if found.low is None or found.high is None:
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
