"""Errors, warm-up, the measuring machine, placements and starts: what a run was measured under."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from observed import Asked, observed

from tandem.bench.load import host
from tandem.bench.load.host import RoundLoad
from tandem.bench.records.manifest import WarmUpEntry
from tandem.judge.controls import check_controls
from tandem.judge.schema import ControlCheck, RunControls

PROMPTS = 4
QUIET = {"wall_s": 60.0, "client_cpu": 0.02, "lag_p90_s": 0.001, "lag_p99_s": 0.001}


def requests(arm: str, number: int = 0, **more) -> list[Asked]:
    return [Asked(arm=arm, prompt=f"p{prompt}", round=number, **more) for prompt in range(PROMPTS)]


def both(number: int = 0, **more) -> list[Asked]:
    return [*requests("base", number, **more), *requests("spec", number, **more)]


def check(controls: RunControls, name: str) -> ControlCheck:
    return next(entry for entry in controls.checks if entry.name == name)


def judged(asked: list[Asked], **changes) -> RunControls:
    return check_controls(observed(asked, **changes))


@pytest.mark.parametrize(
    ("rows", "result", "sentence"),
    [
        (both(), "passed", "all 8 requests were answered"),
        (
            [*requests("base"), *requests("spec", error="closed")],
            "failed",
            "spec answered none of 4 requests",
        ),
        (
            [*requests("base", error="closed"), *requests("spec")],
            "failed",
            "base answered none of 4 requests",
        ),
        (
            [*both(), Asked(arm="spec", error="closed")],
            "caution",
            "spec failed 1 of 5 requests; no time includes a failed request",
        ),
        (requests("base"), "failed", "no requests of spec were recorded"),
    ],
    ids=["all", "no variant", "no baseline", "some", "not recorded"],
)
def test_an_arm_that_answers_nothing_voids_the_run(rows, result, sentence):
    controls = judged(rows)
    assert check(controls, "errors") == ControlCheck(
        name="errors", result=result, sentence=sentence
    )
    assert (sentence in controls.void) == (result == "failed")


def test_answers_that_ended_without_a_reason_are_a_caution():
    table = observed(both())
    lacks_reason = (table.arm == table.arms.index("spec")) & (table.prompt > 0)

    controls = check_controls(replace(table, suspects={"end_without_reason": lacks_reason}))

    assert check(controls, "errors") == ControlCheck(
        name="errors",
        result="caution",
        sentence=(
            "spec ended 3 of 4 answers with [DONE] and without a finish_reason: an answer that was"
            " cut would look the same"
        ),
    )


def test_one_dead_variant_of_two_voids_nothing():
    asked_requests = [*both(), *requests("other", error="closed")]
    assert (
        check(judged(asked_requests, arms=("base", "spec", "other")), "errors").result == "caution"
    )


@pytest.mark.parametrize(
    ("stable", "result"),
    [((True, True), "passed"), ((True, False), "caution"), ((None, None), "absent")],
)
def test_a_warm_up_without_an_end_is_a_caution(stable, result):
    warm_up = {
        name: WarmUpEntry(requests=8, stable=entry)
        for name, entry in zip(("base", "spec"), stable, strict=True)
    }
    finding = check(judged(both(), warm_up=warm_up), "warm-up")
    assert finding.result == result
    assert ("spec had not reached steady state" in finding.sentence) == (result == "caution")


@pytest.mark.parametrize(
    ("places", "result"),
    [
        ((("first", "second"),), "caution"),
        ((("first", "second"), ("second", "first")), "passed"),
        (((None, None),), "absent"),
        ((("first", None),), "caution"),
    ],
    ids=["a half each", "swapped", "not said", "one said"],
)
def test_placements_are_a_caution_unless_they_are_swapped(places, result):
    asked_requests = [
        request
        for number, (base, spec) in enumerate(places)
        for request in [
            *requests("base", number, placement=base),
            *requests("spec", number, placement=spec),
        ]
    ]
    controls = judged(asked_requests)

    assert check(controls, "placement").result == result
    assert ("how halves differ" in check(controls, "placement").sentence) == (result == "caution")


@pytest.mark.parametrize(
    ("starts", "result"), [(0, "absent"), (1, "absent"), (5, "absent"), (6, "passed")]
)
def test_what_fewer_than_six_starts_differ_by_is_left_out(starts, result):
    asked_requests = [request for number in range(max(starts, 1)) for request in both(number)]
    seen = observed(
        [
            replace(entry, start=f"{entry.arm}-{entry.round}" if starts else None)
            for entry in asked_requests
        ]
    )
    controls = check_controls(seen)
    assert check(controls, "start").result == result


def loaded(folder: Path, *loads: dict[str, float], asked: list[Asked] | None = None) -> RunControls:
    """A run whose requests take a second, with the load of its rounds."""
    lines = [
        msgspec.json.encode(RoundLoad(round=number, **load)) + b"\n"
        for number, load in enumerate(loads)
    ]
    (folder / host.FILE).write_bytes(b"".join(lines))
    every = asked or [request for number in range(len(loads)) for request in both(number)]
    return check_controls(replace(observed(every), folder=folder))


def test_without_the_load_of_rounds_nothing_is_marked():
    controls = judged(both())
    assert (check(controls, "client load").result, controls.marked) == ("absent", ())


@pytest.mark.parametrize(
    ("load", "marks"),
    [
        (QUIET, False),
        (QUIET | {"client_cpu": 0.9}, True),
        (QUIET | {"lag_p90_s": 0.06}, True),
        (QUIET | {"lag_p99_s": 0.06}, False),
        (QUIET | {"client_cpu": 0.9, "wall_s": 0.5}, False),
    ],
    ids=["quiet", "a whole CPU", "late by 6 %", "seldom so late", "half a second"],
)
def test_a_round_is_marked_where_the_client_was_the_bottleneck(tmp_path, load, marks):
    controls = loaded(tmp_path, QUIET, load)
    assert [mark.round for mark in controls.marked] == [1] * marks
    assert check(controls, "client load").result == ("caution" if marks else "passed")
    assert not controls.void


def test_a_run_whose_rounds_are_all_marked_is_void(tmp_path):
    controls = loaded(tmp_path, QUIET | {"client_cpu": 0.95}, QUIET | {"client_cpu": 0.85})
    assert len(controls.marked) == 2
    assert "and so in every round that compares arms" in controls.void[0]


def test_a_quiet_control_round_saves_no_marked_run(tmp_path):
    asked_requests = [*both(), *requests("base", 1), *requests("base#2", 1)]
    assert loaded(tmp_path, QUIET | {"client_cpu": 0.95}, QUIET, asked=asked_requests).void


def test_a_marked_control_round_gives_no_floor(tmp_path):
    asked_requests = [*both(), *requests("base", 1), *requests("base#2", 1)]
    assert loaded(tmp_path, QUIET, QUIET, asked=asked_requests).floors
    assert not loaded(tmp_path, QUIET, QUIET | {"client_cpu": 0.95}, asked=asked_requests).floors


def test_several_servers_behind_one_address_are_a_caution():
    table = observed(both())
    replicas = (
        ("base", "its counters fell and came back"),
        ("base#2", "its counters fell and came back"),
    )

    finding = check(check_controls(replace(table, replicas=replicas)), "start")

    assert finding.result == "caution"
    assert (
        finding.sentence
        == "several servers answer at the address of base: its counters fell and came back; starts"
        " cannot be told apart, and the counters are left out: give the address of one server"
    )
