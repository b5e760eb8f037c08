"""What is said of answers that were forced to equal lengths."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from observed import Asked, observed

from tandem.judge.equal_length import FORCED_SENTENCE, describe_forced_lengths


def describe(*requests: Asked, is_forced: bool = True) -> list[str]:
    table = observed(requests)
    extra_body = {"ignore_eos": True} if is_forced else {}
    arms = [msgspec.structs.replace(arm, extra_body=extra_body) for arm in table.run.arms]
    run = msgspec.structs.replace(table.run, arms=tuple(arms))
    forced_table = dataclasses.replace(table, run=run)
    return list(describe_forced_lengths(forced_table, ~table.failed, ("base", "spec")))


@pytest.mark.parametrize(
    ("is_cut", "start"),
    [
        (True, FORCED_SENTENCE),
        (
            False,
            "Answers of equal lengths were requested (--ignore-eos), but 1 of 2 answers of base",
        ),
    ],
)
def test_an_answer_that_ended_early_is_counted(is_cut, start):
    requests = [Asked(cut=is_cut), Asked(cut=True), Asked(arm="spec", cut=True)]
    assert describe(*requests)[0].startswith(start)


def test_answers_that_could_be_checked_are_counted():
    requests = [Asked(cut=True, content=None), Asked(cut=True), Asked(arm="spec", cut=True)]
    texts = "1 of 2 answers of base and 1 of 1 answers of spec, up to the model's own stop"
    assert texts in describe(*requests)[1]


def test_nothing_is_said_where_the_model_ends_its_answers():
    assert describe(Asked(), Asked(arm="spec"), is_forced=False) == []
