"""How a size narrows suites."""

from __future__ import annotations

from planned import suite

from tandem.bench.plan.run_size import DEFAULT_SIZE, QUICK_SIZE, RunSize
from tandem.bench.suites.synthetic import SyntheticShape


def test_a_suite_without_the_classes_gives_its_first_ones():
    suites = RunSize(classes=("code",)).narrow_suites(
        [suite({"a": 1, "b": 1}), suite({"x": 1, "code": 1})]
    )
    assert [narrow.classes for narrow in suites] == [("a",), ("code",)]


def test_the_default_size_shortens_no_file_of_a_user():
    size = DEFAULT_SIZE.fit_files([suite({"code": 1})])
    assert (size.prompts_per_class, size.max_tokens) == (None, None)


def test_no_size_shortens_synthetic_prompts():
    shape = SyntheticShape(input_tokens=64, output_tokens=600, count=12)
    suites = QUICK_SIZE.load_suites([], synthetic=shape)
    size = QUICK_SIZE.fit_files(suites)
    assert [suite.name for suite in suites] == ["synthetic"]
    assert (size.prompts_per_class, size.max_tokens) == (None, None)
