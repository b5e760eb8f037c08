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
