"""A list of AWS that never ends keeps no stop from its work."""

from __future__ import annotations

import itertools

import pytest
from botocore.exceptions import PaginationError
from guard_world import GUARDED, Paginator

from tandem.guard.apply import stop_fleet
from tandem.guard.pager import iterate_pages

TAGS = {"eks:cluster-name": GUARDED.cluster, "eks:nodegroup-name": GUARDED.node_group}
FILTERS = [{"Name": f"tag:{tag}", "Values": [value]} for tag, value in TAGS.items()]


def test_a_list_has_so_many_pages_at_most(world):
    world.want(2)  # an instance a page
    assert (
        len(
            list(
                iterate_pages(world.clients.ec2, "describe_instances", max_pages=2, Filters=FILTERS)
            )
        )
        == 2
    )
    with pytest.raises(PaginationError, match="more than 1 pages"):
        list(iterate_pages(world.clients.ec2, "describe_instances", max_pages=1, Filters=FILTERS))


def test_a_stop_goes_on_where_the_list_of_instances_does_not_end(world, start):
    start("r1", nodes=2)
    clients = world.clients
    tokens = itertools.count()
    endless = Paginator(lambda **_: {"Reservations": [], "NextToken": str(next(tokens))})
    clients.ec2.get_paginator = lambda _: endless

    report = stop_fleet(clients, GUARDED, who="anna", why="enough", run=None, now=world.now)
    assert world.desired_size == 0
    assert "more than 200 pages" in report.fleet.unknown["instances"]
