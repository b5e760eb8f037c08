"""What the runner may do in the cluster, against what it does in its lives: equal, both ways."""

from __future__ import annotations

from datetime import timedelta

from fleet_seen import fence_objects
from guard_world import SCALING_GROUP, START
from virtual_world import VirtualWorld

from tandem.guard.fence import FENCE_KEY
from tandem.ops.people.cluster_rights import RUNNER_CLUSTER_RIGHTS
from tandem.ops.people.rights import RUNNER_RIGHTS
from tandem.ops.stop_paths import StopPath


def test_cluster_rights_are_the_calls_that_are_made():
    world = VirtualWorld()  # stages, compiles, restarts, runs llmperf, judges
    world.ask(starts=2, llmperf=True)
    assert world.live()["state"] == "judged"
    rows = {
        (verb, resource)
        for right in RUNNER_CLUSTER_RIGHTS
        for resource in right.resources
        for verb in right.verbs
    }
    assert world.api.calls == rows


def test_no_right_to_patch_nodes():
    assert not [
        right
        for right in RUNNER_CLUSTER_RIGHTS
        if "nodes" in right.resources and set(right.verbs) != {"list"}
    ]


# what the look at bucket and stops asks besides: the first by tandem.artifacts, the others by
# tandem.ops.stop_paths; STS is asked by no step, and its call needs no right; only a run with a
# file of prompts asks for the size of one
ASKED_ELSEWHERE = {
    ("budgets", "DescribeBudget"),
    ("budgets", "DescribeNotificationsForBudget"),
    ("budgets", "DescribeSubscribersForNotification"),
    ("cloudwatch", "GetMetricStatistics"),
    ("lambda", "GetFunctionConfiguration"),
    ("s3", "HeadObject"),
    ("sts", "GetCallerIdentity"),
}


def test_account_rights_are_the_calls_that_are_made():
    world = VirtualWorld(has_reaper=False)  # whose calls are not the runner's
    # whose end every look reads from EC2
    world.account.deploy_block(START, START + timedelta(days=1))
    world.account.suspended = {"Launch"}  # by a stop that was lifted since
    lifted_at = START - timedelta(hours=1)
    fence = fence_objects(state="lifted", at=lifted_at, suspended=(SCALING_GROUP,))
    world.account.put(FENCE_KEY, fence[FENCE_KEY])
    world.paths = [StopPath("reaper", "unarmed", "silent")]
    world.ask(starts=2, accept_unarmed=True)
    assert world.live()["state"] == "judged"
    names = (name.split(".") for name in world.account.calls if not name.startswith("kubernetes."))
    calls = {
        (service, "".join(map(str.title, operation.split("_")))) for service, operation in names
    }
    rights = {(right.call.service, right.call.operation) for right in RUNNER_RIGHTS if right.call}
    assert calls | ASKED_ELSEWHERE == rights
