"""The model held against the kept runs of a real vLLM: each group within 15 %, by counters and the
baseline's times."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import theory_real
from theory_model import compute_error, imply_draft_ratio, predict_time_ratio

NGRAM_GROUPS = ("structured", "rewriting", "open-ended")
SELF_GROUPS = ("structured", "open-ended")


@cache
def kept():
    return theory_real.read_kept_groups()


def find_group(groups, name):
    (group,) = [group for group in groups if group.name == name]
    return group


@pytest.mark.parametrize("name", NGRAM_GROUPS)
def test_ngram_time_per_token_is_predicted_within_15_percent(name):
    group = find_group(kept()[0], name)
    assert compute_error(theory_real.predict_ngram(group), group.time_ratio) <= 0.15


@pytest.mark.parametrize("name", NGRAM_GROUPS)
def test_the_speculative_arms_times_change_no_prediction_of_ngrams(name):
    group = find_group(kept()[0], name)
    without_times = replace(group, token_ms=float("nan"), ttft_ms=float("nan"), e2e_ms=float("nan"))
    assert theory_real.predict_ngram(without_times) == theory_real.predict_ngram(group)


@pytest.mark.parametrize("name", SELF_GROUPS)
def test_self_draft_time_per_token_is_predicted_within_15_percent(name):
    groups = kept()[1]
    group = find_group(groups, name)
    (rest,) = [entry for entry in groups if entry is not group]
    assert compute_error(theory_real.predict_self_draft(group, rest)[0], group.time_ratio) <= 0.15


@pytest.mark.parametrize("name", SELF_GROUPS)
def test_whether_self_draft_is_slower_end_to_end_is_predicted(name):
    groups = kept()[1]
    group = find_group(groups, name)
    (rest,) = [entry for entry in groups if entry is not group]
    is_slower = theory_real.predict_self_draft(group, rest)[1] > group.plain_e2e_ms
    assert is_slower == (group.e2e_ms > group.plain_e2e_ms) == (name == "structured")


def test_an_arm_that_never_drafts_takes_the_plain_time():
    assert predict_time_ratio(1.0, 0.0, verify_ratio=0.05) == 1.0


def test_the_implied_cost_of_a_forward_gives_the_measured_ratio_back():
    draft_ratio = imply_draft_ratio(0.2, 0.8, verify_ratio=0.05, time_ratio=0.9)
    assert predict_time_ratio(
        0.2, 0.8, verify_ratio=0.05, draft_ratio=draft_ratio
    ) == pytest.approx(0.9)
