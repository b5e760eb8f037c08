"""An environment with a few resources in each of its stacks, deployed without the CDK; and its
teardown in process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from botocore.awsrequest import AWSResponse
from fleet_seen import lease_objects
from shipped import EXAMPLES, copy_experiments

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.workspace import load_workspace
from tandem.ops.account import AccountClients
from tandem.ops.destroy.stack_deletion import TeardownSettings
from tandem.ops.leftovers import search_leftovers

ROOT = Path(__file__).parents[3]
ACCOUNT = "222233334444"
QUICK = TeardownSettings(poll_s=0.02, timeout_s=20.0)
DEPLOYED = (
    *(
        "Network",
        "Artifacts",
        "Registry",
        "ImageTools",
        "Cluster",
        "Guard",
        "Fleet",
        "Observability",
        "Workloads",
    ),
)
Change = Callable[[dict[str, Any]], None]


def declared(folder: Path, name: str, change: Change = lambda _: None) -> Environment:
    """A copy of an example environment under another name in a made-up account, with the
    experiments it hosts."""
    (folder / "environments").mkdir(parents=True, exist_ok=True)
    if not (folder / "experiments").exists():
        copy_experiments(folder)
    document = yaml.safe_load((ROOT / "environments" / "post-us-east-2.yaml").read_text())
    document["account"] = ACCOUNT
    document["experiments"] = list(EXAMPLES["post-us-east-2"])
    document["capacity"]["reservation_id"] = "cr-0123456789abcdef0"
    change(document)
    (folder / "environments" / f"{name}.yaml").write_text(yaml.safe_dump(document))
    leftovers = (
        load_workspace(folder / "environments", folder / "experiments", (name,))
        .environments[name]
        .record
    )
    assert leftovers
    return leftovers


def templates(environment: Environment) -> dict[str, dict[str, Any]]:
    """The stacks' resources, of the real ones' types and names."""
    name = environment.name
    cluster = names.cluster_name(environment)
    tags = [{"Key": names.OWNER_TAG, "Value": name}]
    trust = {"Version": "2012-10-17", "Statement": []}
    role = {
        "Type": "AWS::IAM::Role",
        "Properties": {"AssumeRolePolicyDocument": trust, "Tags": tags},
    }
    group = {
        "ClusterName": cluster,
        "NodeRole": "arn:aws:iam::222233334444:role/node",
        "Subnets": ["subnet-1"],
        "ScalingConfig": {"MinSize": 0, "DesiredSize": 0, "MaxSize": 1},
        "Tags": {names.OWNER_TAG: name},
    }
    bucket = {"Type": "AWS::S3::Bucket", "DeletionPolicy": "Retain"}
    alarm = {
        "AlarmName": names.alarm_name(environment, "errors"),
        "Namespace": names.bench_namespace(environment),
        "MetricName": "errors",
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 1,
        "ComparisonOperator": "GreaterThanThreshold",
    }
    bind = {
        "ClusterName": cluster,
        "Namespace": "tandem-post",
        "ServiceAccount": "tandem-serve",
        "RoleArn": "arn:aws:iam::222233334444:role/serve",
    }
    return {
        "Network": {
            "Vpc": {
                "Type": "AWS::EC2::VPC",
                "Properties": {"CidrBlock": "10.42.0.0/16", "Tags": tags},
            },
            "Subnet": _of(
                "AWS::EC2::Subnet", VpcId={"Ref": "Vpc"}, CidrBlock="10.42.0.0/20", Tags=tags
            ),
        },
        "Artifacts": {
            "Bucket": (
                bucket
                | {
                    "Properties": {
                        "BucketName": names.bucket_name(environment),
                        "VersioningConfiguration": {"Status": "Enabled"},
                    }
                }
            ),
            "AccessLogs": (
                bucket | {"Properties": {"BucketName": names.log_bucket_name(environment)}}
            ),
        },
        "Registry": {
            "Repository": _of(
                "AWS::ECR::Repository", RepositoryName=names.repository_name(environment)
            ),
            "Logs": {"Type": "AWS::Logs::LogGroup", "DeletionPolicy": "Retain", "Properties": {}},
        },
        "ImageTools": {"Role": role},
        "Cluster": {
            "Role": role,
            "Key": _of(
                "AWS::KMS::Key",
                Description=f"Kubernetes secrets of {cluster}",
                KeyPolicy=trust,
                Tags=tags,
                PendingWindowInDays=30,
            ),
            "LogGroup": _of("AWS::Logs::LogGroup", LogGroupName=f"/aws/eks/{cluster}/cluster"),
            "Cluster": (
                {"DependsOn": "LogGroup"}
                | _of(
                    "AWS::EKS::Cluster",
                    Name=cluster,
                    RoleArn={"Fn::GetAtt": ["Role", "Arn"]},
                    Tags=tags,
                    ResourcesVpcConfig={"SubnetIds": ["subnet-1"]},
                    DeletionProtection=True,
                )
            ),
        },
        "Guard": {
            "Topic": _of("AWS::SNS::Topic", TopicName=names.topic_name(environment), Tags=tags)
        },
        "Fleet": {
            "NodeGroup": _of(
                "AWS::EKS::Nodegroup", NodegroupName=names.node_group_name(environment), **group
            )
        },
        "Observability": {
            "Alarm": _of("AWS::CloudWatch::Alarm", **alarm),
            "Dashboard": _of(
                "AWS::CloudWatch::Dashboard",
                DashboardName=names.dashboard_name(environment, "machine"),
                DashboardBody='{"widgets": []}',
            ),
        },
        "Workloads": {"Bind": _of("AWS::EKS::PodIdentityAssociation", **bind)},
    }


def _of(type_: str, **properties: Any) -> dict[str, Any]:
    return {"Type": type_, "Properties": properties}


HOOK = SimpleNamespace(denied="", asked=None)


MADE: dict[tuple[str, str, bool], Any] = {}  # a client takes as long to make as twenty calls


def _client(endpoint: AwsEndpoint, service: str, *, hooked: bool = False) -> Any:
    at = (endpoint.url, service, hooked)
    if at not in MADE:
        # by another spelling of the URL: the endpoint has one client for all who ask, and a test is
        # denied nothing
        MADE[at] = endpoint.client(service, f"{endpoint.url}/" if hooked else "")
        if hooked:
            MADE[at].meta.events.register("before-call", _answer)
    return MADE[at]


def _answer(model: Any, **_: Any) -> Any:
    if HOOK.asked is not None:
        HOOK.asked.append(model.name)
    if model.name != HOOK.denied:
        return None
    error = {"Error": {"Code": "AccessDenied", "Message": "not you"}, "ResponseMetadata": {}}
    return AWSResponse("", 403, {}, None), error


@dataclass(kw_only=True)
class Small:
    """One such environment at an endpoint, and what its teardown said."""

    environment: Environment
    endpoint: AwsEndpoint
    folder: Path
    said: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.environment.name

    def client(self, service: str) -> Any:
        return _client(self.endpoint, service)

    def deploy(self, kinds: Collection[str] = DEPLOYED, owner: str = "") -> Small:
        for kind in (name for name in DEPLOYED if name in kinds):
            self.create(kind, templates(self.environment)[kind], owner or self.name)
        return self

    def create(
        self, kind: str, resources: Mapping[str, Any], owner: str, description: str = ""
    ) -> None:
        tags = [{"Key": names.OWNER_TAG, "Value": owner}] if owner != "nobody" else []
        identity = self.client("cloudformation").create_stack(
            StackName=names.stack_name(self.environment, kind),
            TemplateBody=json.dumps({"Resources": resources, "Description": description}),
            Capabilities=["CAPABILITY_NAMED_IAM"],
            Tags=tags,
            EnableTerminationProtection=True,
        )["StackId"]
        until = time.monotonic() + 20
        status = ""
        while not status.endswith("_COMPLETE") and time.monotonic() < until:
            stack = self.client("cloudformation").describe_stacks(StackName=identity)["Stacks"][0]
            status = stack["StackStatus"]
        assert status == "CREATE_COMPLETE", (kind, status, stack.get("StackStatusReason"))

    def stacks(self) -> dict[str, str]:
        """Those that exist: kind to status."""
        pages = self.client("cloudformation").get_paginator("describe_stacks").paginate()
        return {
            row["StackName"].removeprefix(f"{self.name}-"): row["StackStatus"]
            for page in pages
            for row in page["Stacks"]
            if row["StackName"].rpartition("-")[0] == self.name
            and row["StackStatus"] != "DELETE_COMPLETE"
        }

    def account(self, denied: str = "", asked: list[str] | None = None) -> AccountClients:
        """What asks the endpoint; one operation is denied. It holds until the next account is
        taken."""
        HOOK.denied = denied
        HOOK.asked = asked
        session = SimpleNamespace(
            client=lambda service, **_: _client(self.endpoint, service, hooked=True)
        )
        return AccountClients(self.environment, session)

    def lease(self, hours: float = 1) -> None:
        deadline = datetime.now(UTC) + timedelta(hours=hours)
        who = "arn:aws:iam::222233334444:role/Operator"
        for key, document in lease_objects(who=who, deadline=deadline).items():
            self.put(key, document)

    def put(self, key: str, body: Any) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.client("s3").put_object(
            Bucket=names.bucket_name(self.environment), Key=key, Body=text.encode()
        )


def find_leftovers(account: AccountClients, others: Sequence[str] = ()) -> SimpleNamespace:
    """What is left: kept, orphans, and the failures by kind."""
    leftovers, failures = search_leftovers(account, others)
    orphans = [resource for resource in leftovers if not resource.kept]
    return SimpleNamespace(
        kept=[resource for resource in leftovers if resource.kept],
        orphans=orphans,
        failures=failures,
    )
