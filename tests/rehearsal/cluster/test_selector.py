"""Selectors choose by equality alone."""

from __future__ import annotations

import pytest

from rehearsal.cluster.selector import match_fields, match_labels

LABELS = {"arm": "fused", "kubernetes.io/os": "linux"}


@pytest.mark.parametrize(
    ("selector", "is_match"),
    [
        ("", True),
        ("arm=fused,kubernetes.io/os=linux", True),
        ("arm=plain", False),
        ("arm=fused,run=a", False),
    ],
)
def test_labels_match_by_every_term(selector, is_match):
    assert match_labels(selector, LABELS) is is_match


@pytest.mark.parametrize("selector", ["arm", "arm!=plain", "arm==fused", "arm in (fused)"])
def test_another_operator_is_refused(selector):
    with pytest.raises(ValueError, match="unable to parse"):
        match_labels(selector, LABELS)


@pytest.mark.parametrize(
    ("selector", "is_match"),
    [("status.phase=Running", True), ("spec.nodeName=", True), ("metadata.name=other", False)],
)
def test_fields_match_by_path(selector, is_match):
    pod = {"metadata": {"name": "pod"}, "status": {"phase": "Running"}}
    assert match_fields(selector, pod) is is_match
