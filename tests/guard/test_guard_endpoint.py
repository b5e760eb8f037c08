"""Stops and starts through boto3 at the local AWS endpoint, judged by what EC2 lists and never by
the desired size."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest
from guard_world import GUARDED, LABEL
from twin_fleet import TwinFleet
from twin_looking import until

from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.fleet_behavior import FleetBehavior
from tandem.guard.apply import run_reaper_pass, stop_fleet
from tandem.guard.config import AwsClients
from tandem.guard.fleet_start import RaiseRequest, raise_fleet
from tandem.guard.observe import OWNER_TAG

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("guard-endpoint"), pytest.mark.proof]

ACCOUNT = "222233334444"
QUICK = FleetBehavior(start_delay_s=0.1, stop_delay_s=0.1)
_NUMBER = itertools.count()


@pytest.fixture(scope="module")
def endpoint():
    with AwsEndpoint(account=ACCOUNT, region="us-east-2") as running:
        yield running


@pytest.fixture(scope="module")
def clients(endpoint, tmp_path_factory):
    """What a Lambda has: boto3 with its own retries."""
    client_environment = endpoint.client_environment(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in client_environment.items():
            patch.setenv(name, value)
        yield AwsClients.create("us-east-2")


@pytest.fixture
def scene(endpoint, clients):
    """A new environment: cluster, node group, bucket, topic, schedules; and what EC2 lists of
    it."""
    endpoint.set_fleet(QUICK)
    name = f"g{next(_NUMBER)}"
    topic = endpoint.client("sns").create_topic(Name=f"{name}-people")["TopicArn"]
    config = replace(
        GUARDED,
        environment=name,
        account=ACCOUNT,
        cluster=f"tandem-{name}",
        node_group=f"{name}-trn2",
        bucket=f"tandem-{name}",
        topic_arn=topic,
        schedule_group=f"tandem-{name}",
    )
    endpoint.client("s3").create_bucket(
        Bucket=config.bucket, CreateBucketConfiguration={"LocationConstraint": "us-east-2"}
    )
    endpoint.client("scheduler").create_schedule_group(Name=config.schedule_group)
    result = Scene(endpoint, clients, config)
    result.fleet.make(tags={OWNER_TAG: name})
    yield result
    endpoint.set_fleet()


class Scene:
    """One environment, and who acts on it."""

    def __init__(self, endpoint, clients, config):
        self.endpoint = endpoint
        self.clients = clients
        self.config = config
        self.fleet = TwinFleet(endpoint, config.cluster, config.node_group)

    def start(self):
        request = RaiseRequest(
            run="r1", hours=2, experiment="first", nodes=1, node_labels=LABEL, who="anna"
        )
        return raise_fleet(self.clients, self.config, request, self.endpoint.now())

    def halt(self):
        return stop_fleet(
            self.clients, self.config, who="anna", why="enough", run=None, now=self.endpoint.now()
        )

    def reap(self):
        return run_reaper_pass(self.clients, self.config, self.endpoint.now())

    def later(self, knobs=QUICK, **time_):
        self.endpoint.set_fleet(replace(knobs, clock_offset_s=timedelta(**time_).total_seconds()))


# machines that do not go


@pytest.mark.parametrize("knob", ["keeps_surplus", "ignores_request", "refuses_update"])
def test_what_eks_does_not_end_is_terminated_by_id(scene, knob):
    knobs = replace(QUICK, **{knob: True})
    scene.start()
    assert until(scene.fleet.states, ["running"]) == ["running"]
    scene.endpoint.set_fleet(knobs)
    scene.halt()
    between = scene.fleet.states()
    scene.later(knobs, minutes=11)
    report = scene.reap()
    scene.later(QUICK, minutes=12)
    scene.reap()

    assert between == ["running"]
    assert any(action.startswith("terminated by id: i-") for action in report.actions)
    assert until(scene.fleet.states, []) == []
