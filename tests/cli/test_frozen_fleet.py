"""`tandem status` and `tandem stop` meet what commit 59a2544 left in the bucket: tests/frozen/objects."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tandem.guard.fence import FENCE_KEY

pytestmark = pytest.mark.endpoint
SITUATIONS = json.loads((Path(__file__).parents[1] / "frozen" / "objects" / "guard_59a2544.json").read_text())


def shift(body, minutes):
    """Move the times of an object, so that its situation is now."""
    by = datetime.now(UTC) - datetime.fromisoformat("2026-11-21T08:00:00+00:00")
    moved = re.compile(r"2026-11-21T[0-9:]{8}Z")
    late = by.total_seconds() - minutes * 60

    def move(match):
        at = datetime.fromisoformat(match[0]).timestamp() + late
        return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    return json.loads(moved.sub(move, json.dumps(body)))


@pytest.fixture
def meet(fleet):
    def act(name):
        for key, body in SITUATIONS[name]["objects"].items():
            fleet.put(key, shift(body, SITUATIONS[name]["minutes"]))
        if SITUATIONS[name]["nodes"]:
            fleet.scale(SITUATIONS[name]["nodes"])

    return act


@pytest.mark.parametrize(
    ("name", "expected"), [("live", (True, None)), ("stopping", (False, "stopping")), ("stopped", (False, "stopped"))]
)
def test_status_shows_a_frozen_situation(fleet, meet, capsys, name, expected):
    meet(name)
    fleet.tandem("status", "--json")

    said = json.loads(capsys.readouterr().out)
    fence = said["fence"] and said["fence"]["state"]
    assert (said["lease"]["run"], (said["lease_live"], fence)) == ("r1", expected)


def test_stop_ends_a_fleet_under_a_frozen_lease(fleet, meet):
    meet("live")
    code = fleet.tandem("stop", "--why", "frozen")
    fleet.until([])
    assert (code, fleet.get(FENCE_KEY)["run"]) == (0, "r1")
