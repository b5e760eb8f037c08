"""Runs whose outputs a test states, as files: what equality reads is what a run wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count, product
from pathlib import Path
from typing import Any

import measured

from tandem.bench.figures.request_table import RequestTable, read_request_table

Answer = Callable[[int, int], Mapping[str, Any] | str | None]
"""Of a prompt's number and a round: fields of the record, its text alone, or None where nobody
asked."""

UNCOUNTED = measured.chunks((0.1, "role"), (0.2, "text"), (0.29, "text"), (0.29, "usage"))
TEXT = "one two three four five six seven eight"


def text(prompt: int, _round: int = 0) -> str:
    """What a good server says to a prompt."""
    return f"{prompt} {TEXT}"


def answered(
    folder: Path,
    answers: Mapping[str, Answer],
    *,
    prompts: int = 12,
    rounds: int = 1,
    **changes: Any,
) -> RequestTable:
    """A run whose arms, the baseline first, said what `answers` state; `changes` are of the
    manifest.

    A record has as many tokens as its text has words, unless the test says other.
    """
    numbers = count()
    records = []
    for round_, (name, answer), prompt in product(range(rounds), answers.items(), range(prompts)):
        claim = answer(prompt, round_)
        if claim is None:
            continue
        fields = {"text": claim} if isinstance(claim, str) else dict(claim)
        words = len(str(fields.get("text", TEXT)).split())
        at = next(numbers)
        defaults = {
            "request_id": f"r{at}",
            "arm": name,
            "class_": ("repeat", "chat")[prompt % 2],
            "round": round_,
            "prompt_id": f"p{prompt:02d}",
            "start_s": 1000.0 + at,
            "completion_tokens": words,
            "text": TEXT,
            "chunks": UNCOUNTED,
        }
        records.append(measured.record(**{**defaults, **fields}))
    arms = [name for name in answers if not name.endswith("#2")]
    stated_arms = tuple(
        measured.arm(name, role="variant" if place else "baseline")
        for place, name in enumerate(arms)
    )
    return read_request_table(
        measured.write_run(folder, records, **{"arms": stated_arms, **changes})
    )
