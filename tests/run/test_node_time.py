"""Time of a lease's nodes by EC2's list, then by Auto Scaling's activities; without either the
lease says so."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from guard_world import GUARDED, World

from tandem.errors import ExternalError
from tandem.guard.observe import observe_fleet
from tandem.run.node_time import read_node_time
from tandem.run.run_values import LeaseSpan

HOURS = 8
PAID_S = 30 * 60


class NodeAccount:
    """An account whose lease had a node for half an hour.

    Args:
        ended_ago: since the node's end.
    """

    def __init__(self, ended_ago: timedelta) -> None:
        self.world = World()
        deadline = self.world.now + timedelta(hours=HOURS)
        self.lease = LeaseSpan(
            name="mine", deadline=deadline.isoformat(), raised_at=self.world.now.isoformat()
        )
        self.pay(PAID_S / 60)
        self.world.advance(ended_ago.total_seconds() / 60)

    def pay(self, minutes: float) -> None:
        """Have a node for so long."""
        self.world.size({"desiredSize": 1})
        self.world.advance(minutes)
        self.world.size({"desiredSize": 0})

    def read(self, *, is_last: bool = False):
        fleet = observe_fleet(self.world.clients, GUARDED, self.world.now)
        return read_node_time(self.world.clients, GUARDED, fleet, self.lease, is_last=is_last)

    def count_own_s(self) -> float:
        """Return the time that a runner would count by its own clock."""
        return (self.world.now - START).total_seconds()


START = World().now
SOON = timedelta(minutes=20)
LATE = timedelta(hours=5)


def replace_moments(lease, **moments):
    return msgspec.structs.replace(
        lease, **{name: moment.isoformat() for name, moment in moments.items()}
    )


def test_a_listed_instance_counts_by_ec2s_times():
    time = NodeAccount(SOON).read()
    assert (time.paid_s, time.doubt) == (PAID_S, "")


def test_a_forgotten_instance_counts_by_auto_scalings_activities():
    account = NodeAccount(LATE)
    time = account.read()
    # it lists the end when the instance is gone
    assert time.paid_s == pytest.approx(PAID_S, abs=180)
    assert time.doubt == ""


def test_the_lease_is_empty_since_the_nodes_end():
    time = NodeAccount(SOON).read()
    assert time.ended_at == START + timedelta(seconds=PAID_S)


def test_a_replaced_instance_counts_too():
    account = NodeAccount(SOON)
    account.pay(10)
    account.world.advance(5)
    assert account.read().paid_s == PAID_S + 600


def test_an_instance_of_an_earlier_lease_counts_nothing():
    account = NodeAccount(SOON)
    account.lease = replace_moments(account.lease, raised_at=account.world.now)
    assert account.read().paid_s == 0


def test_an_instance_after_the_deadline_counts_nothing():
    account = NodeAccount(SOON)
    account.lease = replace_moments(account.lease, deadline=account.world.now)
    account.world.advance(5)
    account.pay(10)
    account.world.advance(5)
    assert account.read().paid_s == PAID_S


def test_an_unlisted_end_is_told():
    account = NodeAccount(LATE)
    machine = account.world.machines[0]
    machine.gone = account.world.now  # EC2 lists it still, Auto Scaling has not seen its end
    machine.ended = None
    time = account.read()
    assert time.doubt == f"neither EC2 nor Auto Scaling lists the end of {machine.id}"
    assert time.ended_at == account.world.now


def test_a_denied_call_leaves_the_runners_own_count():
    account = NodeAccount(SOON)
    account.world.refuses = {"autoscaling.describe_scaling_activities": ["AccessDenied"]}
    time = account.read()
    assert time.paid_s == account.count_own_s()
    assert "AccessDenied" in time.doubt


def test_a_deleted_node_group_leaves_the_runners_own_count():
    account = NodeAccount(SOON)
    account.world.group = None
    time = account.read()
    assert time.paid_s == account.count_own_s()
    assert time.doubt == "AWS's times of the nodes are unknown: the node group is gone"


@pytest.mark.parametrize(
    "operation", ["autoscaling.describe_scaling_activities", "ec2.describe_instances"]
)
def test_a_fault_that_may_pass_is_tried_again(operation):
    account = NodeAccount(SOON)
    fleet = observe_fleet(account.world.clients, GUARDED, account.world.now)
    account.world.odds = {operation: 1}
    with pytest.raises(ExternalError):
        read_node_time(account.world.clients, GUARDED, fleet, account.lease, is_last=False)


def test_the_last_try_leaves_the_runners_own_count():
    account = NodeAccount(SOON)
    account.world.odds = {"autoscaling.describe_scaling_activities": 1}
    assert account.read(is_last=True).paid_s == account.count_own_s()
