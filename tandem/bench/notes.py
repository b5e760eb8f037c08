"""What a reader of a summary must know beside its figures: what is absent and why, what was left out, what is odd.

Invariant: one sentence for each fact, with the arm and the number it holds for; nothing is left out in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tandem.bench.derive import SUSPECTS
from tandem.bench.manifest import Manifest
from tandem.bench.tally import Load, Tally

_NEED_USAGE = "tpot_ms, tokens_per_chunk, output_tokens_per_s and completion_tokens"


def notes(run: Manifest, total: Tally, aside: Tally, said: Sequence[str], counted: Collection[str]) -> list[str]:
    """Return every note of a run.

    Args:
        run: its manifest.
        total: its records.
        aside: those of its control rounds, which are in no figure.
        said: what the counters and the turns had to say.
        counted: arms of which a turn has counters.
    """
    return [
        *(str(replace(torn, path=Path(torn.path.name))) for torn in total.torn),  # alike wherever the folder lies
        *run.notes,
        *_unknown_servers(run),
        *_roles(run),
        *_course(run, total, aside),
        *_controls(aside),
        *_failures(total),
        *_contradictions(total),
        *_usage(total),
        *_content(total),
        *said,
        *_absent(run, total, counted),
    ]


def _unknown_servers(run: Manifest) -> Iterator[str]:
    if run.simulated is None:
        yield "whether these servers were simulated is not known: nobody asked them when they were measured"


def _roles(run: Manifest) -> Iterator[str]:
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


def _course(run: Manifest, total: Tally, aside: Tally) -> Iterator[str]:
    recorded = sum(total.requests.values()) + sum(aside.requests.values())
    if run.ended is None:
        yield "the run has not ended, or was killed: its manifest has no end"
    elif run.ended.reason != "done":
        yield f"the run ended early: {run.ended.reason}"
    if run.plan.requests is not None and recorded < run.plan.requests:
        yield f"{recorded} of {run.plan.requests} planned requests are recorded"
    strangers = sorted({load.arm for load in total.requests} - {arm.name for arm in run.arms})
    if strangers:
        yield f"the manifest names no arm {', '.join(strangers)}: nothing is known of it but its records"
    twice = _twice(total)
    if twice:
        yield f"records that repeat a request_id: {twice}; all are counted: was the file joined with a copy of itself?"
    if total.generators["llmperf"]:
        yield (
            f"records of llmperf: {total.generators['llmperf']}; of their chunks they hold the first and the end, so "
            "they have no gap, no tokens per chunk and no TPOT; docs/measurement.md compares them"
        )


def _controls(aside: Tally) -> Iterator[str]:
    rounds = len({place.round for _, place in aside.turns})
    if rounds:
        asked, failed = sum(aside.requests.values()), sum(aside.errors.values())
        lost = f", {failed} of them failed" if failed else ""
        yield (
            f"{rounds} control {'round' if rounds == 1 else 'rounds'} asked the baseline against itself, {asked} "
            f"requests{lost}: in no figure here; the verdict has its noise floor from them"
        )


def _twice(total: Tally) -> int:
    if not total.ids:
        return 0
    ids = np.sort(np.concatenate(total.ids), kind="stable")  # each part is sorted, and a stable sort joins such runs
    return int(np.count_nonzero(ids[1:] == ids[:-1]))


def _by_arm(counted: Mapping[Load, int]) -> Iterator[tuple[str, int]]:
    numbers: Counter[str] = Counter()
    for load, number in counted.items():
        numbers[load.arm] += number
    yield from sorted((arm, number) for arm, number in numbers.items() if number)


def _words(counted: Mapping[tuple[Load, str], int]) -> Iterator[tuple[str, str, int]]:
    numbers: Counter[tuple[str, str]] = Counter()
    for (load, word), number in counted.items():
        numbers[load.arm, word] += number
    yield from ((arm, word, number) for (arm, word), number in sorted(numbers.items()))


def _failures(total: Tally) -> Iterator[str]:
    asked = dict(_by_arm(total.requests))
    for arm, word, number in _words(total.errors):
        yield f"{arm}: failed with {word}: {number} of {asked[arm]} requests; in no latency"
    for arm, number in _by_arm(total.retried):
        yield f"{arm}: asked more than once: {number} of {asked[arm]} requests"
    for arm, number in _by_arm(total.reconnected):
        yield (
            f"{arm}: asked again on a fresh connection, because the reused one died before any byte: {number} of "
            f"{asked[arm]} requests; their times are those of the second asking"
        )
    for arm, number in _by_arm(total.short):
        yield f"{arm}: fewer than 2 tokens, and so no TPOT: {number} of {asked[arm]} answers"


def _contradictions(total: Tally) -> Iterator[str]:
    asked = dict(_by_arm(total.requests))
    for arm, word, number in _words(total.suspects):
        yield (
            f"{arm}: suspect, {word}: {number} of {asked[arm]} records; {SUSPECTS[word]}; the figures this touches are "
            "left out"
        )


def _usage(total: Tally) -> Iterator[str]:
    asked = dict(_by_arm(total.requests))
    for arm, number in _by_arm(total.uncounted):
        yield f"{arm}: without usage: {number} of {asked[arm]} answers; no {_NEED_USAGE} for them"
    for arm in asked:
        if not _values(total, arm, "tpot_exact_ms") and _values(total, arm, "tpot_ms"):
            yield (
                f"{arm}: its chunks do not say how many tokens they hold, so tpot_exact_ms is absent, and a first "
                "burst biases tpot_ms"
            )


def _values(total: Tally, arm: str, name: str) -> int:
    return sum(
        len(array)
        for (load, metric), arrays in total.values.items()
        if (load.arm, metric) == (arm, name)
        for array in arrays
    )


def _content(total: Tally) -> Iterator[str]:
    asked = dict(_by_arm(total.requests))
    for arm, word, number in _words(total.content):
        if word != "ok":
            yield f"{arm}: content is {word}: {number} of {asked[arm]} answers; their times are counted"


def _absent(run: Manifest, total: Tally, counted: Collection[str]) -> Iterator[str]:
    if not run.goodput:
        yield "goodput_per_s is absent: no limits were stated"
    for arm, _ in _by_arm(total.requests):
        if arm not in counted:
            yield f"{arm}: acceptance_length and target_steps_per_token are absent: no turn has its counters"
