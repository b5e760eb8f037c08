"""Every rule finds its example, at the key it names, and nothing else does."""

from __future__ import annotations

import pytest
from environment_examples import ENVIRONMENT_EXAMPLES
from example import Example
from experiment_examples import EXPERIMENT_EXAMPLES
from known import judged, known

from tandem.rules import RULES

EXAMPLES = {**EXPERIMENT_EXAMPLES, **ENVIRONMENT_EXAMPLES}
IDS = [rule.id for rule in RULES]
SEVERITY = {rule.id: rule.severity for rule in RULES}


def test_every_rule_has_an_example() -> None:
    assert sorted(EXAMPLES) == sorted(IDS)


def test_rule_ids_are_distinct() -> None:
    assert sorted(set(IDS)) == sorted(IDS)


def test_the_clean_pair_breaks_no_rule() -> None:
    assert judged({}) == ()


@pytest.mark.parametrize(("rule", "example"), list(EXAMPLES.items()), ids=list(EXAMPLES))
def test_rejects_the_example_at_its_key(rule: str, example: Example) -> None:
    catalogue = example.vary(known()) if example.vary else known()

    paths = [fault.path for fault in judged(example.found, catalogue) if fault.rule == rule]

    assert paths == [example.path]


@pytest.mark.parametrize(("rule", "example"), list(EXAMPLES.items()), ids=list(EXAMPLES))
def test_the_example_breaks_no_other_rule(rule: str, example: Example) -> None:
    catalogue = example.vary(known()) if example.vary else known()

    broken = {fault.rule for fault in judged(example.found, catalogue)}

    assert broken == {rule, *example.also}


@pytest.mark.parametrize(("rule", "example"), list(EXAMPLES.items()), ids=list(EXAMPLES))
def test_accepts_what_is_close_by(rule: str, example: Example) -> None:
    catalogue = example.vary_passed(known()) if example.vary_passed else known()

    broken = {fault.rule for fault in judged(example.passed, catalogue)}

    assert rule not in broken
    assert {SEVERITY[other] for other in broken if other} <= {"warning"}


@pytest.mark.parametrize(("rule", "example"), list(EXAMPLES.items()), ids=list(EXAMPLES))
def test_a_fault_says_everything_an_operator_needs(rule: str, example: Example) -> None:
    catalogue = example.vary(known()) if example.vary else known()
    fault = next(fault for fault in judged(example.found, catalogue) if fault.rule == rule)

    assert all((fault.got, fault.allowed, fault.change))
    assert fault.source is not None
    assert fault.source[-10:].count("-") == 2
    assert fault.severity == SEVERITY[rule]
    assert fault.line is None or fault.line > 0
