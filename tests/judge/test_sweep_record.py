"""Which verdict of a pair lets its candidate win, and which word says why not."""

from __future__ import annotations

from typing import Any

import pytest

from tandem.judge.sweep_record import PairVerdict, TaskWord


def build_verdict(**changes: Any) -> PairVerdict:
    """A verdict that lets its candidate win, but for the changes."""
    fields = {
        "finding": "faster",
        "output": "the same",
        "sentence": "A sentence.",
        "rounds": 4,
        **changes,
    }
    return PairVerdict(**fields)


def build_task(word: Any) -> TaskWord:
    return TaskWord(task="sums", items=400, word=word, text="Figures.")


@pytest.mark.parametrize(
    "changes", [{}, {"output": "same quality"}, {"tasks": (build_task("no evidence"),)}], ids=str
)
def test_faster_candidate_with_a_good_output_can_win(changes):
    assert build_verdict(**changes).obstacle is None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"finding": "void"}, "void"),
        ({"finding": "not comparable"}, "not comparable"),
        ({"finding": "mixed"}, "mixed"),
        ({"finding": "slower"}, "slower"),
        ({"finding": "same"}, "same"),
        ({"finding": "no evidence"}, "not shown to be faster"),
        ({"rounds": 3}, "fewer than 4 rounds"),
        ({"output": "not the same"}, "another output"),
        ({"output": "not shown"}, "output not shown to be the same"),
        ({"output": "not the same", "tasks": (build_task("worse"),)}, "worse at a task"),
    ],
    ids=str,
)
def test_verdict_that_forbids_a_win_has_a_word(changes, word):
    obstacle = build_verdict(**changes).obstacle
    assert obstacle is not None
    assert obstacle.word == word


@pytest.mark.parametrize(
    ("changes", "is_used"),
    [
        ({"finding": "slower"}, True),
        ({"finding": "mixed"}, True),
        ({"finding": "void"}, False),
        ({"finding": "not comparable"}, False),
        ({"output": "not the same"}, False),
    ],
    ids=str,
)
def test_search_uses_figures_of_the_same_work_alone(changes, *, is_used):
    assert build_verdict(**changes).has_figures is is_used
