"""A whole run by real processes: the command line, the runner, its Jobs, simulated servers, and
faults among them."""

from __future__ import annotations

import hashlib
import json

import pytest
from own_prompts import FORMS, MARK
from run_lives import TASK

from rehearsal.run.settings import RunFaults

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("run-life")]
ROUNDS = ("--rounds", "1")
ANSWER_PART = 24  # characters by which an answer is known again
NODE_TIME_TO_THE_DEADLINE = """
import sys
if "tandem.run" in sys.orig_argv:
    from datetime import datetime
    from tandem.run import fleet_steps
    from tandem.run.node_time import NodeTime
    def read_node_time(clients, config, fleet, lease, *, is_last):
        raised_at, deadline = map(datetime.fromisoformat, (lease.raised_at, lease.deadline))
        return NodeTime(paid_s=(deadline - raised_at).total_seconds(), ended_at=fleet.now)
    fleet_steps.read_node_time = read_node_time
"""


@pytest.fixture(scope="module")
def killed_run(lives):
    """The short form: one life from nothing staged to a verdict, whose runner is killed while a
    round is measured."""
    calls = len(lives.world.live.server.calls)
    faults = [RunFaults(killed_component="runner", moment="bench")]
    minutes = lives.world.count_node_minutes()
    life = lives.live(*ROUNDS, faults=faults, is_new=True)
    minutes = lives.world.count_node_minutes() - minutes
    return life, minutes, lives.world.live.server.calls[calls:]


def test_a_run_whose_runner_is_killed_is_judged_and_ends_at_zero(lives, killed_run):
    life, _, _ = killed_run
    lives.hold_end(life)
    assert (life.record["state"], life.code, len(life.acting_faults)) == ("judged", 0, 1), (
        life.output
    )


def test_its_verdict_has_the_quality_of_its_task_set(lives, killed_run):
    (task,) = json.loads((lives.folder / killed_run[0].name / "verdict.json").read_text())[
        "quality"
    ]
    assert (task["task"], task["items"], task["word"]) == (TASK, 200, "same")


def test_its_verdict_names_its_file_of_prompts(lives, killed_run):
    (suite,) = json.loads((lives.folder / killed_run[0].name / "verdict.json").read_text())[
        "suites"
    ]
    digest = hashlib.sha256(FORMS["table.csv"][0].encode()).hexdigest()
    assert (suite["name"], suite["file_sha256"]) == ("table.csv", digest)


def test_its_prompts_and_answers_are_in_its_records_alone(lives, killed_run):
    texts = lives.list_shown_texts(killed_run[0])
    answers = {answer[:ANSWER_PART] for answer in lives.read_answers(killed_run[0])}

    assert len(answers) > 1
    for place, text in texts.items():
        assert MARK not in text, place
        assert not any(answer in text for answer in answers), place


def test_its_verdict_says_that_it_is_of_simulated_servers(killed_run):
    assert killed_run[0].record["verdict"].startswith("SIMULATED")


def test_its_node_minutes_are_those_of_the_endpoint(killed_run):
    life, minutes, _ = killed_run
    assert abs(life.record["node_s"] / 60 - minutes) < 1
    assert minutes > 0


@pytest.mark.proof
def test_a_runner_that_counts_to_the_deadline_is_caught(lives, change_runner):
    change_runner(NODE_TIME_TO_THE_DEADLINE)
    minutes = lives.world.count_node_minutes()
    life = lives.live(*ROUNDS)
    minutes = lives.world.count_node_minutes() - minutes

    lives.hold_end(life)
    with pytest.raises(AssertionError):
        test_its_node_minutes_are_those_of_the_endpoint((life, minutes, None))


def test_its_runner_is_refused_nothing(killed_run):
    codes = {status for user, _, status in killed_run[2] if "runner" in user}
    assert codes
    assert codes.isdisjoint({401, 403})


@pytest.mark.proof
@pytest.mark.parametrize("status", [503, 429])
def test_an_api_that_answers_otherwise_for_a_while_costs_no_verdict(lives, status):
    life = lives.live(*ROUNDS, faults=[RunFaults(api_status=status, api_calls=20)])
    lives.hold_end(life)
    assert life.record["state"] == "judged", life.output


@pytest.mark.proof
@pytest.mark.parametrize(
    "fault",
    [
        RunFaults(is_node_drained=True, moment_s=1),
        RunFaults(is_node_lost=True, moment_s=1),  # its node group launches another instance
    ],
    ids=["drained-node", "lost-node"],
)
def test_a_replaced_node_costs_no_verdict(lives, fault):
    life = lives.live(*ROUNDS, faults=[fault])
    lives.hold_end(life)
    assert (life.record["state"], len(life.acting_faults)) == ("judged", 1), (
        life.record,
        life.output,
    )


@pytest.mark.proof
def test_a_wrong_artifact_ends_a_run_before_anything_is_measured(lives):
    lives.spoil_artifact("qwen-sd-vllm")
    life = lives.live(*ROUNDS)
    lives.hold_end(life)
    assert (life.record["state"], life.code) == ("ended", 1), life.output
    assert "qwen-sd-vllm" in life.record["reason"], life.record["reason"]
    assert "admit" in life.record["reason"], life.record["reason"]
    lives.forget_artifacts()


@pytest.mark.proof
def test_an_edited_argument_ends_a_run_before_a_round_counts(lives):
    """The last life: nobody syncs, so the Deployment stays edited."""
    life = lives.live(*ROUNDS, faults=[RunFaults(edited_server="qwen-vllm", moment_s=1)])
    lives.hold_end(life)
    assert (life.record["state"], life.code) == ("ended", 1), life.output
    assert "what runs is not what is declared: qwen-vllm: arguments: " in life.record["reason"], (
        life.record["reason"]
    )
