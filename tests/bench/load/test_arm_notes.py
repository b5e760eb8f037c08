"""What is said of arms that are one server."""

from __future__ import annotations

from typing import Any

import pytest
from measured import arm

from tandem.bench.load.arm_notes import list_arm_notes
from tandem.bench.plan.server_access import ServerAccess
from tandem.bench.plan.settings import RunSettings, draft_manifest

WARNING = "base and spec are one address with one model: you compare a server with itself"


def describe_settings(*, temperature: float = 0.0, **fields: Any) -> RunSettings:
    manifest = draft_manifest(
        arms=(arm("base"),),
        schedule="interleaved",
        seed=0,
        api="chat",
        rounds=1,
        temperature=temperature,
    )
    return RunSettings(manifest=manifest, suites=(), **fields)


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
    assert list(list_arm_notes(arms, describe_settings())) == notes


@pytest.mark.parametrize(
    ("fields", "access"),
    [
        ({"extra_body": {"top_p": 0.5}}, {}),
        ({}, {"spec": ServerAccess(headers={"x-route": "spec"})}),
    ],
)
def test_one_address_with_another_request_is_another_server(fields, access):
    arms = [arm("base", url="http://localhost"), arm("spec", url="http://localhost", **fields)]
    assert list(list_arm_notes(arms, describe_settings(access=access))) == []


@pytest.mark.parametrize(
    ("field_name", "temperature", "is_said"),
    [("temperature", 0.0, True), ("seed", 0.7, True), ("seed", 0.0, False)],
)
def test_arms_that_sample_unlike_are_named(field_name, temperature, is_said):
    arms = [arm("base", url="http://a", left_out=(field_name,)), arm("spec", url="http://b")]
    notes = list(list_arm_notes(arms, describe_settings(temperature=temperature)))
    assert [note.startswith(f"only base is not sent {field_name}") for note in notes] == (
        [True] if is_said else []
    )
