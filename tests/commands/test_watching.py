"""What is watched is what is hosted, with the traffic of its suites."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.bench.suites.suite import load as suite
from tandem.commands.watching import scope
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.load import load

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def hosting() -> tuple[Environment, list[Experiment]]:
    """The committed environment of the post, with what it hosts."""
    workspace = load(ROOT / "environments", ROOT / "experiments", ("post-us-east-2",))
    environment = workspace.environments["post-us-east-2"].environment
    experiments = [workspace.experiments[name].experiment for name in ("post", "post-drafts-windows")]
    assert environment
    assert all(experiments)
    return environment, [found for found in experiments if found]


def test_every_hosted_experiment_is_watched_in_its_order(hosting: tuple[Environment, list[Experiment]]) -> None:
    found = scope(*hosting)

    assert [watching.experiment.name for watching in found.experiments] == ["post", "post-drafts-windows"]
    assert found.environment is hosting[0]


def test_classes_are_those_of_the_suites(hosting: tuple[Environment, list[Experiment]]) -> None:
    traffic = scope(*hosting).experiments[0].traffic

    assert traffic.suites == {name: suite(name).classes for name in hosting[1][0].suites}
    assert set(traffic.classes) == {*suite("post").classes, *suite("real").classes}


def test_concurrencies_of_several_suites_stand_once_and_ascend(
    hosting: tuple[Environment, list[Experiment]],
) -> None:
    assert scope(*hosting).experiments[0].traffic.concurrencies == (1, 4)
