"""What each server gets of the options: one value for all, or its own."""

from __future__ import annotations

import pytest

from tandem.bench.plan.run_options import RunOptions
from tandem.errors import InputError

APART = {"base": "http://10.0.0.5:8000", "spec": "http://10.0.0.6:8000"}
TOGETHER = {"base": "http://10.0.0.5:8000/a", "spec": "http://10.0.0.5:8000/b"}


def test_a_key_for_all_reaches_servers_of_one_address():
    access = RunOptions(servers=TOGETHER, api_key="k-1234567").list_access()
    assert {name: entry.api_key for name, entry in access.items()} == {
        "base": "k-1234567",
        "spec": "k-1234567",
    }


def test_a_key_for_all_is_refused_at_two_addresses():
    with pytest.raises(InputError, match="at several addresses") as refusal:
        RunOptions(servers=APART, api_key="k-1234567")
    assert "k-1234567" not in str(refusal.value)


def test_a_server_without_a_key_of_its_own_gets_none():
    access = RunOptions(servers=APART, api_key={"base": "k-1234567"}).list_access()
    assert access["spec"].api_key is None


def test_fields_by_server_go_to_that_server():
    bodies = RunOptions(servers=APART, extra_body={"spec": {"top_p": 0.9}}).list_bodies()
    assert bodies == {"base": {}, "spec": {"top_p": 0.9}}


def test_forced_lengths_reach_every_server():
    bodies = RunOptions(servers=APART, ignore_eos=True).list_bodies()
    assert bodies == {"base": {"ignore_eos": True}, "spec": {"ignore_eos": True}}


@pytest.mark.parametrize("count", [0, 1001, True])
def test_a_window_that_nobody_drafts_is_refused(count):
    with pytest.raises(InputError, match="speculates"):
        RunOptions(servers=APART, speculates={"spec": count})
