"""Which starts and restart commands of a run go together."""

from __future__ import annotations

import pytest

from tandem.bench.plan.restart_options import find_restart_fault

SERVERS = ("base", "spec")
COMMAND = {"base": "./restart.sh"}


def find_fault(starts, commands, rounds=None, duration_s=None):
    return find_restart_fault(
        starts, commands, servers=SERVERS, rounds=rounds, duration_s=duration_s
    )


@pytest.mark.parametrize(
    ("starts", "commands", "limits", "option"),
    [
        (2, {"other": "./restart.sh"}, {}, "restart"),
        (2, {"base": " "}, {}, "restart"),
        (2, {}, {}, "starts"),
        (1, COMMAND, {}, "starts"),
        (6, COMMAND, {"rounds": 4}, "starts"),
        (2, COMMAND, {"duration_s": 60.0}, "starts"),
    ],
)
def test_what_cannot_be_done_names_its_option(starts, commands, limits, option):
    assert find_fault(starts, commands, **limits).option == option


@pytest.mark.parametrize(("starts", "commands"), [(1, {}), (6, COMMAND)])
def test_starts_with_their_commands_are_taken(starts, commands):
    assert find_fault(starts, commands, rounds=6) is None
