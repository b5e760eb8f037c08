"""The draft that an artifact's key names."""

from __future__ import annotations

import pytest
from measured import arm

from tandem.bench.records.manifest import Speculation
from tandem.judge.claims.variant_results import find_draft, model_slug

KEY = "qwen3-32b-fused-qwen3-1-7b-k7-tp32-lnc2-b4-s1024-0123456789ab"


def test_a_model_is_named_in_a_key_without_its_owner():
    assert model_slug("Qwen/Qwen3-1.7B") == "qwen3-1-7b"


@pytest.mark.parametrize(
    ("key", "method", "draft"),
    [(KEY, "fused", "qwen3-1-7b"), (KEY, "eagle", None), (KEY, None, None), (None, "fused", None)],
)
def test_a_draft_is_known_by_the_key_alone(key, method, draft):
    assert (
        find_draft(arm("spec", artifact_key=key, speculation=Speculation(method=method))) == draft
    )
