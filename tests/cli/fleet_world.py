"""An environment's fleet at the local endpoint, as its stacks would have made it, for start, stop
and status."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from bucket_specs import folders

from rehearsal.aws.capacity_block import CapacityBlock
from rehearsal.aws.endpoint import AwsEndpoint
from tandem.cli.program import main
from tandem.declarations import names
from tandem.declarations.arns import build_stop_topic_arn
from tandem.declarations.environment import Environment
from tandem.declarations.workspace import load_workspace
from tandem.guard.capacity_block import RESERVATION_TAG
from tandem.guard.config import GuardConfig
from tandem.guard.observe import CAPACITY_KIND_TAG, CLUSTER_TAG, NODE_GROUP_TAG
from tandem.guard.pass_metrics import FLEET_USD, INSTANCES_ALIVE
from tandem.ops.guard_config import build_guard_config

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = "post-us-east-2"
ROLE = "arn:aws:iam::111122223333:role/any"


def write_environment(specs: Path, kind: str = "on-demand", **capacity: Any) -> str:
    """Leave one environment of a new name, with the experiment `post` and nodes of this kind; its
    name."""
    name = f"e{uuid.uuid4().hex[:8]}"
    document = yaml.safe_load((ROOT / "environments" / f"{TEMPLATE}.yaml").read_text())
    document["experiments"] = ["post"]
    document["capacity"] |= {"kind": kind, "nodes": 2, **capacity}
    if kind in {"on-demand", "spot"}:
        document["capacity"]["reservation_id"] = None
    for path in (specs / "environments").iterdir():
        path.unlink()
    (specs / "environments" / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return name


@cache
def _client(url: str, service: str, make: Callable[[str], Any]) -> Any:
    assert url
    return make(service)


@cache
def _declared(specs: Path, name: str, text: bytes) -> Environment:
    assert text  # read anew when a test has written it anew
    return (
        load_workspace(specs / "environments", specs / "experiments", (name,))
        .environments[name]
        .record
    )


@dataclass(kw_only=True)
class Fleet:
    """One environment, its declared files and what of it exists."""

    endpoint: AwsEndpoint
    specs: Path
    name: str

    @property
    def environment(self) -> Environment:
        """As declared."""
        return _declared(
            self.specs, self.name, (self.specs / "environments" / f"{self.name}.yaml").read_bytes()
        )

    @property
    def guarded(self) -> GuardConfig:
        """What guards it."""
        return build_guard_config(self.environment)

    def client(self, service: str) -> Any:
        """Somebody who may do all."""
        return _client(self.endpoint.url, service, self.endpoint.client)

    def deploy(self, *, tags: dict[str, str] | None = None, group: bool = True) -> None:
        """Make what a start and a stop need."""
        mine = self.guarded
        account = self.environment.account
        self.client("s3").create_bucket(
            Bucket=mine.bucket, CreateBucketConfiguration={"LocationConstraint": mine.region}
        )
        eks = self.client("eks")
        eks.create_cluster(name=mine.cluster, roleArn=ROLE, resourcesVpcConfig={})
        if group:
            plan = self._buy_block()
            eks.create_nodegroup(
                clusterName=mine.cluster,
                nodegroupName=mine.node_group,
                subnets=["subnet-1"],
                nodeRole=ROLE,
                instanceTypes=["trn2.48xlarge"],
                scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": 2},
                tags=names.resource_tags(self.environment) | plan if tags is None else tags,
            )
        self.client("scheduler").create_schedule_group(Name=mine.schedule_group)
        self.client("sns").create_topic(Name=names.topic_name(self.environment))
        self.client("sqs").create_queue(QueueName=names.dead_letter_queue_name(self.environment))
        self.client("iam").create_role(
            RoleName=names.scheduler_role_name(self.environment),
            AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []}),
        )
        self.client("budgets").create_budget(
            AccountId=account,
            Budget={
                "BudgetName": names.budget_name(self.environment),
                "BudgetLimit": {"Amount": "2000", "Unit": "USD"},
                "TimeUnit": "MONTHLY",
                "BudgetType": "COST",
            },
        )
        self.alert(100)

    def _buy_block(self) -> dict[str, str]:
        """Let EC2 know the declared Capacity Block, if any; return the tags that Fleet gives the
        node group for it."""
        capacity = self.environment.capacity
        if capacity.kind != "capacity-block" or capacity.reservation_id is None:
            return {}
        now = datetime.now(UTC).replace(microsecond=0)
        starts = now - timedelta(hours=1)
        ends = now + timedelta(hours=23)
        if capacity.block is not None:
            starts = capacity.block.starts
            ends = capacity.block.ends
        self.endpoint.set_blocks(
            {capacity.reservation_id: CapacityBlock(starts=starts, ends=ends, nodes=2)}
        )
        return {CAPACITY_KIND_TAG: capacity.kind, RESERVATION_TAG: capacity.reservation_id}

    def alert(self, percent: float, state: str = "OK", kind: str = "ACTUAL") -> None:
        """Let the budget tell the stop function at so many percent."""
        self.client("budgets").create_notification(
            AccountId=self.environment.account,
            BudgetName=names.budget_name(self.environment),
            Notification={
                "NotificationType": kind,
                "ComparisonOperator": "GREATER_THAN",
                "Threshold": percent,
                "ThresholdType": "PERCENTAGE",
                "NotificationState": state,
            },
            Subscribers=[
                {"SubscriptionType": "SNS", "Address": build_stop_topic_arn(self.environment)}
            ],
        )

    def forget_alert(self, percent: float) -> None:
        """Take an alert of actual cost away."""
        self.client("budgets").delete_notification(
            AccountId=self.environment.account,
            BudgetName=names.budget_name(self.environment),
            Notification={
                "NotificationType": "ACTUAL",
                "ComparisonOperator": "GREATER_THAN",
                "Threshold": percent,
                "ThresholdType": "PERCENTAGE",
            },
        )

    def looked(self, *usd: float) -> None:
        """Publish what the reaper publishes at each pass, one pass for each cost."""
        data = [{"MetricName": INSTANCES_ALIVE, "Value": 0.0, "Timestamp": datetime.now(UTC)}]
        data += [
            {"MetricName": FLEET_USD, "Value": cost, "Timestamp": datetime.now(UTC)}
            for cost in usd or (0.0,)
        ]
        self.client("cloudwatch").put_metric_data(Namespace=self.guarded.namespace, MetricData=data)

    def schedules(self) -> list[str]:
        """Names of those in the guard's group."""
        group = self.guarded.schedule_group
        listing = self.client("scheduler").list_schedules(GroupName=group)["Schedules"]
        return [schedule["Name"] for schedule in listing]

    def scale(self, nodes: int) -> None:
        """Raise as somebody would who knows nothing of leases."""
        mine = self.guarded
        self.client("eks").update_nodegroup_config(
            clusterName=mine.cluster,
            nodegroupName=mine.node_group,
            scalingConfig={"minSize": 0, "desiredSize": nodes, "maxSize": 2},
        )
        self.until(["running"] * nodes)

    def instances(self) -> list[dict[str, Any]]:
        """All that EC2 lists of the node group, but for the terminated."""
        filters = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self.guarded.cluster]},
            {"Name": f"tag:{NODE_GROUP_TAG}", "Values": [self.guarded.node_group]},
        ]
        reservations = self.client("ec2").describe_instances(Filters=filters)["Reservations"]
        return [
            instance
            for reservation in reservations
            for instance in reservation["Instances"]
            if instance["State"]["Name"] != "terminated"
        ]

    def states(self) -> list[str]:
        """Their states."""
        return sorted(instance["State"]["Name"] for instance in self.instances())

    def read_node_group(self) -> dict[str, Any]:
        """What EKS says of the node group."""
        answer = self.client("eks").describe_nodegroup(
            clusterName=self.guarded.cluster, nodegroupName=self.guarded.node_group
        )
        node_group: dict[str, Any] = answer["nodegroup"]
        return node_group

    def until(self, states: list[str]) -> None:
        """Wait for these states, ten seconds at most."""
        deadline = time.monotonic() + 10
        while self.states() != states:
            assert time.monotonic() < deadline, self.states()
            time.sleep(0.02)

    def put(self, key: str, said: dict[str, Any]) -> None:
        """Write an object into the bucket."""
        self.client("s3").put_object(
            Bucket=self.guarded.bucket, Key=key, Body=json.dumps(said).encode()
        )

    def get(self, key: str) -> dict[str, Any]:
        """Read an object of the bucket."""
        body = self.client("s3").get_object(Bucket=self.guarded.bucket, Key=key)["Body"].read()
        document: dict[str, Any] = json.loads(body)
        return document

    def tandem(self, command: str, *more: str) -> int:
        """Run a command of the CLI on it."""
        return main([command, "--env", self.name, *folders(self.specs), *more])
