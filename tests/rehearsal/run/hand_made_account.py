"""An account of a rehearsed run, made by hand: what a deploy would make, without the CDK."""

from __future__ import annotations

import base64
import json
from typing import Any

from stacks.fleet import USER_DATA
from tandem.declarations import names
from tandem.ops.guard_config import build_guard_config

TAINT = {"key": "aws.amazon.com/neuron", "value": "present", "effect": "NO_SCHEDULE"}


def make_account(client, environment, *, has_fleet: bool = True) -> None:
    """Make bucket, cluster, node groups, associations, and what stops a fleet."""
    guard = build_guard_config(environment)
    role = f"arn:aws:iam::{environment.account}:role/any"
    where = {"LocationConstraint": environment.region}
    client("s3").create_bucket(Bucket=guard.bucket, CreateBucketConfiguration=where)
    eks = client("eks")
    eks.create_cluster(name=guard.cluster, roleArn=role, resourcesVpcConfig={})
    make_node_group(client, environment, "system", "m7i.xlarge", 2, {"workload": "system"})
    if has_fleet:
        data = {"UserData": base64.b64encode(USER_DATA.encode()).decode()}
        template = client("ec2").create_launch_template(
            LaunchTemplateName="fleet", LaunchTemplateData=data
        )
        reference = {"id": template["LaunchTemplate"]["LaunchTemplateId"], "version": "1"}
        fleet = {"launchTemplate": reference, "taints": [TAINT]}
        make_node_group(client, environment, guard.node_group, "trn2.48xlarge", 0, {}, **fleet)
    accounts = [
        ("tandem-post", f"tandem-{name}") for name in ("stage", "compile", "serve", "bench")
    ]
    for namespace, service_account in [("runner-system", "runner"), *accounts]:
        eks.create_pod_identity_association(
            clusterName=guard.cluster,
            namespace=namespace,
            serviceAccount=service_account,
            roleArn=role,
        )
    client("scheduler").create_schedule_group(Name=guard.schedule_group)
    client("sns").create_topic(Name=names.topic_name(environment))
    client("sqs").create_queue(QueueName=names.dead_letter_queue_name(environment))
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    client("iam").create_role(
        RoleName=names.scheduler_role_name(environment), AssumeRolePolicyDocument=trust
    )
    client("lambda").create_function(
        FunctionName=names.guard_function_name(environment, "reap"),
        Role=role,
        Runtime="python3.13",
        Handler="h.h",
        Code={"ZipFile": b"PK\x05\x06" + bytes(18)},
    )
    client("budgets").create_budget(
        AccountId=environment.account,
        Budget={
            "BudgetName": names.budget_name(environment),
            "BudgetLimit": {"Amount": "2000", "Unit": "USD"},
            "TimeUnit": "MONTHLY",
            "BudgetType": "COST",
        },
    )


def make_node_group(
    client,
    environment,
    name: str,
    instance_type: str,
    size: int,
    labels: dict[str, str],
    **fields: Any,
) -> None:
    """Make a node group of so many nodes."""
    guard = build_guard_config(environment)
    role = f"arn:aws:iam::{environment.account}:role/any"
    client("eks").create_nodegroup(
        clusterName=guard.cluster,
        nodegroupName=name,
        subnets=["subnet-1"],
        nodeRole=role,
        labels=labels,
        instanceTypes=[instance_type],
        scalingConfig={"minSize": size, "desiredSize": size, "maxSize": 2},
        tags=names.resource_tags(environment),
        **fields,
    )
