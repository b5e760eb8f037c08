"""A whole run by real processes: the command line, the runner, its Jobs, simulated servers, and faults among them."""

from __future__ import annotations

import itertools
import json

import pytest

from rehearsal.run.settings import RehearsalSettings, RunFaults
from rehearsal.run.world import RunWorld
from tandem.guard.fence import FENCE_KEY
from tandem.run.run_keys import run_record_key

pytestmark = [pytest.mark.endpoint, pytest.mark.proof, pytest.mark.xdist_group("run-life")]
SETTINGS = RehearsalSettings(environment="post-us-east-2", experiment="post", time_scale=20)
_NUMBER = itertools.count()


@pytest.fixture(scope="module")
def world(account, tmp_path_factory):
    world = RunWorld(account, SETTINGS, tmp_path_factory.mktemp("world"))
    world.write_inputs()
    with world:
        world.wait_for_runner()
        yield world


@pytest.fixture
def run(world):
    """Run the experiment with faults; its record, and the command's exit code."""

    def act(*options: str, **faults):
        name = f"life-{next(_NUMBER)}"
        world.set_faults(RunFaults(**faults))
        words = [
            "post",
            "--env",
            "post-us-east-2",
            "--hours",
            "6",
            "--run",
            name,
            "--yes",
            "--accept-unarmed",
            "--quick",
        ]
        result = world.account.run_tandem("run", *words, "--rounds", "1", *options, capture_output=True, timeout=400)
        world.set_faults(RunFaults())
        assert (world.list_fleet(), world.has_object(FENCE_KEY)) == ([], False), result.stdout + result.stderr
        key = f"{world._guard.prefix}{run_record_key(name)}"
        assert world.has_object(run_record_key(name)), result.stdout + result.stderr
        body = world.account.endpoint.client("s3").get_object(Bucket=world._guard.bucket, Key=key)["Body"]
        return json.load(body), result

    return act


def test_a_run_is_judged_and_ends_at_zero(run, world):
    before = world.count_node_minutes()
    record, result = run()
    assert (record["state"], result.returncode) == ("judged", 0), result.stdout + result.stderr
    assert "SIMULATED" in record["verdict"]
    calls = [(user, status) for user, _, status in world.live.server.calls if "runner" in user]
    assert calls
    assert {status for _, status in calls}.isdisjoint({401, 403})
    assert abs(record["node_s"] / 60 - (world.count_node_minutes() - before)) < 1


@pytest.mark.parametrize(
    ("faults", "words"),
    [({"second_replica": "qwen-vllm"}, "2 pods"), ({"crashing_server": "qwen-vllm"}, "restarted")],
    ids=["second-replica", "crash-loop"],
)
def test_a_fault_ends_a_run_with_its_reason(run, faults, words):
    record, result = run(**faults)
    assert (record["state"] in {"ended", "void"}, words in record["reason"]) == (True, True), result.stdout


@pytest.mark.parametrize("component", ["runner", "bench"])
def test_a_killed_process_costs_no_verdict(run, component):
    record, result = run(killed_component=component, moment="bench", moment_s=1)
    assert record["state"] in {"judged", "void"}, result.stdout + result.stderr


def test_an_api_that_answers_503_for_a_while_costs_no_verdict(run):
    record, result = run(api_status=503, api_calls=20)
    assert record["state"] == "judged", result.stdout + result.stderr
