"""An alarm is an environment's where its metrics lie in one of the environment's two namespaces."""

from __future__ import annotations

import pytest

from tandem.ops.ownership import ResourceOwnership

OWNED = ResourceOwnership(name="post", cluster="tandem-post", neighbours=("post-too",))


@pytest.mark.parametrize(("namespace", "own"), [
    ("Tandem/post", True), ("Tandem/Guard/post", True),
    ("Tandem/Simulated/post", True), ("Tandem/Guard/post-too", False), ("Tandem/Guard", False),
    ("AWS/EC2", False),
])  # fmt: skip
def test_an_alarm_is_ours_by_the_namespace_of_its_metric(namespace: str, own: bool) -> None:
    assert OWNED.mentions_environment([namespace]) == own
