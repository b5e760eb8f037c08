"""Runs that end before they measure: what they do, what they leave, and what they never read."""

from __future__ import annotations

from datetime import datetime

import pytest
from virtual_world import (
    ARTIFACTS,
    BASELINE,
    FULL_BUCKET,
    MODELS,
    NAMESPACE,
    RUN,
    WHO,
    VirtualWorld,
)

from rehearsal.cluster.pods import PodScript
from tandem.run.cluster import RefusedCallError
from tandem.run.run_keys import answer_key, request_key, run_record_key

FREE_SERVICES = {"s3", "sns", "kubernetes"}  # what a run that only stages may call


def stage(world, **fields):
    return world.ask(until="stage", hours=0, **fields)


def refuse_job(*_):
    raise RefusedCallError("Kubernetes refused to create job: 403", change="see docs/run-faults.md")


def close_fence(world):
    moment = world.account.now.isoformat()
    world.account.put("stop.json", {"state": "closed", "who": "anna", "why": "lunch", "at": moment})


def list_states(world):
    return {step: state for step, state, _ in world.list_steps()}


@pytest.fixture(scope="module")
def staging():
    """A run until stage from an empty bucket, in an account without the Fleet stack."""
    world = VirtualWorld(has_reaper=False)  # it calls the fleet's services by itself
    world.account.group = None
    stage(world)
    world.live()
    return world


def test_staging_needs_no_fleet(staging):
    record = staging.read_run()
    assert (record["state"], record["reason"]) == ("staged", "the bucket has every model")


def test_staging_stores_the_models_alone(staging):
    assert staging.stored == set(MODELS.values())


def test_staging_takes_three_steps(staging):
    assert list_states(staging) == {"preflight": "done", "stage": "done", "end": "done"}


def test_staging_calls_nothing_of_the_fleet(staging):
    assert {call.partition(".")[0] for call in staging.account.calls} <= FREE_SERVICES


def test_staging_leaves_running_servers_alone():
    world = VirtualWorld()
    world.store.patch_object("deployments", NAMESPACE, BASELINE, {"spec": {"replicas": 1}})
    stage(world)
    world.live()
    assert world.store.get_object("deployments", NAMESPACE, BASELINE)["spec"]["replicas"] == 1


def test_staging_works_behind_a_fence():
    world = VirtualWorld()
    close_fence(world)
    stage(world)
    assert world.live()["state"] == "staged"


def test_staging_that_fails_leaves_no_job():
    world = VirtualWorld(scripts={"stage": PodScript(run_s=60, exit_code=3)})
    stage(world)
    record = world.live()
    assert (record["state"], world.store.list_objects("jobs")) == ("ended", [])


@pytest.fixture(scope="module")
def compile_run():
    """A run until compile from an empty bucket."""
    world = VirtualWorld()
    world.ask(until="compile")
    world.live()
    return world


def test_compiling_fills_the_bucket(compile_run):
    assert compile_run.read_run()["state"] == "compiled"
    assert compile_run.stored == {*MODELS.values(), *ARTIFACTS.values()}


def test_compiling_serves_nothing(compile_run):
    assert list(list_states(compile_run)) == [
        "preflight",
        "stage",
        "raise",
        "node",
        "compile",
        "end",
    ]


def test_compiling_ends_at_zero(compile_run):
    assert compile_run.is_empty


def test_compiling_needs_no_measuring_job():
    world = VirtualWorld()
    world.store.remove_object("cronjobs", NAMESPACE, "tandem-measure")
    world.ask(until="compile")
    assert world.live()["state"] == "compiled"


def test_compile_goes_on_in_another_lease():
    world = VirtualWorld(scripts={"compile": PodScript(run_s=9 * 3600)})
    world.ask(until="compile", hours=4.5)  # it holds one Job to its deadline, and not a second one
    assert world.live()["state"] == "waiting"
    world.scripts["compile"] = PodScript(run_s=60)
    world.ask("resume", until="compile")
    assert world.live()["state"] == "compiled"
    assert world.is_empty


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("run", {}),
        ("run", {"until": "compile"}),
        ("resume", {"until": "stage", "hours": 0}),
    ],
)
def test_stage_folder_takes_only_staging(kind, fields):
    world = VirtualWorld()
    operator_key = world.ask(kind, **fields)
    stem = operator_key.rpartition("/")[2].removesuffix(".json")
    key = request_key(WHO, stem, is_stage=True)
    world.account.objects[key] = world.account.objects.pop(operator_key)
    world.look()
    assert "only stage models" in world.account.read(answer_key(key))["reason"]


def test_stage_folder_cancels_a_staging():
    world = VirtualWorld(scripts={"stage": PodScript(run_s=3600)})
    stage(world)
    world.look()
    world.ask("cancel", until="stage", hours=0)
    assert world.live()["state"] == "cancelled"


def test_stage_folder_cancels_no_other_run():
    world = VirtualWorld()
    world.ask()
    world.look()
    answer = world.hear("cancel", until="stage", hours=0)
    assert "only stage models" in answer["reason"]
    assert not world.account.read(run_record_key(RUN))["cancelled_by"]


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"until": "stage", "hours": 4}, "--hours"),
        ({"until": "stage", "hours": 0, "accept_unarmed": True}, "--accept-unarmed"),
        ({"until": "compile", "starts": 2}, "--starts"),
        ({"until": "compile", "llmperf": True}, "--llmperf"),
        ({"until": "compile", "budget_usd": 10}, "--budget-usd"),
    ],
)
def test_fields_without_use_are_refused(fields, flag):
    answer = VirtualWorld().hear(**fields)
    assert answer["reason"].startswith(f"{flag}: ")


def test_compiling_nothing_works_behind_a_fence():
    world = VirtualWorld(stored=FULL_BUCKET)
    close_fence(world)
    world.ask(until="compile")
    assert world.live()["state"] == "compiled"


def test_staging_that_kubernetes_refuses_ends_after_ten_minutes():
    world = VirtualWorld()
    world.api.create_job = refuse_job
    stage(world)
    record = world.live()
    began = datetime.fromisoformat(record["started_at"])
    end = datetime.fromisoformat(record["ended_at"])
    assert record["state"] == "failed"
    assert (end - began).total_seconds() < 1000
