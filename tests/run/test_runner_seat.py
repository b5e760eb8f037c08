"""A runner that another one replaced acts no more, whatever it remembers; a torn reading of the
journal is none."""

from __future__ import annotations

from datetime import timedelta

import pytest
from virtual_world import BASELINE, NAMESPACE, RUN, reach

from tandem.run.journal import LostRunError, ObjectFile, RunJournal
from tandem.run.run_values import RunnerBeat
from tandem.run.run_world import RunEndError


class ReplacedRunner:
    """A run in a round, and the runner that had it until another one took over."""

    def __init__(self) -> None:
        self.world = reach("round-")
        self.stale = self.world.runner
        self.world.runner = self.world.start_runner()
        self.world.look()

    def end(self, state: str) -> None:
        """Let the replaced runner end the run by what it remembers."""
        engine = self.stale.engine
        [(index, record)] = [
            (number, record)
            for number, record in enumerate(engine.work.journal.steps.values())
            if record.state == "running"
        ]
        engine._begin_end(index, record, RunEndError("a view of long ago", state))


@pytest.fixture
def replacement():
    return ReplacedRunner()


@pytest.mark.parametrize("state", ["ended", "waiting"])
def test_a_replaced_runner_neither_ends_nor_parks_the_run(replacement, state):
    before = replacement.world.list_steps()
    with pytest.raises(LostRunError):
        replacement.end(state)
    assert replacement.world.list_steps() == before


def test_a_replaced_runner_makes_no_job(replacement):
    body = {"metadata": {"name": "late", "namespace": NAMESPACE}, "spec": {}}
    with pytest.raises(LostRunError):
        replacement.stale.world.cluster.create_job(NAMESPACE, body)
    assert "late" not in [
        job["metadata"]["name"] for job in replacement.world.store.view_objects("jobs")
    ]


def test_a_replaced_runner_deletes_no_job(replacement):
    [job] = [body["metadata"]["name"] for body in replacement.world.store.view_objects("jobs")]
    with pytest.raises(LostRunError):
        replacement.stale.world.cluster.delete_job(NAMESPACE, job)
    assert replacement.world.store.view_object("jobs", NAMESPACE, job) is not None


def test_a_replaced_runner_scales_no_server(replacement):
    with pytest.raises(LostRunError):
        replacement.stale.world.cluster.scale_deployment(NAMESPACE, BASELINE, 0)
    assert (
        replacement.world.store.view_object("deployments", NAMESPACE, BASELINE)["spec"]["replicas"]
        == 1
    )


def test_an_act_leaves_the_beat_of_the_other_runner(replacement):
    """The check reads `runner.json`; a beat of the replaced runner must lose as if it had not."""
    with pytest.raises(LostRunError):
        replacement.end("ended")
    replacement.world.account.advance(2)
    with pytest.raises(LostRunError):
        replacement.stale.beat()
    assert replacement.world.runner.file.read("runner.json", RunnerBeat).writer == "runner-2"


def test_end_is_seen_while_the_journal_is_read():
    """An end is written before its step is marked as failed, so a reading that lists too early is
    read on."""
    world = reach("round-")
    replacement = ReplacedRunner.__new__(ReplacedRunner)
    replacement.world = world
    replacement.stale = world.runner
    # run.json and the list come first; then the other runner ends the run before the first step is
    # read
    world.account.interrupt(lambda: replacement.end("ended"), "s3.get_object", skip=1)
    journal = RunJournal.load(ObjectFile(world.account.clients, world.runner.world.guard), RUN)
    assert "end" in journal.steps


def test_hours_without_a_runner_make_no_step_late():
    """The step `judge` has two hours and needs no node."""
    world = reach("judge")
    world.runner = world.start_runner()
    world.pass_time(timedelta(hours=5).total_seconds())
    assert world.live()["state"] == "judged"


def test_a_look_that_froze_tells_who_stopped_the_fleet():
    """Not what follows from it: the server has no node any more, so it is not ready."""
    world = reach("ready")
    world.account.interrupt(
        lambda: world.pass_time(timedelta(hours=3).total_seconds()), "kubernetes.list"
    )
    record = world.live()
    fence = world.account.read("stop.json")
    assert (record["state"], record["reason"]) == (
        "ended",
        f"reap stopped the fleet: {fence['why']}",
    )
