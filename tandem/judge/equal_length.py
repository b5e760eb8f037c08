"""What a verdict says of answers that were forced to equal lengths (--ignore-eos).

Invariant: nothing is said of a run that lets the model end its answers. Forced text is easier or
harder to draft than what a model writes of its own, so its acceptance is not that of real traffic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.request_table import UNKNOWN, RequestTable

FORCED_SENTENCE = (
    "Answers were forced to equal lengths (--ignore-eos), which biases acceptance and with it the"
    " speed-up of speculation"
)


_ASKED = "Answers of equal lengths were requested (--ignore-eos)"


def describe_forced_lengths(
    table: RequestTable, rows: BoolArray, arms: Sequence[str]
) -> Iterator[str]:
    """Yield whether answers were forced, and how many the content check could read.

    Args:
        table: requests of the run.
        rows: those that count.
        arms: the baseline and the variant.
    """
    if not table.run.forces_lengths:
        return
    answers = {arm: rows & table.arm_mask(arm) & ~table.failed for arm in arms}
    short_texts = []
    checked_texts = []
    for arm, mask in answers.items():
        answer_count = int(mask.sum())
        short_count = int(np.sum(mask & ~table.hit_token_limit))
        checked_count = int(np.sum(mask & (table.content != UNKNOWN)))
        checked_texts.append(f"{checked_count:,} of {answer_count:,} answers of {arm}")
        if short_count:
            short_texts.append(f"{short_count:,} of {answer_count:,} answers of {arm}")
    if short_texts:
        ended_text = f"{' and '.join(short_texts)} ended before their limit"
        yield f"{_ASKED}, but {ended_text}: not every server keeps ignore_eos"
    else:
        yield FORCED_SENTENCE
    yield (
        f"The content check read {' and '.join(checked_texts)}, up to the model's own stop; where"
        " that stop is not known, the check is off"
    )
