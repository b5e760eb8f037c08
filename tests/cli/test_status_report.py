"""How a status is said: of a block, of what is unknown, within a screen's width."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from dataclasses import replace
from datetime import timedelta

import pytest
from fleet_seen import BLOCK, NOW, fence, instance, lease, seen, status

from tandem.cli.fleet import format_span
from tandem.cli.status import print_status, status_as_dict
from tandem.guard.schedules import ForeignSchedule
from tandem.ops.status import FleetBill, StatusReport
from tandem.ops.status_warnings import list_warnings

PAID = {
    "CapacityReservationId": "cr-0123456789abcdef0",
    "State": "active",
    "StartDate": NOW - timedelta(hours=2),
    "EndDate": NOW + timedelta(hours=20),
    "TotalInstanceCount": 2,
    "AvailableInstanceCount": 1,
}
LOST = {
    "instances": "AccessDenied",
    "lease": "AccessDenied",
    "heartbeat": "AccessDenied",
    "alarms": "AccessDenied",
}


def lines(report: StatusReport) -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_status(report, list_warnings(report))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def said(report: StatusReport) -> str:
    return " ".join("\n".join(lines(report)).split())


def test_what_is_unknown_is_nowhere_said_to_be_none():
    text = said(status(replace(seen(), unknown={"instances": "AccessDenied"}), unknown=LOST))  # type: ignore[dict-item]
    for row in (
        "instances unknown",
        "cost unknown",
        "lease unknown",
        "heartbeat unknown",
        "alarms unknown",
    ):
        assert row in text
    assert "nothing needs attention" not in text


def test_what_is_unknown_is_null_in_json():
    report = status(seen(), unknown=LOST | {"fence": "AccessDenied", "reservation": "AccessDenied"})
    document = json.loads(json.dumps(status_as_dict(report, ())))
    nulls = ("instances", "usd", "node_hours", "fenced", "lease_live", "idle_block", "alarms")
    assert {name: document[name] for name in nulls} == dict.fromkeys(nulls)


def test_every_line_fits_a_screen():
    look = seen(
        *(instance(f"i-{number:017}") for number in range(3)), fence=fence(why="many words " * 30)
    )
    report = status(
        look, BLOCK, reservation=PAID, alarms=("post-us-east-2-a-long-name",) * 9, unknown=LOST
    )
    assert [line for line in lines(report) if len(line) > 100] == []


def test_a_block_says_state_use_and_hours():
    text = said(status(seen(instance(), lease=lease()), BLOCK, reservation=PAID))
    assert (
        "block cr-0123456789abcdef0 active, 1 of 2 instances in use, starts 10:00 UTC (2 h 00 min"
        " ago)" in text
    )
    assert "ends 2026-11-22 08:00 UTC (in 20 h 00 min)" in text


def test_a_fence_says_who_why_since_when_and_how_far():
    report = status(
        seen(fence=fence(passes=3, last_look=NOW - timedelta(minutes=1), terminated=("i-1",)))
    )
    sentence = (
        "stopping since 11:58 UTC (2 min ago), by ana: enough (3 passes, looked at 1 min ago, 1"
        " instance terminated"
    )
    assert f"fence {sentence} by id)" in said(report)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (3600, "1 h 00 min"),
        (172800, "2 d 0 h"),
    ],
)
def test_a_span_is_said_in_its_own_unit(seconds, text):
    assert format_span(timedelta(seconds=seconds)) == text


# the first line, and what comes next

BILL = FleetBill(run="r1", since=NOW - timedelta(hours=4), usd=143.2)


@pytest.mark.parametrize(
    ("report", "first", "second"),
    [
        (
            status(seen()),
            "parked, nothing runs, nothing needs attention",
            "tandem run EXPERIMENT --env",
        ),
        (
            status(seen(instance(minutes=60), lease=lease())),
            (
                "1 node runs under lease r1 until 13:00 UTC (in 1 h 00 min), 35.76 USD so far,"
                " nothing needs attention"
            ),
            "tandem stop --end --env",
        ),
        (
            status(seen(instance(), instance("i-2"), fence=fence())),
            "a stop is under way: 2 instances alive",
            "tandem stop --env post-us-east-2 --wait",
        ),
        (
            status(seen(lease=lease(), fence=fence(state="stopped")), bill=BILL),
            "stopped, nothing runs, a fence blocks the next start",
            "tandem stop --release --env",
        ),
        (
            status(seen(instance())),
            "1 node runs without a live lease",
            "tandem stop --env post-us-east-2  # stops it",
        ),
        (
            status(seen(lease=lease())),
            "nothing runs, lease r1 until 13:00 UTC (in 1 h 00 min) stands",
            "--end",
        ),
        (
            status(seen(), deployment="nothing", paths=()),
            "not deployed",
            "npx cdk deploy 'post-us-east-2/*' -c",
        ),
        (
            status(seen(), unknown=LOST),
            "unknown whether anything runs: EC2 could not be reached",
            "tandem stop --env",
        ),
        (
            status(seen(), unknown={"fence": "denied"}),
            "parked, nothing runs, unknown whether a fence",
            "status",
        ),
    ],
)
def test_the_first_line_concludes_and_the_next_command_follows(report, first, second):
    screen = lines(report)
    assert " ".join(" ".join(screen[:2]).split()).startswith(f"post-us-east-2: {first}")
    [following] = [line for line in screen if line.startswith("  next ")]
    assert second in following


def test_an_unread_bill_is_unknown_and_never_zero():
    text = said(status(seen(), unknown={"bill": "AccessDenied"}))
    assert ("cost what the fleet cost before is unknown" in text, "0.00" in text) == (True, False)


def test_the_name_of_a_schedule_is_quoted():
    foreign = ForeignSchedule(name="x; curl evil", state="ENABLED", target_arn="arn:aws:lambda:x")
    report = status(seen(), schedules=(foreign,))
    [command] = [line for line in lines(report) if "delete-schedule" in line]
    assert shlex.split(command)[-1] == "x; curl evil"
