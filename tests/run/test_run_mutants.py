"""Each promise of the lives in docs/proof.md turns red if the product breaks it: a change a
promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import test_frozen_runners
import test_last_step
import test_run_kills
import test_sweep_kills
from virtual_world import VirtualWorld

from tandem.errors import InputError
from tandem.run import artifact_steps, node_time, round_steps
from tandem.run.journal import RunJournal

Change = Callable[[pytest.MonkeyPatch], None]


def replace_function(name: str, value: Any) -> Change:
    """Return the change that puts another value in the place of a product's function."""
    return lambda patch: patch.setattr(name, value)


def forget_last_round(patch: pytest.MonkeyPatch) -> None:
    """Let the judge hear of one round less."""
    list_all = round_steps.list_confirmed
    patch.setattr("tandem.run.round_steps.list_confirmed", lambda steps: list_all(steps)[:-1])


def forget_evidence(patch: pytest.MonkeyPatch) -> None:
    """Let a new runner not know what the former one measured."""
    load = RunJournal.load.__func__

    def load_less(cls, file, run):
        journal = load(cls, file, run)
        for name, step in journal.steps.items() if journal else ():
            if name.endswith("-judge") and step.state == "done":
                step.result["evidence"] = None
        return journal

    patch.setattr("tandem.run.journal.RunJournal.load", classmethod(load_less))


def count_by_clock(patch: pytest.MonkeyPatch) -> None:
    """Let the time of nodes last until the runner looks."""
    read = node_time.read_node_time

    def read_late(clients, config, fleet, lease, *, is_last):
        now = fleet.now
        time = read(clients, config, fleet, lease, is_last=is_last)
        own_s = (now - node_time.datetime.fromisoformat(lease.raised_at)).total_seconds()
        return node_time.NodeTime(paid_s=own_s, ended_at=now, doubt=time.doubt)

    patch.setattr("tandem.run.fleet_steps.read_node_time", read_late)


def end_without_lease(patch: pytest.MonkeyPatch) -> None:
    """Let the end of a run's lease forget the instances: it only counts them."""
    patch.setattr("tandem.run.fleet_steps.end_lease", lambda *_, **__: None)


KILL_CHANGES: dict[str, Change] = {
    "it ends at zero": end_without_lease,
    "no instance without a stop": replace_function(
        "tandem.guard.fleet_start._FleetStart.arm_stop", lambda _: "arn"
    ),
    "every round is confirmed once": forget_last_round,
    "no fence": replace_function(
        "tandem.run.runner.heartbeat_key", lambda _: "runs/nobody/heartbeat.json"
    ),
    "judged whatever happens to servers": replace_function(
        "tandem.run.round_steps.MAX_ROUND_ATTEMPTS", 1
    ),
}


def hold_kills() -> None:
    for seed in range(6):
        test_run_kills.hold_life(seed, 8)


@pytest.mark.parametrize("promise", KILL_CHANGES)
def test_lives_with_kills_catch(promise, monkeypatch):
    KILL_CHANGES[promise](monkeypatch)
    with pytest.raises(AssertionError):
        hold_kills()


def refuse_without_reason(_, problem, change, where=""):  # noqa: ARG001 - as the product calls it
    return InputError("it is refused", where=where, change=change)


def test_raise_that_is_kept_away_catches_a_refusal_without_reason(monkeypatch):
    monkeypatch.setattr("tandem.guard.fleet_start._FleetStart._refuse", refuse_without_reason)
    life = test_run_kills.live_without_raise()
    assert life.is_fenced
    with pytest.raises(AssertionError):
        test_run_kills.hold_fenced_life(0, life)


FROZEN_CHANGES: dict[str, tuple[Change, int]] = {
    "no healthy run ends": (
        replace_function("tandem.run.runner.require_seat", lambda *_: None),
        3,
    ),
    "the reason is true": (
        replace_function("tandem.run.engine.RunEngine._find_first_cause", lambda _, __, end: end),
        13,
    ),
    "hours without a runner make no step late": (
        replace_function("tandem.run.engine.WATCH_S", 0),
        10,
    ),
    "nothing is left": (
        replace_function("tandem.run.runner.remove_leftovers", lambda *_: None),
        130,
    ),
    "node-minutes are EC2's": (count_by_clock, 5),
}


@pytest.mark.parametrize("promise", FROZEN_CHANGES)
def test_lives_with_freezes_catch(promise, monkeypatch):
    change, seed = FROZEN_CHANGES[promise]
    change(monkeypatch)
    with pytest.raises(AssertionError):
        test_frozen_runners.hold_told_life(seed)


SWEEP_CHANGES: dict[str, tuple[Change, int]] = {
    # a seed of whose kills one falls between two pairs
    "the decision is that of a life without kills": (forget_evidence, 5),
    "a sweep ends at zero": (end_without_lease, 0),
}


@pytest.mark.proof
@pytest.mark.parametrize("promise", SWEEP_CHANGES)
def test_sweeps_with_kills_catch(promise, monkeypatch):
    change, seed = SWEEP_CHANGES[promise]
    change(monkeypatch)
    with pytest.raises(AssertionError):
        test_sweep_kills.hold_life(seed, 8)


@pytest.mark.proof
def test_sweeps_with_a_budget_catch_a_search_that_ignores_it(monkeypatch):
    monkeypatch.setattr("tandem.run.sweep_steps._find_budget_fault", lambda *_: "")
    monkeypatch.setattr("tandem.run.sweep_steps._describe_used_budget", lambda _: "")
    with pytest.raises(AssertionError):
        test_sweep_kills.hold_budget(0, 8)


def test_a_stage_run_that_asks_for_the_fleet_is_caught(monkeypatch):
    monkeypatch.setattr("tandem.run.artifact_steps.check_bucket", artifact_steps.check_before_money)
    world = VirtualWorld(has_reaper=False)
    world.account.group = None
    test_last_step.stage(world)
    world.live()
    with pytest.raises(AssertionError):
        test_last_step.test_staging_needs_no_fleet(world)
