"""Guard's template at the local AWS endpoint: its functions, called through Lambda, stop a fleet
that EC2 lists."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from assemblies import changed, environment, synth_alone

from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.fleet_behavior import FleetBehavior
from stacks.guard import GuardStack
from tandem.declarations import names
from tandem.declarations.environment import Environment

pytestmark = [
    pytest.mark.cdk,
    pytest.mark.endpoint,
    pytest.mark.xdist_group("guard-deployed"),
    pytest.mark.proof,
]

ACCOUNT = "333344445555"
REGION = "us-east-2"
PLACE = changed(
    environment("post-us-east-2"),
    name="guarded",
    account=ACCOUNT,
    capacity={"kind": "on-demand", "reservation_id": None, "block": None},
)
WAIT_S = 20.0


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("guarded")
    return synth_alone(PLACE, folder, GuardStack, environment=PLACE), folder


@pytest.fixture(scope="module")
def deployed(template: tuple[dict[str, Any], Path]) -> Iterator[Deployed]:
    with AwsEndpoint(account=ACCOUNT, region=REGION, report=lambda _: None) as endpoint:
        endpoint.set_fleet(FleetBehavior(start_delay_s=0.1, stop_delay_s=0.1))
        result = Deployed(endpoint, PLACE)
        result.deploy(*template)
        yield result


class Deployed:
    """The stack, a cluster with a node group beside it, and what EC2 lists."""

    def __init__(self, endpoint: AwsEndpoint, place: Environment) -> None:
        self.endpoint = endpoint
        self.place = place
        self.eks, self.s3, self.lambda_ = (
            endpoint.client(name) for name in ("eks", "s3", "lambda")
        )

    def deploy(self, template: dict[str, Any], folder: Path) -> None:
        here = {"LocationConstraint": REGION}
        self.s3.create_bucket(Bucket=names.bucket_name(self.place), CreateBucketConfiguration=here)
        self.s3.create_bucket(Bucket="assets", CreateBucketConfiguration=here)
        for resource in template["Resources"].values():
            if resource["Type"] == "AWS::Lambda::Function":
                key = resource["Properties"]["Code"]["S3Key"]
                (asset,) = folder.glob(f"**/asset.{key.removesuffix('.zip')}")
                self.s3.put_object(Bucket="assets", Key=key, Body=zipped(asset))
                resource["Properties"]["Code"]["S3Bucket"] = "assets"
        plain = {name: template[name] for name in ("Resources",)}
        cloudformation = self.endpoint.client("cloudformation")
        cloudformation.create_stack(
            StackName="guarded-Guard",
            TemplateBody=json.dumps(plain),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        cloudformation.get_waiter("stack_create_complete").wait(
            StackName="guarded-Guard", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )
        nodes = f"arn:aws:iam::{ACCOUNT}:role/nodes"
        self.eks.create_cluster(
            name=names.cluster_name(self.place), roleArn=nodes, resourcesVpcConfig={}
        )
        self.eks.create_nodegroup(
            clusterName=names.cluster_name(self.place),
            nodegroupName=names.node_group_name(self.place),
            subnets=["subnet-1"],
            nodeRole=nodes,
            scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": 2},
            tags=names.resource_tags(self.place),
        )

    def instances(self) -> list[str]:
        wanted_values = [
            {"Name": "tag:eks:nodegroup-name", "Values": [names.node_group_name(self.place)]}
        ]
        listed_reservations = self.endpoint.client("ec2").describe_instances(Filters=wanted_values)[
            "Reservations"
        ]
        result = [
            instance["State"]["Name"]
            for reservation in listed_reservations
            for instance in reservation["Instances"]
        ]
        return sorted(state for state in result if state != "terminated")

    def until(self, wanted: list[str]) -> list[str]:
        end = time.monotonic() + WAIT_S
        while (result := self.instances()) != wanted and time.monotonic() < end:
            time.sleep(0.05)
        return result

    def raised(self) -> None:
        self.eks.update_nodegroup_config(
            clusterName=names.cluster_name(self.place),
            nodegroupName=names.node_group_name(self.place),
            scalingConfig={"minSize": 0, "desiredSize": 2},
        )
        assert self.until(["running"] * 2) == ["running"] * 2

    def call(self, what: Any, event: dict[str, Any]) -> dict[str, Any]:
        answer = self.lambda_.invoke(
            FunctionName=names.guard_function_name(self.place, what),
            Payload=json.dumps(event).encode(),
        )
        document: dict[str, Any] = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, document
        return document

    def fence(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(
            self.s3.get_object(Bucket=names.bucket_name(self.place), Key="stop.json")["Body"].read()
        )
        return document


def zipped(folder: Path) -> bytes:
    packed_buffer = io.BytesIO()
    with zipfile.ZipFile(packed_buffer, "w") as archive:
        for path in sorted(folder.rglob("*.py")):
            archive.write(path, path.relative_to(folder))
    return packed_buffer.getvalue()


def test_the_stop_function_fences_and_ends_every_instance_and_the_reaper_says_that_they_are_gone(
    deployed: Deployed,
) -> None:
    deployed.raised()

    deployed.call("stop", {"who": "anna", "why": "enough"})

    assert deployed.until([]) == []
    assert (deployed.fence()["who"], deployed.fence()["why"]) == ("anna", "enough")
    deployed.call("reap", {})
    assert deployed.fence()["state"] == "stopped"
