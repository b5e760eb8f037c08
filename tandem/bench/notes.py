"""What a reader of a summary must know beside its figures: what is absent and why, what was left out, what is odd.

Invariant: one sentence for each fact, with the arm and the number it holds for; nothing is left out in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.manifest import RunManifest
from tandem.bench.request_metrics import SUSPECTS
from tandem.bench.request_table import RequestTable

_USAGE_METRICS = "tpot_ms, tokens_per_chunk, output_tokens_per_s and completion_tokens"


def collect_notes(
    table: RequestTable, is_main: BoolArray, sentences: Sequence[str], arms_with_counters: Collection[str]
) -> list[str]:
    """Return every note of a run.

    Args:
        table: its requests.
        is_main: which of them are in no control round; the others are in no figure.
        sentences: what the counters and the turns had to say.
        arms_with_counters: arms of which a turn has counters.
    """
    run = table.run
    if run.simulated is None:
        unknown_notes = ["whether these servers were simulated is not known: nobody asked them when they were measured"]
    else:
        unknown_notes = []
    return [
        *(str(replace(torn, path=Path(torn.path.name))) for torn in table.torn_lines),  # alike wherever the folder lies
        *run.notes,
        *unknown_notes,
        *_note_roles(run),
        *_note_progress(table, is_main),
        *_note_control_rounds(table, ~is_main),
        *_note_requests(table, is_main),
        *sentences,
        *_note_absences(table, is_main, arms_with_counters),
    ]


def _note_roles(run: RunManifest) -> Iterator[str]:
    baselines = [arm.name for arm in run.arms if arm.role == "baseline"]
    if len(baselines) > 1:
        yield (
            f"the manifest has {len(baselines)} baselines ({', '.join(baselines)}): the others are held against "
            f"{baselines[0]}, the first of them; restore the manifest from a copy if that is wrong"
        )
    elif run.arms and not baselines:
        yield (
            f"the manifest has no baseline: the others are held against {run.arms[0].name}, its first arm; restore the "
            "manifest from a copy if that is wrong"
        )
    names = Counter(arm.name for arm in run.arms)
    for name in (name for name, number in names.items() if number > 1):
        yield f"the manifest has {names[name]} arms named {name}: their records cannot be told apart, and are one arm's"


def _note_progress(table: RequestTable, is_main: BoolArray) -> Iterator[str]:
    run, record_count = table.run, len(table)
    if run.ended is None:
        yield "the run has not ended, or was killed: its manifest has no end"
    elif run.ended.reason != "done":
        yield f"the run ended early: {run.ended.reason}"
    if run.plan.requests is not None and record_count < run.plan.requests:
        yield f"{record_count} of {run.plan.requests} planned requests are recorded"
    unknown_arms = sorted(set(_count_by_arm(table, is_main)) - {arm.name for arm in run.arms})
    if unknown_arms:
        yield f"the manifest names no arm {', '.join(unknown_arms)}: nothing is known of it but its records"
    duplicates = record_count - len(np.unique(table.request_digest))
    if duplicates:
        yield (
            f"records that repeat a request_id: {duplicates}; all are counted: was the file joined with a "
            "copy of itself?"
        )
    llmperf_count = int(table.by_llmperf.sum())
    if llmperf_count:
        yield (
            f"records of llmperf: {llmperf_count}; of their chunks they hold the first and the end, so they have no "
            "gap, no tokens per chunk and no TPOT; docs/measurement.md compares them"
        )


def _note_control_rounds(table: RequestTable, is_control: BoolArray) -> Iterator[str]:
    rounds = len(np.unique(table.round[is_control]))
    if rounds:
        failure_count = int(table.failed[is_control].sum())
        failure_text = f", {failure_count} of them failed" if failure_count else ""
        yield (
            f"{rounds} control {'round' if rounds == 1 else 'rounds'} asked the baseline against itself, "
            f"{int(is_control.sum())} requests{failure_text}: in no figure here; the verdict has its noise floor from "
            "them"
        )


def _count_by_arm(table: RequestTable, mask: BoolArray) -> dict[str, int]:
    """Return how many requests of each arm `mask` names, in the order of names; arms without one are left out."""
    numbers = np.bincount(table.arm[mask], minlength=len(table.arms)).tolist()
    return {arm: number for arm, number in sorted(zip(table.arms, numbers, strict=True)) if number}


def _count_words(
    table: RequestTable, is_main: BoolArray, codes: IntArray, words: Sequence[str]
) -> Iterator[tuple[str, str, int]]:
    """Yield arm, word and how many requests of the arm have the word, in the order of names."""
    counts = {
        (arm, word): number
        for code, word in enumerate(words)
        for arm, number in _count_by_arm(table, is_main & (codes == code)).items()
    }
    yield from ((*key, counts[key]) for key in sorted(counts))


def _note_requests(table: RequestTable, is_main: BoolArray) -> Iterator[str]:
    totals, is_answer = _count_by_arm(table, is_main), is_main & ~table.failed
    for arm, word, number in _count_words(table, is_main, table.error, table.errors):
        yield f"{arm}: failed with {word}: {number} of {totals[arm]} requests; in no latency"
    for arm, number in _count_by_arm(table, is_main & table.retried).items():
        yield f"{arm}: asked more than once: {number} of {totals[arm]} requests"
    for arm, number in _count_by_arm(table, is_main & table.reconnected).items():
        yield (
            f"{arm}: asked again on a fresh connection, because the reused one died before any byte: {number} of "
            f"{totals[arm]} requests; their times are those of the second asking"
        )
    for arm, number in _count_by_arm(table, is_answer & np.isin(table.raw_tokens, (0, 1))).items():
        yield f"{arm}: fewer than 2 tokens, and so no TPOT: {number} of {totals[arm]} answers"
    suspects = {
        (arm, word): number
        for word, mask in table.suspects.items()
        for arm, number in _count_by_arm(table, is_main & mask).items()
    }
    for arm, word in sorted(suspects):
        yield (
            f"{arm}: suspect, {word}: {suspects[arm, word]} of {totals[arm]} records; {SUSPECTS[word]}; the figures "
            "this touches are left out"
        )
    for arm, number in _count_by_arm(table, is_answer & np.isnan(table.raw_tokens)).items():
        yield f"{arm}: without usage: {number} of {totals[arm]} answers; no {_USAGE_METRICS} for them"
    arms_with = {
        name: set(_count_by_arm(table, is_main & ~np.isnan(table.figures[name])))
        for name in ("tpot_ms", "tpot_exact_ms")
    }
    for arm in sorted(arms_with["tpot_ms"] - arms_with["tpot_exact_ms"]):
        yield (
            f"{arm}: its chunks do not say how many tokens they hold, so tpot_exact_ms is absent, and a first "
            "burst biases tpot_ms"
        )
    for arm, word, number in _count_words(table, is_main, table.content, table.contents):
        if word != "ok":
            yield f"{arm}: content is {word}: {number} of {totals[arm]} answers; their times are counted"


def _note_absences(table: RequestTable, is_main: BoolArray, arms_with_counters: Collection[str]) -> Iterator[str]:
    if not table.run.goodput:
        yield "goodput_per_s is absent: no limits were stated"
    for arm in _count_by_arm(table, is_main):
        if arm not in arms_with_counters:
            yield f"{arm}: acceptance_length and target_steps_per_token are absent: no turn has its counters"
