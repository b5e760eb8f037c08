"""What the runner may do in the cluster, against what it does in its lives: equal, both ways."""

from __future__ import annotations

from virtual_world import VirtualWorld

from tandem.ops.people.cluster_rights import RUNNER_CLUSTER_RIGHTS


def test_cluster_rights_are_the_calls_that_are_made():
    world = VirtualWorld()  # stages, compiles, restarts, runs llmperf, judges
    world.ask(starts=2, llmperf=True)
    assert world.live()["state"] == "judged"
    rows = {(verb, resource) for right in RUNNER_CLUSTER_RIGHTS for resource in right.resources for verb in right.verbs}
    assert world.api.calls == rows


def test_no_right_to_patch_nodes():
    assert not [right for right in RUNNER_CLUSTER_RIGHTS if "nodes" in right.resources and set(right.verbs) != {"list"}]
