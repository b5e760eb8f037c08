"""Every rule finds its example, at the key it names, and nothing else does."""

from __future__ import annotations

import pytest
from examples import EXAMPLES
from known import judged, known

from tandem.rules import RULES

IDS = [rule.id for rule in RULES]
SEVERITY = {rule.id: rule.severity for rule in RULES}


def test_every_rule_has_an_example():
    assert sorted(EXAMPLES) == sorted(IDS)


def test_rule_ids_are_distinct():
    assert sorted(set(IDS)) == sorted(IDS)


def test_the_clean_pair_breaks_no_rule():
    assert judged({}) == ()


CASES = pytest.mark.parametrize(("rule", "example"), list(EXAMPLES.items()), ids=list(EXAMPLES))


@CASES
def test_rejects_the_example_at_its_key(rule, example):
    faults = judged(example.found, example.vary(known()) if example.vary else known())

    own = [fault for fault in faults if fault.rule == rule]
    assert [fault.path for fault in own] == [example.path]
    assert {fault.rule for fault in faults} == {rule, *example.also}
    assert own[0].change
    assert own[0].allowed or own[0].got  # which then is a sentence with its path
    assert own[0].source is not None
    assert own[0].source[-10:].count("-") == 2
    assert own[0].severity == SEVERITY[rule]
    assert own[0].line is None or own[0].line > 0


@CASES
def test_accepts_what_is_close_by(rule, example):
    faults = judged(
        example.passed, example.vary_passed(known()) if example.vary_passed else known()
    )
    assert {fault.rule for fault in faults} & {rule} == set()
    assert {fault.severity for fault in faults} <= {"warning"}
