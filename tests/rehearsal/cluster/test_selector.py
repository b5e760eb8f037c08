"""Selectors read as the API reads them."""

from __future__ import annotations

import pytest

from rehearsal.cluster.selector import match_fields, match_labels

LABELS = {"arm": "fused", "kubernetes.io/os": "linux"}


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "arm",
        "!run",
        "arm=fused",
        "arm==fused",
        "arm!=plain",
        "run!=a",
        "arm in (plain, fused)",
        "run notin (a)",
        "arm=fused,kubernetes.io/os=linux,!run",
    ],
)
def test_labels_match(selector):
    assert match_labels(selector, LABELS)


@pytest.mark.parametrize(
    "selector",
    ["run", "!arm", "arm=plain", "arm!=fused", "arm in (plain)", "arm notin (fused)", "arm,run"],
)
def test_labels_do_not_match(selector):
    assert not match_labels(selector, LABELS)


def test_a_selector_of_another_form_is_refused():
    with pytest.raises(ValueError, match="unable to parse"):
        match_labels("arm in plain", LABELS)


@pytest.mark.parametrize(
    "selector", ["status.phase=Running", "spec.nodeName=", "metadata.name!=other"]
)
def test_fields_match(selector):
    assert match_fields(selector, {"metadata": {"name": "pod"}, "status": {"phase": "Running"}})


def test_fields_do_not_match():
    assert not match_fields("status.phase!=Running", {"status": {"phase": "Running"}})
