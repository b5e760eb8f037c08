"""The notes of a summary: absent figures with their reasons, omitted values, and anomalies.

Invariant: one sentence for each fact, with the arm and the number; every omission has a note.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.request_metrics import COMPLETE_SUSPECTS, SUSPECTS
from tandem.bench.figures.request_table import UNKNOWN, RequestTable, read_outputs
from tandem.bench.records.folder import RECORDS_FILE

_UNKNOWN_SIMULATION = (
    "whether these servers were simulated is not known: one of them did not list its models"
)
_BROKEN = "api_error"  # the word of an answer that the server itself broke off
_USAGE_METRICS = "tpot_ms, tokens_per_chunk, output_tokens_per_s and completion_tokens"


def collect_notes(
    table: RequestTable,
    main: RequestTable,
    sentences: Sequence[str],
) -> Iterator[str]:
    """Yield every note of a run, but those on acceptance.

    Args:
        table: requests of the run.
        main: requests outside control rounds; the others are in no figure.
        sentences: notes on the counters and the turns.
    """
    yield from table.torn_lines
    yield from table.run.notes
    if table.run.simulated is None:
        yield _UNKNOWN_SIMULATION
    yield from _note_progress(table, main)
    yield from _note_requests(main)
    yield from _note_server_words(main)
    yield from _note_missing_counts(main)
    yield from sentences
    if not table.run.goodput:
        yield "goodput_per_s is absent: no limits were stated"


def note_absent_counters(main: RequestTable, arms_with_counters: Collection[str]) -> Iterator[str]:
    """Yield a note on the acceptance of each arm without counters.

    Args:
        main: requests outside control rounds.
        arms_with_counters: arms with counters for at least one turn.
    """
    for arm in _count_by_arm(main):
        if arm not in arms_with_counters:
            yield (
                f"{arm}: acceptance_length and target_steps_per_token are absent:"
                " no turn has its counters"
            )


def _note_progress(table: RequestTable, main: RequestTable) -> Iterator[str]:
    run = table.run
    record_count = len(table)
    if run.ended is None:
        yield "the run has not ended, or was killed: its manifest has no end"
    elif run.ended.reason != "done":
        yield f"the run ended early: {run.ended.reason}"
    if run.plan.requests is not None and record_count < run.plan.requests:
        yield f"{record_count} of {run.plan.requests} planned requests are recorded"
    unknown_arms = sorted(set(_count_by_arm(main)) - {arm.name for arm in run.arms})
    if unknown_arms:
        yield (
            f"the manifest names no arm {', '.join(unknown_arms)}:"
            " nothing is known of it but its records"
        )
    duplicates = record_count - len(np.unique(table.request_digest))
    if duplicates:
        question = "was the file joined with a copy of itself?"
        yield f"records that repeat a request_id: {duplicates}; all are counted: {question}"
    llmperf_count = int(table.by_llmperf.sum())
    if llmperf_count:
        yield (
            f"records of llmperf: {llmperf_count}; of their chunks they hold the first and the end,"
            " so they have no gap, no tokens per chunk and no TPOT;"
            " docs/measurement.md compares them"
        )
    control_count = record_count - len(main)
    if control_count:
        failure_count = int(table.failed.sum() - main.failed.sum())
        use = "the verdict has its noise floor from them"
        if not table.variants:
            use = "they show how much equal requests differ"
        yield (
            f"control rounds asked the baseline against itself: {control_count} requests,"
            f" {failure_count} failed, in no figure here; {use}"
        )


def _count_by_arm(table: RequestTable, mask: BoolArray | None = None) -> dict[str, int]:
    """Return the number of requests in `mask` by arm, in order of names; skip arms without any."""
    codes = table.arm if mask is None else table.arm[mask]
    numbers = np.bincount(codes, minlength=len(table.arms)).tolist()
    return {arm: number for arm, number in sorted(zip(table.arms, numbers, strict=True)) if number}


def _explain_suspect(word: str) -> str:
    effect = "they count" if word in COMPLETE_SUSPECTS else "the figures this touches are left out"
    return f"{SUSPECTS[word]}; {effect}"


def _note_server_words(table: RequestTable) -> Iterator[str]:
    """Yield what a server said of the first answer that it broke off, for each arm."""
    if _BROKEN not in table.errors:
        return
    is_broken = table.error == table.errors.index(_BROKEN)
    for arm, number in _count_by_arm(table, is_broken).items():
        row = int(np.flatnonzero(is_broken & table.arm_mask(arm))[0])
        (record,) = read_outputs(table, [row])
        detail = record.error_detail
        if record.suite in table.run.hidden_suites:  # a server may repeat what it was asked
            detail = f"see error_detail of request {record.request_id} in {RECORDS_FILE}"
        yield f"{arm}: of {number} answers that it broke off, it said of the first: {detail}"


def _note_requests(table: RequestTable) -> Iterator[str]:
    totals = _count_by_arm(table)
    for before, after, mask in _list_kinds(table):
        for arm, number in _count_by_arm(table, mask).items():
            yield f"{arm}: {before}: {number} of {totals[arm]} {after}"


def _list_kinds(table: RequestTable) -> Iterator[tuple[str, str, BoolArray]]:
    """Yield the text before and after the number of each kind of request, and their mask."""
    is_answer = ~table.failed
    for code, word in enumerate(table.errors):
        yield f"failed with {word}", "requests; in no latency", table.error == code
    yield "sent more than once", "requests", table.retried
    reconnect = "sent again on a new connection, because the reused one closed before any byte"
    yield reconnect, "requests; their times are those of the second request", table.reconnected
    is_short = is_answer & np.isin(table.raw_tokens, (0, 1))
    yield "fewer than 2 tokens, and so no TPOT", "answers", is_short
    for word, mask in table.suspects.items():
        yield f"suspect, {word}", f"records; {_explain_suspect(word)}", mask
    is_unchecked = is_answer & (table.content == UNKNOWN)
    is_silent = is_answer & np.isnan(table.raw_tokens)
    yield "without usage", f"answers; no {_USAGE_METRICS} for them", is_silent
    if table.run.forces_lengths:
        cause = "answers; they went on past it (--ignore-eos)"
        yield "content not checked, the model's own stop is not known", cause, is_unchecked
    for code, word in enumerate(table.contents):
        if word != "ok":
            yield f"content is {word}", "answers; their times are counted", table.content == code


def _note_missing_counts(table: RequestTable) -> Iterator[str]:
    for arm, part, number in table.unknown_parts:
        yield (
            f"{arm}: {part} holds text that Tandem does not read, so it has no time:"
            f" {number} answers"
        )
    arms = _count_by_arm(table, ~np.isnan(table.figures["tpot_ms"]))
    exact_arms = _count_by_arm(table, ~np.isnan(table.figures["tpot_exact_ms"]))
    for arm in sorted(arms.keys() - exact_arms.keys()):
        yield (
            f"{arm}: its chunks do not say how many tokens they hold, so tpot_exact_ms is absent,"
            " and a first burst biases tpot_ms"
        )
