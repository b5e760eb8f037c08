"""Whether an arm's acceptance drifted between two runs, or over a series.

Invariant: the interval is over prompts, from the tokens of each chunk, so it needs no counter; a
server that streams each token by itself has no interval and gets no word. Greedy acceptance depends
on models and prompts and not on the day, so no noise floor bars a row. Lengths that are printed
come from counters where they live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.figures.summary import ALL_CLASSES
from tandem.judge.acceptance import compute_acceptance
from tandem.judge.compare.schema import AcceptanceDrift, DriftWord, RunComparison, RunSeries
from tandem.judge.decision import adjust_single_p, decide_speed_up
from tandem.judge.interval import estimate_log_ratio
from tandem.judge.pairs import RequestPairing, find_figures
from tandem.judge.schema import ClassAcceptance

STEP_METRIC = "tokens_per_step"
CHUNK_METRIC = "tokens_per_chunk"

_WORDS: dict[str, DriftWord] = {"faster": "higher", "slower": "lower", "same": "same"}


def add_step_metric(table: RequestTable) -> RequestTable:
    """Return a table with each answer's tokens a step after its first chunk; NaN without one."""
    per_chunk = find_figures(table, CHUNK_METRIC)
    with np.errstate(invalid="ignore", divide="ignore"):
        chunks = np.rint(table.tokens / per_chunk)
        steps = np.where(chunks > 1, (table.tokens - 1) / (chunks - 1), np.nan)
    return replace(table, figures={**table.figures, STEP_METRIC: steps})


def measure_drift(
    merged_run: RequestTable,
    tables: Sequence[RequestTable],
    arm_names: Mapping[str, tuple[str, str]],
    *,
    margin: float,
) -> Iterator[AcceptanceDrift]:
    """Yield how the acceptance of each arm that speculates changed.

    Args:
        merged_run: both runs as one, each arm twice.
        tables: both runs, the earlier one first.
        arm_names: in the merged run, of each arm that both runs have.
        margin: a ratio within 1 / (1 + margin) to 1 + margin is `same`.

    Raises:
        InputError: a line of a run's counters is no scrape.
    """
    pairing = RequestPairing(add_step_metric(merged_run))
    earlier_rows, later_rows = map(_list_lengths, tables)
    drifting = [arm for arm in arm_names if arm in earlier_rows and arm in later_rows]
    for arm in drifting:
        pairs = pairing.join_cells(arm_names[arm], pairing.known_cells(), STEP_METRIC)
        # a run in which every chunk of every answer has one token does not show its steps
        shows_steps = (pairs.baseline_medians > 1).any() and (pairs.variant_medians > 1).any()
        estimate = estimate_log_ratio(-pairs.logs) if shows_steps else None
        p = adjust_single_p(estimate.p, len(drifting)) if estimate else None
        word = decide_speed_up(estimate, p, floor=None, margin=margin).word
        before = earlier_rows[arm]
        after = later_rows[arm]
        yield AcceptanceDrift(
            arm=arm,
            before=before.acceptance_length,
            after=after.acceptance_length,
            methods=(before.method, after.method),
            ratio=estimate.convert() if estimate else None,
            word=_WORDS.get(word, "no evidence"),
        )


def _list_lengths(table: RequestTable) -> dict[str, ClassAcceptance]:
    """Return the acceptance over all classes of each arm that has one."""
    rows = compute_acceptance(table)
    return {row.arm: row for row in rows if row.class_ == ALL_CLASSES and row.acceptance_length}


def join_series(comparisons: Sequence[RunComparison]) -> RunSeries:
    """Return a series: each later run against the first, and whether acceptance drifted.

    Args:
        comparisons: all of the same earliest run, at least one.
    """
    words = set()
    for comparison in comparisons:
        words |= {drift.word for drift in comparison.acceptance}
    if words & {"higher", "lower"}:
        answer = "acceptance drifted: see the runs and arms marked higher or lower"
    elif "same" in words:
        answer = "acceptance did not drift in any row that could be judged"
    else:
        answer = "no evidence: acceptance was not counted in every run, or too few prompts answered"
    return RunSeries(comparisons=tuple(comparisons), answer=answer)
