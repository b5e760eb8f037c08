"""The tasks of a run in virtual time: who is asked, and what a failure costs."""

from __future__ import annotations

import hashlib
from typing import ClassVar

import pytest
from sweep_life import HOURS, SmallSweep
from test_sweep_life import find_states, live
from virtual_world import (
    BASELINE,
    EXPERIMENT,
    FULL_BUCKET,
    RUN,
    VARIANT,
    VirtualWorld,
)

from rehearsal.cluster.pods import PodScript
from tandem.artifacts.archive import build_archive
from tandem.declarations.experiment import QualityTask
from tandem.declarations.names import task_set_key
from tandem.run.run_values import LeaseSpan, StepRecord, count_paid_s

JOB = "tandem-quality"
ARCHIVE = build_archive({"items.jsonl": b"{}"})
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()


class AskedWorld(VirtualWorld):
    """A run whose experiment declares one task set."""

    experiment: ClassVar = EXPERIMENT.model_copy(
        update={"quality": (QualityTask(name="letters", sha256=SHA256),)}
    )

    def __init__(self):
        self.asked: list[str] = []
        super().__init__(stored=FULL_BUCKET)

    def read_quality_step(self):
        """Return the step of the tasks as the journal has it."""
        key = next(
            key
            for key in self.account.objects
            if "/steps/" in key and key.endswith("-quality.json")
        )
        return self.account.read(key)

    def settle(self):
        super().settle()
        for job in self.store.list_objects("jobs"):
            containers = job["spec"]["template"]["spec"].get("initContainers", [])
            words = [row.get("value", "") for pod in containers for row in pod.get("env", [])]
            self.asked += [word for word in words if "=http" in word and word not in self.asked]


def run_experiment(*, has_tasks=True, script=None, leaves_answers=False, **fields):
    """Live a run to its end; return its world and its record."""
    world = AskedWorld()
    world.leaves_answers = leaves_answers
    if has_tasks:
        world.account.put(task_set_key("letters", SHA256), ARCHIVE)
    if script:
        world.scripts[JOB] = script
    world.ask(**fields)
    return world, world.live()


@pytest.fixture(scope="module")
def tasks_run():
    """A run whose tasks were answered."""
    return run_experiment()[0]


def test_both_servers_are_asked(tasks_run):
    assert tasks_run.asked == [
        " ".join(f"{arm}=http://{arm}.tandem-post.svc:8000" for arm in (BASELINE, VARIANT))
    ]


def test_judge_hears_of_the_answers(tasks_run):
    assert tasks_run.judged.quality_job.startswith("tandem-quality-")


def test_absent_task_set_ends_the_run_before_money():
    world, record = run_experiment(has_tasks=False)
    assert (record["state"], record["node_s"], record["leases"]) == ("failed", 0, [])
    assert "the bucket has no task set letters of this digest" in record["reason"]
    assert world.is_empty


def test_stored_answers_count_however_the_job_ended():
    world, record = run_experiment(script=PodScript(run_s=60, exit_code=3), leaves_answers=True)
    assert (record["state"], world.read_quality_step()["state"]) == ("judged", "done")


def test_drained_servers_are_asked_again():
    world = AskedWorld()
    world.account.put(task_set_key("letters", SHA256), ARCHIVE)
    world.scripts[JOB] = PodScript(run_s=600)
    world.ask()
    world.live(until=lambda seen: seen.asked)
    world.drain()
    for _ in range(10):
        world.look()
    world.uncordon()
    world.live()
    step = world.read_quality_step()
    assert (step["state"], step["attempts"]) == ("done", 2)


@pytest.mark.parametrize(("exit_code", "attempts"), [(3, 2), (2, 1)], ids=["failed", "refused"])
def test_failure_costs_the_quality_alone(exit_code, attempts):
    world, record = run_experiment(script=PodScript(run_s=60, exit_code=exit_code))
    step = world.read_quality_step()
    assert (record["state"], step["state"], step["attempts"]) == ("judged", "skipped", attempts)
    assert world.judged.quality_job == ""
    assert world.judged.quality_fault


LEASES = [
    LeaseSpan(
        name="a",
        deadline="",
        raised_at="2026-11-28T10:00:00+00:00",
        empty_at="2026-11-28T11:00:00+00:00",
    ),
    LeaseSpan(name="b", deadline="", raised_at="2026-11-28T20:00:00+00:00"),
]


def open_step(start, end):
    """A step that is open between two hours of a day."""
    day = "2026-11-28T{}:00+00:00".format
    return StepRecord(
        run="r", step="s", state="done", started_at=day(start), ended_at=end and day(end)
    )


@pytest.mark.parametrize(
    ("spans", "minutes"),
    [
        ([("10:10", "10:30")], 20),
        ([("09:00", "10:30")], 30),
        ([("10:30", "20:30")], 60),
        ([("12:00", "19:00")], 0),
        ([("10:10", "10:30"), ("10:20", "10:40")], 30),
        ([("10:10", "10:50"), ("10:20", "10:30")], 40),
        ([("10:10", None)], 0),
    ],
    ids=[
        "within",
        "before",
        "across leases",
        "between leases",
        "overlap",
        "inside another",
        "open",
    ],
)
def test_minutes_with_nodes_count_once(spans, minutes):
    assert count_paid_s([open_step(*span) for span in spans], LEASES) == 60 * minutes


def test_answers_that_never_come_are_given_up():
    world, record = run_experiment(script=PodScript(run_s=None), hours=8)
    assert (record["state"], world.read_quality_step()["state"]) == ("judged", "skipped")


@pytest.fixture(scope="module")
def resumption():
    """A sweep whose first lease ends while a pair is asked, resumed two days later; its record and
    its decision."""
    world = SmallSweep()
    world.DEFAULTS = {**world.DEFAULTS, JOB: PodScript(run_s=200 * 60)}
    world.ask(**{**HOURS, "hours": 6})
    assert world.live()["state"] == "waiting"
    world.account.advance(48 * 60)
    world.ask("resume", hours=8)
    return world.live(), world.read_decision(RUN)


def test_sweep_spans_leases(resumption):
    record, decision = resumption
    assert (record["state"], len(record["leases"]), decision["word"]) == ("judged", 2, "decided")


def test_hours_without_nodes_cost_a_pair_nothing(resumption):
    _, decision = resumption
    assert sum(row["node_minutes"] for row in decision["candidates"]) <= decision["node_minutes"]


def test_budget_that_ends_in_the_tasks_keeps_the_rounds():
    world = SmallSweep()
    world.DEFAULTS = {**world.DEFAULTS, JOB: PodScript(run_s=180 * 60)}
    _, decision = live(world, budget_usd=60)
    assert "measured" in find_states(decision).values()
    assert decision["usd"] <= 60
