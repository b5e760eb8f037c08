"""What is said of arms that are one server."""

from __future__ import annotations

import pytest
from measured import arm

from tandem.bench.load.arm_notes import list_arm_notes

WARNING = "base and spec are one address with one model: you compare a server with itself"


@pytest.mark.parametrize(
    ("url", "model", "notes"),
    [
        ("http://127.0.0.1:80/v1", "m", [WARNING]),
        ("http://localhost/v1/chat/completions", "m", [WARNING]),
        ("http://localhost", "another", []),
        ("http://localhost:81", "m", []),
        ("https://localhost", "m", []),
        ("http://localhost/team", "m", []),
    ],
)
def test_two_arms_that_are_one_server_are_named(url, model, notes):
    arms = [arm("base", url="http://LOCALHOST", model="m"), arm("spec", url=url, model=model)]
    assert list(list_arm_notes(arms)) == notes
