"""What changes what: a change of one thing touches one template, and the same specs give the same
bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from assemblies import (
    RESERVATION,
    changed,
    hosted,
    texts,
    variants,
)

from tandem.declarations.environment import CapacityBlock

pytestmark = pytest.mark.cdk


def differing(before: Path, after: Path) -> set[str]:
    """Return the stacks whose templates differ between two assemblies, or stand in one only."""
    old = texts(before)
    new = texts(after)
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


@pytest.fixture(scope="session")
def alone(synth):
    """One environment with a reservation, by itself."""
    return synth(variants()["capacity-block"])


def test_another_synthesis_among_other_environments_gives_the_same_bytes(assembly, alone):
    mine = {
        name: text for name, text in texts(assembly).items() if name.startswith("capacity-block-")
    }
    assert mine == texts(alone)


FLEET_AND_ITS_READERS = {
    f"capacity-block-{kind}" for kind in ("Fleet", "Observability", "Workloads")
}


def test_another_block_changes_fleet_and_its_readers(synth, alone):
    starts = datetime(2026, 12, 8, 11, 30, tzinfo=UTC)
    block = CapacityBlock.model_construct(starts=starts, ends=starts + timedelta(days=1))
    capacity = {"reservation_id": "cr-0fedcba9876543210", "block": block}
    renewed_environment = changed(variants()["capacity-block"], capacity=capacity)
    assert differing(alone, synth(renewed_environment)) == FLEET_AND_ITS_READERS


@pytest.fixture(scope="session")
def two_zones(synth):
    """The environment of `alone` before it got a third zone for its block."""
    return synth(
        changed(
            variants()["capacity-block"],
            network={"zones": ("use2-az1", "use2-az2")},
            capacity={"zone": "use2-az2"},
        )
    )


def test_a_zone_for_the_next_block_touches_no_cluster_and_no_system_node(two_zones, alone):
    """EKS never lets a cluster move to other zones, and would replace a node group that gets
    another subnet."""
    assert differing(two_zones, alone) == {*FLEET_AND_ITS_READERS, "capacity-block-Network"}


def test_an_experiment_changes_its_own_two_templates_and_the_builds_it_needs(synth, alone):
    """One variant is no pair to measure by llmperf."""
    place = variants()["capacity-block"]
    (first,) = hosted(place)
    single = first.model_copy(update={"name": "single", "variants": first.variants[:1]})
    then = synth(changed(place, experiments=("single",)), experiments=[single])
    assert differing(alone, then) == {
        f"capacity-block-{kind}" for kind in ("Workloads", "Observability", "ImageLlmperf")
    }


def test_no_template_knows_a_reservation_but_fleets_and_the_runners(stacks):
    """A missing Capacity Block must never roll back the cluster; of a ConfigMap nothing is
    asked."""
    holders = {
        name.rpartition("-")[2] for name, template in stacks.items() if RESERVATION in str(template)
    }
    assert holders == {"Fleet", "Workloads"}  # a dashboard names it once its hours are said
    manifests = [
        str(resource["Properties"]["Manifest"])
        for template in stacks.values()
        for resource in template["Resources"].values()
        if RESERVATION in str(resource) and "Manifest" in resource.get("Properties", {})
    ]
    assert manifests != []
    assert all(text.count(RESERVATION) == 1 and '"name":"specs"' in text for text in manifests)
