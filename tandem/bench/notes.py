"""What a reader of a summary must know beside its figures: what is absent and why, what was left out, what is odd.

Invariant: one sentence for each fact, with the arm and the number it holds for; nothing is left out in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from tandem.bench.columns import BoolArray
from tandem.bench.manifest import RunManifest
from tandem.bench.request_metrics import SUSPECTS
from tandem.bench.request_table import RequestTable

_UNKNOWN_SIMULATION = "whether these servers were simulated is not known: nobody asked them when they were measured"
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
    return [
        # alike wherever the folder lies
        *(str(torn._replace(path=Path(torn.path.name))) for torn in table.torn_lines),
        *table.run.notes,
        *([_UNKNOWN_SIMULATION] if table.run.simulated is None else []),
        *_note_roles(table.run),
        *_note_progress(table, is_main),
        *_note_requests(table, is_main),
        *sentences,
        *([] if table.run.goodput else ["goodput_per_s is absent: no limits were stated"]),
        *(
            f"{arm}: acceptance_length and target_steps_per_token are absent: no turn has its counters"
            for arm in _count_by_arm(table, is_main)
            if arm not in arms_with_counters
        ),
    ]


def _note_roles(run: RunManifest) -> Iterator[str]:
    baselines = [arm.name for arm in run.arms if arm.role == "baseline"]
    restore = "restore the manifest from a copy if that is wrong"
    if len(baselines) > 1:
        names, first = ", ".join(baselines), f"{baselines[0]}, the first of them"
        yield f"the manifest has {len(baselines)} baselines ({names}): the others are held against {first}; {restore}"
    elif run.arms and not baselines:
        first = run.arms[0].name
        yield f"the manifest has no baseline: the others are held against {first}, its first arm; {restore}"
    for name, number in Counter(arm.name for arm in run.arms).items():
        if number > 1:
            yield f"the manifest has {number} arms named {name}: their records cannot be told apart, and are one arm's"


def _note_progress(table: RequestTable, is_main: BoolArray) -> Iterator[str]:
    run, record_count, is_control = table.run, len(table), ~is_main
    if run.ended is None:
        yield "the run has not ended, or was killed: its manifest has no end"
    elif run.ended.reason != "done":
        yield f"the run ended early: {run.ended.reason}"
    if run.plan.requests is not None and record_count < run.plan.requests:
        yield f"{record_count} of {run.plan.requests} planned requests are recorded"
    if unknown_arms := sorted(set(_count_by_arm(table, is_main)) - {arm.name for arm in run.arms}):
        yield f"the manifest names no arm {', '.join(unknown_arms)}: nothing is known of it but its records"
    if duplicates := record_count - len(np.unique(table.request_digest)):
        question = "was the file joined with a copy of itself?"
        yield f"records that repeat a request_id: {duplicates}; all are counted: {question}"
    if llmperf_count := int(table.by_llmperf.sum()):
        yield (
            f"records of llmperf: {llmperf_count}; of their chunks they hold the first and the end, so they have no "
            "gap, no tokens per chunk and no TPOT; docs/measurement.md compares them"
        )
    if rounds := len(np.unique(table.round[is_control])):
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


def _note_requests(table: RequestTable, is_main: BoolArray) -> Iterator[str]:
    totals, is_answer = _count_by_arm(table, is_main), is_main & ~table.failed
    reconnect = "asked again on a fresh connection, because the reused one died before any byte"
    groups: list[dict[tuple[str, str], BoolArray]] = [  # what is said before and after the number, of which requests
        {(f"failed with {word}", "requests; in no latency"): table.error == n for n, word in enumerate(table.errors)},
        {("asked more than once", "requests"): table.retried},
        {(reconnect, "requests; their times are those of the second asking"): table.reconnected},
        {("fewer than 2 tokens, and so no TPOT", "answers"): is_answer & np.isin(table.raw_tokens, (0, 1))},
        {
            (f"suspect, {word}", f"records; {SUSPECTS[word]}; the figures this touches are left out"): mask
            for word, mask in table.suspects.items()
        },
        {("without usage", f"answers; no {_USAGE_METRICS} for them"): is_answer & np.isnan(table.raw_tokens)},
        {
            (f"content is {word}", "answers; their times are counted"): table.content == number
            for number, word in enumerate(table.contents)
            if word != "ok"
        },
    ]
    for masks in groups:
        counts = {
            (arm, *words): number
            for words, mask in masks.items()
            for arm, number in _count_by_arm(table, is_main & mask).items()
        }
        for arm, before, after in sorted(counts):
            yield f"{arm}: {before}: {counts[arm, before, after]} of {totals[arm]} {after}"
    with_tpot, with_exact = (
        _count_by_arm(table, is_main & ~np.isnan(table.figures[name])) for name in ("tpot_ms", "tpot_exact_ms")
    )
    for arm in sorted(with_tpot.keys() - with_exact.keys()):
        yield (
            f"{arm}: its chunks do not say how many tokens they hold, so tpot_exact_ms is absent, and a first "
            "burst biases tpot_ms"
        )
