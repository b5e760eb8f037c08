"""A list of AWS that never ends keeps no stop from its work."""

from __future__ import annotations

import pytest
from guard_world import GUARDED

from tandem.guard.apply import stop_fleet
from tandem.guard.pager import PagingError, iterate_pages


def pages_of(tokens):
    """A list operation whose answers carry these tokens."""
    left = iter(tokens)

    def ask(**_request):
        token = next(left)
        return {"NextToken": token} if token else {}

    return ask


def test_a_token_that_comes_twice_ends_the_list():
    with pytest.raises(PagingError, match="NextToken came twice"):
        list(iterate_pages(pages_of(["a", "a", "a"])))


def test_a_list_has_so_many_pages_at_most():
    with pytest.raises(PagingError, match="more than 3 pages"):
        list(iterate_pages(pages_of("abcdefg"), max_pages=3))


def test_a_list_of_just_so_many_pages_is_read():
    assert len(list(iterate_pages(pages_of(["a", "b", None]), max_pages=3))) == 3


def test_the_request_goes_with_every_page():
    requests = []

    def ask(**request):
        requests.append(request)
        return {"NextToken": "a"} if len(requests) == 1 else {}

    list(iterate_pages(ask, GroupName="g"))
    assert requests == [{"GroupName": "g"}, {"GroupName": "g", "NextToken": "a"}]


def test_a_stop_goes_on_where_the_list_of_instances_does_not_end(world, start):
    start("r1", nodes=2)
    clients = world.clients
    clients.ec2.describe_instances = lambda **_: {"Reservations": [], "NextToken": "again"}

    report = stop_fleet(clients, GUARDED, who="anna", why="enough", run=None, now=world.now)
    assert world.group["scalingConfig"]["desiredSize"] == 0
    assert "the list does not end" in report.fleet.unknown["instances"]
