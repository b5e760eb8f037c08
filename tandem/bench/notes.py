"""What a reader of a summary must know beside its figures: what is absent and why, what was left out, what is odd.

Invariant: one sentence for each fact, with the arm and the number it holds for; nothing is left out in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tandem.bench.aggregate import ArmLoad, RequestTally
from tandem.bench.manifest import RunManifest
from tandem.bench.request_metrics import SUSPECTS

_USAGE_METRICS = "tpot_ms, tokens_per_chunk, output_tokens_per_s and completion_tokens"


def collect_notes(
    run: RunManifest,
    total: RequestTally,
    control_tally: RequestTally,
    sentences: Sequence[str],
    arms_with_counters: Collection[str],
) -> list[str]:
    """Return every note of a run.

    Args:
        run: its manifest.
        total: its records.
        control_tally: those of its control rounds, which are in no figure.
        sentences: what the counters and the turns had to say.
        arms_with_counters: arms of which a turn has counters.
    """
    return [
        *(str(replace(torn, path=Path(torn.path.name))) for torn in total.torn_lines),  # alike wherever the folder lies
        *run.notes,
        *_note_unknown_servers(run),
        *_note_roles(run),
        *_note_progress(run, total, control_tally),
        *_note_control_rounds(control_tally),
        *_note_failures(total),
        *_note_contradictions(total),
        *_note_usage(total),
        *_note_content(total),
        *sentences,
        *_note_absences(run, total, arms_with_counters),
    ]


def _note_unknown_servers(run: RunManifest) -> Iterator[str]:
    if run.simulated is None:
        yield "whether these servers were simulated is not known: nobody asked them when they were measured"


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


def _note_progress(run: RunManifest, total: RequestTally, control_tally: RequestTally) -> Iterator[str]:
    record_count = sum(total.requests.values()) + sum(control_tally.requests.values())
    if run.ended is None:
        yield "the run has not ended, or was killed: its manifest has no end"
    elif run.ended.reason != "done":
        yield f"the run ended early: {run.ended.reason}"
    if run.plan.requests is not None and record_count < run.plan.requests:
        yield f"{record_count} of {run.plan.requests} planned requests are recorded"
    unknown_arms = sorted({load.arm for load in total.requests} - {arm.name for arm in run.arms})
    if unknown_arms:
        yield f"the manifest names no arm {', '.join(unknown_arms)}: nothing is known of it but its records"
    duplicates = _count_duplicates(total)
    if duplicates:
        yield (
            f"records that repeat a request_id: {duplicates}; all are counted: was the file joined with a "
            "copy of itself?"
        )
    if total.generators["llmperf"]:
        yield (
            f"records of llmperf: {total.generators['llmperf']}; of their chunks they hold the first and the end, so "
            "they have no gap, no tokens per chunk and no TPOT; docs/measurement.md compares them"
        )


def _note_control_rounds(control_tally: RequestTally) -> Iterator[str]:
    rounds = len({place.round for _, place in control_tally.turns})
    if rounds:
        request_count, failure_count = sum(control_tally.requests.values()), sum(control_tally.errors.values())
        failure_text = f", {failure_count} of them failed" if failure_count else ""
        yield (
            f"{rounds} control {'round' if rounds == 1 else 'rounds'} asked the baseline against itself, "
            f"{request_count} "
            f"requests{failure_text}: in no figure here; the verdict has its noise floor from them"
        )


def _count_duplicates(total: RequestTally) -> int:
    if not total.id_hashes:
        return 0
    ids = np.sort(
        np.concatenate(total.id_hashes), kind="stable"
    )  # each part is sorted, and a stable sort joins such runs
    return int(np.count_nonzero(ids[1:] == ids[:-1]))


def _sum_by_arm(counts: Mapping[ArmLoad, int]) -> Iterator[tuple[str, int]]:
    numbers: Counter[str] = Counter()
    for load, number in counts.items():
        numbers[load.arm] += number
    yield from sorted((arm, number) for arm, number in numbers.items() if number)


def _sum_words(counts: Mapping[tuple[ArmLoad, str], int]) -> Iterator[tuple[str, str, int]]:
    numbers: Counter[tuple[str, str]] = Counter()
    for (load, word), number in counts.items():
        numbers[load.arm, word] += number
    yield from ((arm, word, number) for (arm, word), number in sorted(numbers.items()))


def _note_failures(total: RequestTally) -> Iterator[str]:
    request_counts = dict(_sum_by_arm(total.requests))
    for arm, word, number in _sum_words(total.errors):
        yield f"{arm}: failed with {word}: {number} of {request_counts[arm]} requests; in no latency"
    for arm, number in _sum_by_arm(total.retries):
        yield f"{arm}: asked more than once: {number} of {request_counts[arm]} requests"
    for arm, number in _sum_by_arm(total.reconnects):
        yield (
            f"{arm}: asked again on a fresh connection, because the reused one died before any byte: {number} of "
            f"{request_counts[arm]} requests; their times are those of the second asking"
        )
    for arm, number in _sum_by_arm(total.short_answers):
        yield f"{arm}: fewer than 2 tokens, and so no TPOT: {number} of {request_counts[arm]} answers"


def _note_contradictions(total: RequestTally) -> Iterator[str]:
    request_counts = dict(_sum_by_arm(total.requests))
    for arm, word, number in _sum_words(total.suspects):
        yield (
            f"{arm}: suspect, {word}: {number} of {request_counts[arm]} records; {SUSPECTS[word]}; the figures "
            "this touches are "
            "left out"
        )


def _note_usage(total: RequestTally) -> Iterator[str]:
    request_counts = dict(_sum_by_arm(total.requests))
    for arm, number in _sum_by_arm(total.missing_usage):
        yield f"{arm}: without usage: {number} of {request_counts[arm]} answers; no {_USAGE_METRICS} for them"
    for arm in request_counts:
        if not _count_values(total, arm, "tpot_exact_ms") and _count_values(total, arm, "tpot_ms"):
            yield (
                f"{arm}: its chunks do not say how many tokens they hold, so tpot_exact_ms is absent, and a first "
                "burst biases tpot_ms"
            )


def _count_values(total: RequestTally, arm: str, name: str) -> int:
    return sum(
        len(array)
        for (load, metric), arrays in total.values.items()
        if (load.arm, metric) == (arm, name)
        for array in arrays
    )


def _note_content(total: RequestTally) -> Iterator[str]:
    request_counts = dict(_sum_by_arm(total.requests))
    for arm, word, number in _sum_words(total.content):
        if word != "ok":
            yield f"{arm}: content is {word}: {number} of {request_counts[arm]} answers; their times are counted"


def _note_absences(run: RunManifest, total: RequestTally, arms_with_counters: Collection[str]) -> Iterator[str]:
    if not run.goodput:
        yield "goodput_per_s is absent: no limits were stated"
    for arm, _ in _sum_by_arm(total.requests):
        if arm not in arms_with_counters:
            yield f"{arm}: acceptance_length and target_steps_per_token are absent: no turn has its counters"
