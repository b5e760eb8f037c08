"""The nodes of a run take other labels: the lease says so first, and nobody else's nodes are
touched."""

from __future__ import annotations

import pytest
from guard_world import GUARDED, LABEL

from tandem.errors import ExternalError, InputError
from tandem.guard.apply import run_reaper_pass
from tandem.guard.lease import lease_key
from tandem.guard.node_labels import relabel_nodes

COMPILE = {"compile.tandem/experiment": "first"}


@pytest.fixture
def relabel(world):
    return lambda run="r1", label=COMPILE: relabel_nodes(
        world.clients, GUARDED, run=run, node_labels=label, now=world.now
    )


def test_nodes_take_the_labels_and_lose_the_former_ones(world, start, relabel):
    start("r1")
    relabel()
    assert world.group["labels"] == {"workload": "neuron-inference", **COMPILE}


def test_the_lease_names_both_labels(world, start, relabel):
    start("r1")
    relabel()
    lease = world.read(lease_key("r1"))
    assert (lease["node_label"], lease["former_label"]) == (COMPILE, LABEL)


def test_the_lease_is_written_before_the_nodes(world, start, relabel):
    start("r1")
    labels = []

    def between(operation):
        if operation == "eks.update_nodegroup_config":
            labels.append(world.read(lease_key("r1"))["node_label"])

    world.between = between
    relabel()

    assert labels == [COMPILE]


@pytest.mark.parametrize("dies", [False, True])
def test_the_reaper_takes_neither_label_for_a_strangers(world, start, relabel, dies):
    start("r1")
    world.down = {"eks.update_nodegroup_config"} if dies else set()
    if dies:
        with pytest.raises(ExternalError, match="relabelling failed"):
            relabel()
    else:
        relabel()

    assert run_reaper_pass(world.clients, GUARDED, world.now).plan.reasons == ()


def test_a_relabel_that_failed_is_done_by_the_next(world, start, relabel):
    start("r1")
    world.refuses = {"eks.update_nodegroup_config": ["ResourceInUseException"]}
    with pytest.raises(ExternalError):
        relabel()
    relabel()

    assert world.group["labels"] == {"workload": "neuron-inference", **COMPILE}


def test_the_labels_that_nodes_have_are_not_set_again(world, start, relabel):
    start("r1")
    relabel(label=LABEL)
    assert world.calls["eks.update_nodegroup_config"] == 1


def test_another_runs_nodes_keep_their_labels(world, start, relabel):
    start("r1")
    with pytest.raises(InputError, match="run r2 has no live lease: run r1 has it"):
        relabel("r2")
    assert world.group["labels"]["raise.tandem/fast"] == "first"


def test_a_run_behind_a_fence_is_not_relabelled(start, halt, relabel):
    start("r1")
    halt()
    with pytest.raises(InputError, match="run r1 has no live lease"):
        relabel()


def test_a_relabel_that_slept_touches_nobody_elses_nodes(world, start, halt, passes, lift, relabel):
    start("r1")

    world.interrupt(lambda: (halt(), passes(10), lift(), start("r2")), "s3.put_object")
    with pytest.raises(InputError, match="somebody changed the lease"):
        relabel()
    assert world.group["labels"]["raise.tandem/fast"] == "first"
