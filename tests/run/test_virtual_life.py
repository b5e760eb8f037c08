"""The whole life of a run in virtual time: what it does in which order, and that nothing is left
behind it."""

from __future__ import annotations

from datetime import datetime

import pytest
from virtual_world import (
    BASELINE,
    FULL_BUCKET,
    NAMESPACE,
    RUN,
    VARIANT,
    VirtualWorld,
    at_step,
)

from rehearsal.cluster.pods import PodScript
from tandem.run.run_values import RunnerBeat


@pytest.fixture(scope="module")
def judged_world():
    """A run of four rounds and a control round from an empty bucket."""
    world = VirtualWorld()
    world.ask()
    world.live()
    return world


def test_run_is_judged(judged_world):
    record = judged_world.read_run()
    assert (record["state"], record["verdict"]) == ("judged", "qwen-sd-vllm is faster")


def test_steps_stand_in_their_order(judged_world):
    rounds = [f"round-{number:05}" for number in range(5)]
    before = ["preflight", "stage", "raise", "node", "compile", "label", "serve", "ready", "check"]
    assert [step for step, _, _ in judged_world.list_steps()] == [*before, *rounds, "judge", "end"]


def test_nothing_is_left(judged_world):
    assert judged_world.is_empty


def test_people_hear_the_verdict(judged_world):
    assert [message["text"] for message in judged_world.account.messages] == [
        "post-us-east-2: run post-1 judged. qwen-sd-vllm is faster"
    ]


def test_node_seconds_agree_with_the_account(judged_world):
    record = judged_world.read_run()
    machine = judged_world.account.machines[0]
    empty_at = datetime.fromisoformat(record["leases"][0]["empty_at"])
    assert abs(record["node_s"] - (empty_at - machine.launch_time).total_seconds()) <= 60


def test_each_job_leaves_the_tail_of_its_log(judged_world):
    logs = [key for key in judged_world.account.objects if key.startswith(f"runs/{RUN}/logs/")]
    assert len(logs) == 2 + 2 + 5 + 1  # stage, compile, measure, judge


def test_both_servers_had_a_half(judged_world):
    placements = [
        row["result"]["placements"]
        for row in judged_world.read_steps()
        if row["step"].startswith("round-")
    ]
    assert placements == [{BASELINE: "devices 0-7", VARIANT: "devices 8-15"}] * 5


def test_runner_beats(judged_world):
    beat = judged_world.runner.file.read("runner.json", RunnerBeat)
    assert (beat.writer, beat.run, set(beat.spec_digests)) == ("runner-1", None, {"post"})


def test_judge_hears_of_every_round(judged_world):
    assert judged_world.judged.confirmed == tuple((number, 1) for number in range(5))


def test_warm_bucket_needs_no_compile():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.ask()
    record = world.live()
    states = {step: state for step, state, _ in world.list_steps()}
    assert record["state"] == "judged"
    assert [states[name] for name in ("stage", "compile", "label")] == ["skipped"] * 3


def test_starts_swap_the_halves():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.ask(starts=2)
    world.live()
    rounds = [
        row["result"]["placements"][BASELINE]
        for row in world.read_steps()
        if row["step"].startswith("round-")
    ]
    assert (rounds[0], rounds[-1]) == ("devices 0-7", "devices 8-15")


def test_llmperf_runs_where_it_is_asked():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.ask(llmperf=True)
    world.live()
    assert world.find_step("llmperf")[1] == "done"
    assert world.judged.llmperf_job.startswith("qwen-llmperf-")


def test_the_judge_of_the_posts_experiment_gets_its_claims_and_drafts():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.ask()
    world.live()
    assert (world.judged.claims, world.judged.drafts) == (
        "post",
        {"qwen-sd-vllm": "Qwen/Qwen3-1.7B"},
    )


def test_void_control_voids_the_run():
    world = VirtualWorld(stored=FULL_BUCKET, is_void=True)
    world.ask()
    assert world.live()["state"] == "void"
    assert world.is_empty


def test_run_spans_leases():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.scripts["tandem-measure"] = PodScript(run_s=1500)
    world.ask(hours=2)
    waiting = world.live()
    assert waiting["state"] == "waiting"
    assert world.is_empty
    world.ask("resume", hours=3)
    record = world.live()
    assert (record["state"], [lease["name"] for lease in record["leases"]]) == (
        "judged",
        [RUN, f"{RUN}.2"],
    )
    assert world.is_empty


def test_one_image_measures_all_rounds(judged_world):
    digest = judged_world.read_steps()[9]["result"]["image_id"]
    first_image, *later_images = judged_world.measure_images
    repository = first_image.rpartition(":")[0]
    assert set(later_images) == {f"{repository}@{digest}"}


def test_servers_are_parked_before_the_run():
    world = VirtualWorld()
    world.ask()
    world.live(until=at_step("stage"))
    assert not [
        pod
        for pod in world.store.list_objects("pods", NAMESPACE)
        if pod["metadata"]["name"].startswith("qwen")
    ]
