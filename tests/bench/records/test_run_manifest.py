"""What a run says of itself, and the name that follows from it."""

from __future__ import annotations

import pytest
from measured import arm, run_manifest

from tandem.bench.records.manifest import (
    ClockReading,
    RunEnd,
    WarmUpEntry,
    read_manifest,
    run_id,
    write_manifest,
)
from tandem.errors import InputError

CLOCK = ClockReading(
    source="monotonic", resolution_s=1e-9, monotonic_s=1.0, utc="2026-11-21T00:00:00Z"
)


@pytest.mark.parametrize("utc", ["2026-11-21T08:30:05.123+00:00", "2026-11-21T09:30:05+01:00"])
def test_a_runs_name_is_its_time_and_a_digest(utc):
    name = run_id(run_manifest(created_utc=utc))
    assert name == run_id(run_manifest(created_utc=utc)) == "20261121T083005Z-" + name[-8:]
    assert set(name[-8:]) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"created_utc": "2026-11-21T00:00:00.001Z"},
        {"arms": (arm("base", role="baseline"), arm("spec", url="http://127.0.0.1:2"))},
    ],
    ids=["seed", "moment", "address"],
)
def test_two_runs_have_two_names(changes):
    assert run_id(run_manifest(**changes)) != run_id(run_manifest())


@pytest.mark.parametrize(
    "changes",
    [
        {"resumed": (CLOCK,)},
        {"ended": RunEnd(reason="interrupted", utc="2026-11-21T02:00:00Z")},
        {"goodput": {"ttft_ms": 5.0}},
        {"rounds": 7},
    ],
    ids=["resumed", "interrupted", "limited", "by the clock"],
)
def test_a_run_that_goes_on_keeps_its_name(changes):
    assert run_id(run_manifest(**changes)) == run_id(run_manifest())


def test_a_run_that_began_at_no_moment_has_no_name():
    with pytest.raises(InputError, match="'yesterday' is no moment"):
        run_id(run_manifest(created_utc="yesterday"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"arms": ()}, "length >= 1"), ({"duration_s": 60.0, "control_rounds": 1001}, "<= 1000")],
)
def test_a_manifest_that_no_run_writes_is_refused(tmp_path, changes, problem):
    write_manifest(tmp_path, run_manifest(**changes))
    with pytest.raises(InputError, match=f"this is no manifest: .*{problem}"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("schema", [1, 9])
def test_a_manifest_of_another_schema_is_refused(tmp_path, schema):
    write_manifest(tmp_path, run_manifest(schema=schema))
    with pytest.raises(
        InputError, match=f"schema {schema}; this version of Tandem reads schema 2; use the version"
    ):
        read_manifest(tmp_path)


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    entries = {"base": WarmUpEntry(requests=3)}
    expected = run_manifest(goodput={"ttft_ms": 500.0}, thinking=False, warm_up=entries)
    write_manifest(tmp_path, expected)
    assert read_manifest(tmp_path) == expected
