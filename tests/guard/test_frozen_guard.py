"""Lease, pointer and fence that commit 59a2544 wrote are read, stopped and lifted: tests/frozen/objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from guard_world import GUARDED

from tandem.errors import InputError
from tandem.guard.fence import FENCE_FIELDS, FENCE_KEY
from tandem.guard.lease import LEASE_FIELDS, POINTER_KEY, lease_key
from tandem.guard.observe import observe_fleet
from tandem.guard.values import select_json_fields

SITUATIONS = json.loads((Path(__file__).parents[1] / "frozen" / "objects" / "guard_59a2544.json").read_text())
ALIVE = ("live", "relabelled", "ending", "stopping", "suspended")
FENCED = ("stopping", "suspended", "stopped", "excess")


@pytest.fixture
def meet(world):
    """Put the account into a situation of the file."""

    def act(name):
        found = SITUATIONS[name]
        world.advance(found["minutes"])
        world.group["labels"] = dict(found["labels"])
        world.size({"minSize": 0, "desiredSize": found["nodes"]})
        for key, body in found["objects"].items():
            world.put(key, body)
        return found["objects"]

    return act


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_field_of_a_frozen_lease_is_read(world, meet, name):
    objects = meet(name)
    seen = observe_fleet(world.clients, GUARDED, world.now)

    assert seen.pointer.run == objects[POINTER_KEY]["run"]
    assert seen.faults == ()
    if seen.lease:
        assert {"schema": 2, **select_json_fields(seen.lease, *LEASE_FIELDS)} == objects[lease_key("r1")]


@pytest.mark.parametrize("name", [*FENCED, "lifted"])
def test_every_field_of_a_frozen_fence_is_read(world, meet, name):
    objects = meet(name)
    fence = observe_fleet(world.clients, GUARDED, world.now).fence
    assert {"schema": 1, **select_json_fields(fence, *FENCE_FIELDS)} == objects[FENCE_KEY]


@pytest.mark.parametrize("name", ALIVE)
def test_a_stop_ends_a_frozen_fleet(world, meet, halt, passes, name):
    meet(name)
    halt()
    passes(30)
    assert world.alive == []


@pytest.mark.parametrize("name", FENCED)
def test_a_frozen_fence_forbids_a_start(meet, start, name):
    meet(name)
    with pytest.raises(InputError, match=r"stop\.json: fenced by"):
        start("r2")


@pytest.mark.parametrize("name", ["live", "relabelled"])
def test_a_frozen_live_lease_forbids_a_start(meet, start, name):
    meet(name)
    with pytest.raises(InputError, match="r1"):
        start("r2")


@pytest.mark.parametrize("name", ["stopped", "excess"])
def test_a_frozen_fence_is_lifted(meet, lift, start, name):
    meet(name)
    lift()
    start("r2")
