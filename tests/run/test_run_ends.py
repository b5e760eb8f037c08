"""Each way in which a run ends early: as declared, with a sentence, at zero instances."""

from __future__ import annotations

import math
import re

import pytest
from virtual_world import (
    BASELINE,
    FULL_BUCKET,
    GUARD,
    MODELS,
    NAMESPACE,
    RUN,
    VARIANT,
    WHO,
    VirtualWorld,
    at_step,
    reach,
)

from rehearsal.cluster.pods import PodScript
from tandem.guard.apply import stop_fleet
from tandem.guard.fleet_start import RaiseRequest, raise_fleet
from tandem.ops.stop_paths import StopPath
from tandem.run.cluster import RefusedCallError
from tandem.run.jobs import RUN_LABEL
from tandem.run.run_keys import JUDGMENT_FILE, results_prefix

SUSPENDED_JOB = {"spec": {"suspend": True, "template": {"spec": {}}}}


def live(world, **request):
    world.ask(**request)
    record = world.live()
    assert world.is_empty or world.account.read("stop.json") is not None
    assert not world.account.alive
    return record["state"], record["reason"]


NO_ARTIFACTS = set(MODELS.values())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"gives_nodes": False},
            "0 of 1 nodes are ready after 20 min: the node group is ACTIVE, i-",
        ),
        ({"node_devices": 15}, ".* shows 15 of 16 devices"),
        ({"startup_taint_s": math.inf}, ".* has the taint s3.csi.aws.com/agent-not-ready"),
        ({"stored": NO_ARTIFACTS, "gives_labels": False}, "no node has the labels"),
        (
            {"stored": NO_ARTIFACTS, "scripts": {"compile": PodScript(run_s=60, exit_code=1)}},
            "Job compile-qwen3-32b-",
        ),
        (
            {"scripts": {VARIANT: PodScript(ready_after_s=60, crashes=50)}},
            f"{VARIANT} was restarted 3 times and is not ready",
        ),
        (
            {"scripts": {VARIANT: PodScript(ready_after_s=100_000)}},
            f"{VARIANT} is not ready after 75 min",
        ),
    ],
    ids=["no node", "a device", "a taint", "no label", "no compile", "crashes", "no answer"],
)
def test_what_never_comes_ends_the_run(settings, words):
    state, reason = live(VirtualWorld(**{"stored": FULL_BUCKET, **settings}))
    assert state == "ended"
    assert re.match(words, reason), reason


def test_compile_leaves_nothing():
    world = VirtualWorld(stored=NO_ARTIFACTS)
    world._leave_files = lambda _pod: None
    assert "the bucket lacks" in live(world)[1]


def add_argument(world):
    """Let a server have an argument that is not declared."""
    body = world.store.get_object("deployments", NAMESPACE, VARIANT)
    body["spec"]["template"]["spec"]["containers"][0]["args"].append("--enforce-eager")
    world.store.replace_object("deployments", NAMESPACE, VARIANT, body)


def test_edited_argument_is_named_before_anything_is_measured():
    world = VirtualWorld(stored=FULL_BUCKET)
    add_argument(world)
    state, reason = live(world)
    assert state == "ended"
    assert (
        f'what runs is not what is declared: {VARIANT}: arguments: ["--enforce-eager"] runs, [] is'
        in reason
    )


def scale_to_two(world):
    """Let a second pod wait: no node takes it beside the first."""
    world.store.patch_object("deployments", NAMESPACE, VARIANT, {"spec": {"replicas": 2}})


@pytest.mark.parametrize(
    ("change", "words"), [(add_argument, "arguments"), (scale_to_two, "has 2 pods and")]
)
def test_servers_that_change_in_the_middle_void_the_run(change, words):
    world = reach("round-00001")
    change(world)
    record = world.live()
    assert record["state"] == "void"
    assert world.is_empty
    assert words in record["reason"]


def test_sync_in_the_middle_changes_nothing():
    world = reach("round-00001")
    for body in world.rendered:
        if body["kind"] in {"Deployment", "Service"}:
            kind = f"{body['kind'].lower()}s"
            world.store.patch_object(kind, NAMESPACE, body["metadata"]["name"], body)
    assert world.live()["state"] == "judged"


@pytest.mark.parametrize(
    ("step", "state", "most_hours"), [("check", "failed", 1.25), ("judge", "failed", 0.5)]
)
def test_job_that_no_node_takes_ends_the_run(step, state, most_hours):
    world = reach(step)
    world.store.remove_object("nodes", "", "system-1")
    record = world.live()
    assert record["state"] == state
    assert "its pod did not start in 15 min" in record["reason"]
    assert record["node_s"] < most_hours * 3600


@pytest.mark.parametrize("hours", [3, 8])
def test_llmperf_that_hangs_is_skipped(hours):
    world = VirtualWorld(stored=FULL_BUCKET)
    world.scripts["qwen-llmperf"] = PodScript(run_s=None)
    world.ask(llmperf=True, hours=hours)
    assert world.live()["state"] == "judged"
    assert world.find_step("llmperf")[1] == "skipped"


def test_unarmed_path_is_refused_before_the_raise():
    world = VirtualWorld(stored=FULL_BUCKET, paths=[StopPath("reaper", "unarmed", "silent")])
    state, reason = live(world)
    assert state == "ended"
    assert "reaper: silent" in reason
    assert not world.account.machines


def test_unarmed_path_may_be_accepted():
    world = VirtualWorld(stored=FULL_BUCKET, paths=[StopPath("reaper", "unarmed", "silent")])
    assert live(world, accept_unarmed=True)[0] == "judged"


def live_after_a_stop(world):
    """Let a person stop the fleet; return the record at the run's end."""
    guard = world.runner.world.guard
    stop_fleet(
        world.account.clients,
        guard,
        who="berta",
        why="enough",
        run=None,
        now=world.account.now,
    )
    return world.live()


def test_fence_of_a_stop_ends_the_run():
    world = reach("round-00001")
    record = live_after_a_stop(world)
    assert (record["state"], record["reason"]) == ("ended", "berta stopped the fleet: enough")
    assert not world.account.alive


@pytest.mark.parametrize(
    "step",
    [
        "stage",
        "compile",
        "ready",
        "round-00002",
        *(
            pytest.param(step, marks=pytest.mark.proof)
            for step in ("raise", "node", "label", "serve", "check", "judge")
        ),
    ],
)
def test_cancel_in_every_step(step):
    world = reach(step, stored=set())
    world.ask("cancel", who="AROAOTHER:berta")
    record = world.live()
    assert (record["state"], record["cancelled_by"]) == ("cancelled", "AROAOTHER:berta")
    assert world.is_empty


@pytest.mark.parametrize(
    "step",
    [
        "raise",
        "label",
        "serve",
        "judge",
        *(
            pytest.param(step, marks=pytest.mark.proof)
            for step in ("stage", "node", "compile", "ready", "round-00002")
        ),
    ],
)
def test_stop_in_every_step(step):
    world = reach(step, stored=set())
    record = live_after_a_stop(world)
    assert record["state"] in {"ended", "judged"}
    assert not world.account.alive
    assert not world.store.list_objects("jobs")


def test_kubernetes_that_answers_nothing_for_ten_minutes():
    world = reach("round-00001")
    world.cluster_down = True
    for _ in range(30):
        world.look()
    world.cluster_down = False
    assert world.live()["state"] == "judged"


@pytest.mark.proof
def test_kubernetes_that_never_answers_again_leaves_no_instance():
    world = reach("round-00001")
    world.cluster_down = True
    for _ in range(3 * 60 * 24):
        world.look()
        if not world.account.alive:
            break
    assert not world.account.alive


def test_s3_down_for_ten_minutes():
    world = reach("round-00001")
    world.account.down = {"s3"}
    for _ in range(30):
        world.look()
    world.account.down = set()
    assert world.live()["state"] == "judged"


def test_other_specs_end_the_run():
    world = reach("round-00001")
    request = world.read_run()["request"]
    world.account.change(f"runs/{RUN}/run.json", request=request | {"spec_digest": "0" * 16})
    world.runner = world.start_runner()
    assert "other specs" in world.live()["reason"]


def test_topic_that_refuses_delays_the_end_for_a_while():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.account.down = {"sns"}
    world.ask()
    record = world.live()
    assert record["state"] == "judged"
    assert world.is_empty
    assert "people were not told" in world.find_step("end")[2]


def test_second_run_waits_for_nobody():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.ask()
    world.look()
    answer = world.hear(run="post-2")
    assert answer["is_accepted"] is False
    assert answer["reason"] == f"run {RUN} of {WHO} is at work"


def test_run_whose_experiment_is_gone_ends_its_lease():
    world = reach("round-00001")
    forget_experiment(world)
    world.look()
    assert world.read_run()["reason"] == "the environment hosts no experiment gone any more"
    assert not world.account.alive
    assert not world.account.schedules


def forget_experiment(world):
    """Let a new runner find a run whose experiment nobody declares, and a Job of it."""
    world.api.create_job(
        "tandem-gone", {"metadata": {"name": "late", "labels": {RUN_LABEL: RUN}}, **SUSPENDED_JOB}
    )
    world.account.change(f"runs/{RUN}/run.json", experiment="gone")
    world.runner = world.start_runner()


def test_jobs_of_a_run_whose_experiment_is_gone_are_deleted():
    world = reach("round-00001")
    forget_experiment(world)
    world.look()
    assert world.store.list_objects("jobs", "tandem-gone") == []


def test_undeletable_jobs_are_told_with_their_command(monkeypatch):
    world = reach("round-00001")
    forget_experiment(world)

    def refuse(*_):
        raise RefusedCallError(
            "Kubernetes refused to delete job tandem-gone/late: 403",
            change="see docs/run-faults.md",
        )

    monkeypatch.setattr(world.api, "delete_job", refuse)
    world.look()
    command = f"kubectl -n tandem-gone delete jobs -l tandem.run/id={RUN}"
    assert world.read_run()["reason"].endswith(f"an admin deletes the run's Jobs: {command}")


def test_round_lasts_until_its_job_stored_it():
    world = reach("round-00001")
    world.has_reaper = False
    world.live(until=lambda seen: "begins" in seen.find_step("round-00001")[2])
    world.pass_time(3600)  # nobody looks
    world.live(until=at_step("round-00002"))
    assert world.find_step("round-00001")[2].endswith("requests in 2.5 min")


def test_round_that_recorded_too_little_does_not_count():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.count_requests = lambda _task: 5
    state, reason = live(world)
    assert state == "failed"
    assert "recorded 5 of 36 requests" in reason


def test_unwritten_raise_ends_all_the_same():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.ask()
    world.live(until=lambda seen: seen.account.alive)
    # as where the runner was killed before
    world.account.change(f"runs/{RUN}/run.json", leases=[])
    world.ask("cancel")
    world.runner = world.start_runner()
    assert world.live()["state"] == "cancelled"
    assert world.is_empty


def test_group_that_is_updating_is_waited_for():
    world = reach("raise")
    world.account.group["status"] = "UPDATING"
    for _ in range(5):
        world.look()
    assert "waits for EKS: the node group is UPDATING" in world.find_step("raise")[2]
    world.account.group["status"] = "ACTIVE"
    assert world.live()["state"] == "judged"


def test_cancel_that_comes_after_the_verdict_is_stored_keeps_it():
    world = reach("judge")
    judgment_key = results_prefix("post", RUN) + JUDGMENT_FILE
    world.live(until=lambda seen: judgment_key in seen.account.objects)
    world.ask("cancel")
    record = world.live()
    assert (record["state"], record["verdict"]) == ("judged", "qwen-sd-vllm is faster")


def test_end_that_meets_a_conflict_is_tried_again():
    world = reach("round-00001")
    world.ask("cancel")
    world.live(until=at_step("end"))
    world.account.refuses = {"s3.put_object": ["", "PreconditionFailed"] * 4}
    assert world.live()["state"] == "cancelled"
    assert world.is_empty


@pytest.mark.parametrize("until", ["judge", "compile"])
def test_run_refused_for_another_lease_leaves_its_servers(until):
    world = VirtualWorld(stored=NO_ARTIFACTS)
    labels = {"workload": "neuron-inference"}
    request = RaiseRequest(
        run="by-hand", hours=4, nodes=1, experiment="post", node_labels=labels, who="ada"
    )
    raise_fleet(world.account.clients, GUARD, request, world.account.now)
    world.store.patch_object("deployments", NAMESPACE, BASELINE, {"spec": {"replicas": 1}})
    world.ask(until=until)
    record = world.live()
    assert record["state"] == "ended"
    assert "run by-hand of ada has the fleet" in record["reason"]
    assert world.store.get_object("deployments", NAMESPACE, BASELINE)["spec"]["replicas"] == 1


@pytest.mark.parametrize("replicas", [1, 2])
def test_llmperf_counts_only_on_servers_that_stay_as_they_were(replicas):
    world = VirtualWorld(stored=FULL_BUCKET)
    world.ask(llmperf=True)
    world.live(
        until=lambda world: world.store.list_objects(
            "jobs", label_selector="app.kubernetes.io/name=qwen-llmperf"
        )
    )
    if replicas == 1:
        world.delete_server(BASELINE)
    else:
        world.store.patch_object("deployments", NAMESPACE, BASELINE, {"spec": {"replicas": 2}})
    assert world.live()["state"] == "judged"
    state, note = world.find_step("llmperf")[1:]
    assert state == "skipped"
    assert note.startswith(f"llmperf does not count: {BASELINE}")
    assert not world.judged.llmperf_job
