"""How a status is said: of a block, of what is unknown, within a screen's width."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))

from fleet_seen import BLOCK, FOUND, NOW, fence, instance, lease, seen, status

from tandem.commands.fleet import span
from tandem.commands.status_report import lines, plain
from tandem.ops.concerns import concerns
from tandem.ops.reservation import Reservation
from tandem.ops.status import Status

PAID = Reservation(
    id="cr-0123456789abcdef0", state="active", starts=NOW - timedelta(hours=2), ends=NOW + timedelta(hours=20), total=2,
    available=1,
)  # fmt: skip
LOST = {"instances": "AccessDenied", "lease": "AccessDenied", "heartbeat": "AccessDenied", "alarms": "AccessDenied"}


def said(found: Status) -> str:
    return " ".join("\n".join(lines(found, concerns(found))).split())


def test_a_block_says_state_use_and_hours() -> None:
    text = said(status(seen(instance(), lease=lease()), BLOCK, reservation=PAID))

    assert "block cr-0123456789abcdef0 active, 1 of 2 instances in use, starts 10:00 UTC (2 h 00 min ago)" in text
    assert "ends 2026-11-22 08:00 UTC (in 20 h 00 min) idle no" in text


def test_a_blocks_money_is_said_to_be_paid() -> None:
    assert "the block was paid when bought" in said(status(seen(), BLOCK, reservation=PAID))


def test_an_idle_block_is_yes() -> None:
    assert "idle yes" in said(status(seen(), BLOCK, reservation=PAID))


def test_a_block_that_is_not_written_yet_is_said() -> None:
    assert FOUND is not None
    assert "block none yet: capacity.reservation_id is not written" in said(status(seen(), FOUND))


def test_what_is_unknown_is_nowhere_said_to_be_none() -> None:
    text = said(status(replace(seen(), unknown={"instances": "AccessDenied"}), unknown=LOST))  # type: ignore[dict-item]

    for row in ("instances unknown", "cost unknown", "lease unknown", "heartbeat unknown", "alarms unknown"):
        assert row in text
    assert "nothing needs attention" not in text


def test_what_is_unknown_is_null_in_json() -> None:
    found = status(seen(), unknown=LOST | {"fence": "AccessDenied", "reservation": "AccessDenied"})

    document = json.loads(json.dumps(plain(found, ())))

    nulls = ("instances", "usd", "node_hours", "fenced", "lease_live", "idle_block", "alarms")
    assert {name: document[name] for name in nulls} == dict.fromkeys(nulls)


def test_a_fence_says_who_why_since_when_and_how_far() -> None:
    found = status(seen(fence=fence(passes=3, last_look=NOW - timedelta(minutes=1), terminated=("i-1",))))

    told = "stopping since 11:58 UTC (2 min ago), by ana: enough (3 passes, looked at 1 min ago, 1 instance terminated"
    assert f"fence {told} by id)" in said(found)


def test_every_line_fits_a_screen() -> None:
    look = seen(*(instance(f"i-{number:017}") for number in range(3)), fence=fence(why="many words " * 30))
    found = status(look, BLOCK, reservation=PAID, alarms=("post-us-east-2-a-long-name",) * 9, unknown=LOST)

    assert [line for line in lines(found, concerns(found)) if len(line) > 100] == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h 00 min"), (172799, "47 h 59 min"),
     (172800, "2 d 0 h")],
)  # fmt: skip
def test_a_span_is_said_in_its_own_unit(seconds: int, text: str) -> None:
    assert span(timedelta(seconds=seconds)) == text
