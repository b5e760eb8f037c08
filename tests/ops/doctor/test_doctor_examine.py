"""What all lines come to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tandem.errors import ExternalError
from tandem.ops.doctor.context import Finding
from tandem.ops.doctor.runner import CHECKS, DoctorCheck, exit_code, run_checks

OK = Finding("ok", "", code=0)
WARN = replace(OK, level="warn")
UNKNOWN = replace(OK, level="unknown")
NEEDED = replace(OK, level="unknown", code=3)
BAD = replace(OK, level="fail", code=2)
BROKEN = replace(OK, level="fail", code=3)


@pytest.mark.parametrize(
    ("lines", "plain", "strict"),
    [
        ((OK,), 0, 0),
        ((OK, WARN), 0, 1),
        ((OK, UNKNOWN), 0, 1),
        ((WARN, NEEDED), 3, 3),
        ((BROKEN,), 3, 3),
        ((BROKEN, BAD, NEEDED), 2, 2),
    ],
)
def test_the_exit_code_follows_from_the_lines(lines, plain, strict):
    assert (exit_code(lines, strict=False), exit_code(lines, strict=True)) == (plain, strict)


@pytest.mark.parametrize(("needed", "code"), [(True, 3), (False, 0)])
def test_what_is_needed_and_unknown_is_a_failure(world, *, needed, code):
    check = DoctorCheck(
        id="x",
        group="people",
        find=lambda *_: iter((Finding("unknown", "s", "d"),)),
        mandatory=needed,
        needs_account=False,
    )

    (line,) = run_checks(world.subject(), world.account(), [check])

    assert line.code == code


def test_what_a_check_found_before_it_was_denied_stays(world):
    def find(*_: object):
        yield Finding("warn", "first", "do")
        raise ExternalError("denied", where="s3://b", change="add it")

    first, second = run_checks(
        world.subject(),
        world.account(),
        [DoctorCheck(id="x", group="people", find=find, needs_account=False)],
    )

    assert (first.level, second.level) == ("warn", "unknown")
    assert second.message == "s3://b: denied"


def test_lines_are_in_the_order_of_checks(world):
    assert list(dict.fromkeys(line.check for line in world.lines())) == [
        check.id for check in CHECKS
    ]


def test_healthy_account_before_its_first_deploy_passes(world):
    lines = world.lines()
    assert exit_code(lines, strict=False) == 0
    assert {line.level for line in lines} == {"ok", "warn"}
    assert {line.check for line in lines if line.level == "warn"} == {
        "unit-prices",
        "subscriptions",
        "images",
        "own-images",
    }
