"""The tasks of a sweep where they cost more than a judgment: only a candidate that leads so far
answers them."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import pytest
from sweep_life import LARGE, SMALL, SmallSweep
from test_quality_step import ARCHIVE, SHA256
from test_sweep_life import find_states, live

from rehearsal.cluster.pods import PodScript
from tandem.declarations.experiment import QualityTask
from tandem.declarations.names import task_set_key

TASK = QualityTask(name="letters", sha256=SHA256, items=400)


class LeaderLife(SmallSweep):
    """A sweep of two candidates whose staged task takes up to 49 minutes a pair.

    Attributes:
        output: of a candidate that was not asked the task.
        tasks: what each judge's Job was told of the task's answers, in their order.
    """

    experiment: ClassVar = SmallSweep.experiment.model_copy(update={"quality": (TASK,)})
    output = "the same"

    def __init__(self, **settings):
        self.tasks: list[str] = []
        super().__init__(**settings)
        self.account.put(task_set_key(TASK.name, SHA256), ARCHIVE)

    def judge_pair(self, task):
        self.tasks.append(task.quality_job.rpartition("-")[0])
        judgment = super().judge_pair(task)
        output = "same quality" if task.quality_job else self.output
        verdict = msgspec.structs.replace(judgment["pair_verdict"], output=output)
        return judgment | {"pair_verdict": verdict}

    def list_quality(self):
        """Return state and note of the step that asks the task, by pair."""
        return [
            (state, note) for step, state, note in self.list_steps() if step.endswith("-quality")
        ]


def live_leader(small, large, **settings):
    """Live a sweep whose drafts accept so much; the small one is measured first."""
    world = LeaderLife(acceptance={SMALL: small, LARGE: large}, **settings)
    live(world)
    return world


@pytest.fixture(scope="module")
def first_leads():
    """A sweep whose first candidate stays the best."""
    return live_leader(0.9, 0.7, output="not the same")


def test_leader_answers_the_task(first_leads):
    assert first_leads.list_quality()[0][0] == "done"


def test_candidate_behind_answers_no_task(first_leads):
    candidates = first_leads.read_decision()["candidates"]
    scores = [row["evidence"]["score"] for row in candidates]
    note = f"it is {min(scores):.2f} times as fast, and {max(scores):.2f} is measured"
    assert first_leads.list_quality()[1] == ("skipped", note)


def test_candidate_behind_is_judged_once(first_leads):
    assert [bool(job) for job in first_leads.tasks] == [False, True, False]


def test_leader_wins_by_the_task(first_leads):
    decision = first_leads.read_decision()
    assert decision["winner"] == "qwen-sd-qwen3-0-6b-k7"
    assert decision["output_note"]


def test_later_leader_answers_too():
    world = live_leader(0.7, 0.9)
    assert [state for state, _ in world.list_quality()] == ["done", "done"]
    assert world.read_decision()["winner"] == "qwen-sd-qwen3-1-7b-k7"


def test_slower_candidate_answers_no_task():
    world = live_leader(0.1, 0.1)
    assert world.list_quality() == [("skipped", "no answer would let it win")] * 2
    assert set(find_states(world.read_decision()).values()) == {"rejected"}


def test_cheap_task_is_asked_of_every_pair():
    cheap = TASK.model_copy(update={"items": 60})
    experiment = SmallSweep.experiment.model_copy(update={"quality": (cheap,)})
    world = live_leader(0.9, 0.7, experiment=experiment)
    assert [state for state, _ in world.list_quality()] == ["done", "done"]


def test_budget_that_ends_in_the_ranking_keeps_the_rounds():
    world = LeaderLife(acceptance={SMALL: 0.9, LARGE: 0.7})
    world.scripts["tandem-judge"] = PodScript(run_s=40 * 60)
    _, decision = live(world, budget_usd=25)
    assert world.list_quality()[0] == ("skipped", "the budget of 25.00 USD is used")
    assert decision["winner"] == "qwen-sd-qwen3-0-6b-k7"
