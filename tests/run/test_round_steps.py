"""The attempts of a round: what ends one, and when the next one begins."""

from __future__ import annotations

from datetime import datetime

import pytest
from virtual_world import FULL_BUCKET, RUN, VirtualWorld

from rehearsal.cluster.pods import PodScript
from tandem.run.round_steps import SILENCE_WAIT
from tandem.run.run_values import SILENT_EXIT_CODE

FIRST_ROUND = f"runs/{RUN}/steps/009-round-00000.json"


def fail_first_attempt(exit_code):
    """Return a world whose first attempt of a round just ended with a code, and the time of that
    end."""
    world = VirtualWorld(stored=FULL_BUCKET, look_s=5)
    world.scripts["tandem-measure"] = PodScript(run_s=5, exit_code=exit_code)
    world.ask()
    world.live(until=lambda seen: "attempt 1 does not count" in str(seen.list_steps()))
    del world.scripts["tandem-measure"]
    return world, datetime.fromisoformat(world.account.read(FIRST_ROUND)["result"]["since"])


def find_next_begin(world):
    """Return when the second attempt begins."""
    world.live(until=lambda seen: seen.account.read(FIRST_ROUND)["attempts"] == 2)
    return datetime.fromisoformat(world.account.read(FIRST_ROUND)["result"]["begun_at"])


def test_attempt_after_silence_waits_a_minute():
    world, end = fail_first_attempt(SILENT_EXIT_CODE)
    assert find_next_begin(world) >= end + SILENCE_WAIT


def test_new_runner_keeps_the_wait():
    world, end = fail_first_attempt(SILENT_EXIT_CODE)
    world.runner = world.start_runner()
    assert find_next_begin(world) >= end + SILENCE_WAIT


def test_attempt_after_another_fault_does_not_wait():
    world, end = fail_first_attempt(3)
    assert find_next_begin(world) < end + SILENCE_WAIT


@pytest.mark.parametrize("exit_code", [3, SILENT_EXIT_CODE])
def test_three_attempts_end_the_run(exit_code):
    world = VirtualWorld(stored=FULL_BUCKET)
    world.scripts["tandem-measure"] = PodScript(run_s=5, exit_code=exit_code)
    world.ask()
    record = world.live()
    assert record["state"] == "failed"
    assert "could not be measured in 3 attempts" in record["reason"]
