"""tandem/plan's predictions for `make real`'s kept runs, next to measurements: docs/theory.md.

The prediction for n-grams uses only their own counters and the baseline's times. The self-draft's
cost of a forward comes from the other group of the same run; its window and counters are its own.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from real_records import restore_records
from theory_model import compute_error, imply_draft_ratio, predict_time_ratio, predict_ttft_ms

from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.figures.summary import summarize_table

BASELINE = "base"
NGRAM = "ngram"
SELF_DRAFT = "self-draft"
SELF_WINDOW = 4  # num_speculative_tokens of the self-draft: facts.json next to the records


@dataclass(frozen=True, kw_only=True)
class MeasuredGroup:
    """One group of prompts of one run, in ms and ratios; time per token is a ratio of sums."""

    name: str
    steps_per_token: float
    acceptance_rate: float
    verify_ratio: float
    plain_token_ms: float
    token_ms: float
    plain_ttft_ms: float
    ttft_ms: float
    plain_e2e_ms: float
    e2e_ms: float

    @property
    def time_ratio(self) -> float:
        """Return the measured time per token over the baseline's."""
        return self.token_ms / self.plain_token_ms


def read_groups(folder: Path, variant: str) -> Iterator[MeasuredGroup]:
    """Yield each group of a run.

    Args:
        folder: of `tandem bench run`.
        variant: its arm that speculates.
    """
    table = read_request_table(folder)
    means = {
        (cell.class_, cell.arm, cell.metric): cell.mean for cell in summarize_table(table).cells
    }
    for name in table.classes:
        token_ms = {arm: _sum_token_ms(table, name, arm) for arm in (BASELINE, variant)}
        places = itertools.product(token_ms, ("ttft_ms", "e2e_ms"))
        medians = {(arm, metric): _median(table, name, arm, metric) for arm, metric in places}
        plain_ttft_ms = medians[BASELINE, "ttft_ms"]
        prefill_token_ms = plain_ttft_ms / _median(table, name, BASELINE, "prompt_tokens")
        yield MeasuredGroup(
            name=name,
            steps_per_token=means[name, variant, "target_steps_per_token"],
            acceptance_rate=means[name, variant, "draft_acceptance_rate"],
            verify_ratio=prefill_token_ms / token_ms[BASELINE],
            plain_token_ms=token_ms[BASELINE],
            token_ms=token_ms[variant],
            plain_ttft_ms=plain_ttft_ms,
            ttft_ms=medians[variant, "ttft_ms"],
            plain_e2e_ms=medians[BASELINE, "e2e_ms"],
            e2e_ms=medians[variant, "e2e_ms"],
        )


def _rows(table: RequestTable, class_: str, arm: str) -> np.ndarray:
    return (table.class_ == table.classes.index(class_)) & table.arm_mask(arm) & ~table.failed


def _median(table: RequestTable, class_: str, arm: str, metric: str) -> float:
    return float(np.nanmedian(table.figures[metric][_rows(table, class_, arm)]))


def _sum_token_ms(table: RequestTable, class_: str, arm: str) -> float:
    rows = _rows(table, class_, arm)
    figures = table.figures
    times_ms = figures["e2e_ms"][rows] - figures["ttft_ms"][rows]
    return float(np.nansum(times_ms) / np.nansum(figures["completion_tokens"][rows] - 1))


def predict_ngram(group: MeasuredGroup) -> float:
    """Return the predicted time ratio of n-grams."""
    return predict_time_ratio(
        group.steps_per_token, group.acceptance_rate, verify_ratio=group.verify_ratio
    )


def predict_self_draft(group: MeasuredGroup, other: MeasuredGroup) -> tuple[float, float]:
    """Return the self-draft's predicted time ratio and E2E (ms); forward cost: another group's."""
    draft_ratio = imply_draft_ratio(
        other.steps_per_token,
        other.acceptance_rate,
        verify_ratio=other.verify_ratio,
        time_ratio=other.time_ratio,
    )
    ratio = predict_time_ratio(
        group.steps_per_token,
        group.acceptance_rate,
        verify_ratio=group.verify_ratio,
        draft_ratio=draft_ratio,
    )
    decode_ms = group.plain_e2e_ms - group.plain_ttft_ms
    ttft_ms = predict_ttft_ms(group.plain_ttft_ms, SELF_WINDOW, draft_ratio * group.plain_token_ms)
    return ratio, ttft_ms + ratio * decode_ms


def read_kept_groups() -> tuple[list[MeasuredGroup], list[MeasuredGroup]]:
    """Return the groups of the kept n-gram run and of the kept self-draft run."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "kept"
        restore_records(place)
        return list(read_groups(place / NGRAM, NGRAM)), list(
            read_groups(place / SELF_DRAFT, SELF_DRAFT)
        )


def format_table() -> Iterator[str]:
    """Yield the Markdown of the table."""
    ngram_groups, self_groups = read_kept_groups()
    yield (
        "| arm, group | measured time a token | predicted | error | E2E measured, ms (plain) |"
        " predicted |"
    )
    yield "|---|---|---|---|---|---|"
    for group in ngram_groups:
        predicted = predict_ngram(group)
        error = compute_error(predicted, group.time_ratio)
        yield (
            f"| n-gram, {group.name} | {group.time_ratio:.3f} of plain | {predicted:.3f} |"
            f" {100 * error:.0f} % | | |"
        )
    for group in self_groups:
        (other,) = [entry for entry in self_groups if entry is not group]
        predicted, e2e_ms = predict_self_draft(group, other)
        error = compute_error(predicted, group.time_ratio)
        measured = f"{group.e2e_ms:,.0f} ({group.plain_e2e_ms:,.0f})"
        figures = (
            f"{group.time_ratio:.3f} of plain | {predicted:.3f} | {100 * error:.0f} % | {measured}"
            f" | {e2e_ms:,.0f}"
        )
        yield f"| self-draft, {group.name} | {figures} |"
