"""A new account in memory for each test, and what operators and the reaper do to it."""

from __future__ import annotations

import pytest
from guard_world import GUARDED, LABEL, World

from tandem.guard.apply import run_reaper_pass, stop_fleet
from tandem.guard.config import GuardConfig
from tandem.guard.fleet_start import RaiseRequest, raise_fleet
from tandem.guard.release import release_fence


@pytest.fixture
def world():
    return World()


@pytest.fixture
def start(world):
    """Start a run as an operator does; keywords change what is asked."""

    def act(run="r1", config: GuardConfig = GUARDED, **more):
        fields = {
            "hours": 2.0,
            "experiment": "first",
            "nodes": 1,
            "node_labels": LABEL,
            "who": "anna",
            **more,
        }
        return raise_fleet(world.clients, config, RaiseRequest(run=run, **fields), world.now)

    return act


@pytest.fixture
def halt(world):
    """Stop as an operator does."""

    def act(why="enough", config: GuardConfig = GUARDED, **more):
        return stop_fleet(
            world.clients,
            config,
            **{"who": "anna", "why": why, "run": None, "now": world.now, **more},
        )

    return act


@pytest.fixture
def lift(world):
    return lambda who="anna": release_fence(world.clients, GUARDED, who=who, now=world.now)


@pytest.fixture
def passes(world):
    """Let time pass with a pass of the reaper every five minutes; the report of the last one."""

    def act(minutes, config: GuardConfig = GUARDED):
        report = run_reaper_pass(world.clients, config, world.now)
        for _ in range(int(minutes // 5)):
            world.advance(5)
            report = run_reaper_pass(world.clients, config, world.now)
        return report

    return act
