"""What two runs share, and what their manifests differ by."""

from __future__ import annotations

import pytest
from observed import Asked, observed

from tandem.errors import InputError
from tandem.judge.compare.differences import find_common_parts, find_differences


def run(*arms, **changes):
    return observed([Asked(arm=arm) for arm in arms], arms=arms, **changes)


BEFORE = run("base", "spec")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (BEFORE, "the same run"),
        (run("other", "third"), "no arm in common"),
        (run("base", "spec", seed=2, generator="llmperf"), "neither prompts nor tokens"),
        (run("base", "spec", seed=2, goodput_share=0.95), "it searched a knee"),
    ],
)
def test_what_cannot_be_compared_is_refused(after, words):
    with pytest.raises(InputError, match=words):
        find_common_parts(BEFORE, after)


@pytest.mark.parametrize(
    ("name", "value", "blocks"), [("temperature", 0.7, True), ("seed", 2, False)]
)
def test_a_setting_that_changes_the_work_bars_a_word(name, value, blocks):
    after = run("base", "spec", created_utc="2026-11-22T00:00:00Z", **{name: value})
    differences = find_differences(BEFORE.run, after.run, find_common_parts(BEFORE, after))
    assert [(difference.what, difference.blocks) for difference in differences] == [(name, blocks)]
