"""The account in memory does what its other tests rest on, and refuses what AWS refuses."""

from __future__ import annotations

import pytest
from botocore.exceptions import EndpointConnectionError
from guard_world import GUARDED

from tandem.guard.bucket import write_object


def test_a_lost_answer_is_that_of_a_call_that_was_done(world):
    world.loses = 1
    with pytest.raises(EndpointConnectionError):
        write_object(world.clients, GUARDED, "stop.json", {}, etag="")
    assert world.read("stop.json") == {"schema": 1}


def test_a_write_on_a_condition_that_does_not_hold_is_refused(world):
    first = write_object(world.clients, GUARDED, "stop.json", {"is": 1}, etag="")

    assert write_object(world.clients, GUARDED, "stop.json", {"is": 2}, etag="") is None
    assert write_object(world.clients, GUARDED, "stop.json", {"is": 3}, etag=first)
    assert write_object(world.clients, GUARDED, "stop.json", {"is": 4}, etag=first) is None
    assert world.read("stop.json") == {"schema": 1, "is": 3}
