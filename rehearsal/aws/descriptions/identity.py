"""Roles and policies as IAM describes them."""

from __future__ import annotations

from typing import Any

from rehearsal.aws.descriptions.conversion import (
    ClientFactory,
    DescribeFunction,
    Properties,
    require_equal,
)


def _describe_role(client: ClientFactory, physical_id: str, properties: Properties) -> Properties:
    iam = client("iam")
    role: Properties = iam.get_role(RoleName=physical_id)["Role"]
    policies = iam.list_attached_role_policies(RoleName=physical_id)["AttachedPolicies"]
    own_names = {item["PolicyName"] for item in properties.get("Policies", [])}
    names = [
        name
        for name in iam.list_role_policies(RoleName=physical_id)["PolicyNames"]
        if name in own_names
    ]
    return {
        **role,
        "PermissionsBoundary": role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn"),
        "ManagedPolicyArns": [
            item["PolicyArn"]
            for item in policies
            if _is_template_policy(item["PolicyArn"], properties)
        ],
        "Policies": [
            {"PolicyName": name, "PolicyDocument": _read_inline_policy(iam, physical_id, name)}
            for name in names
        ],
    }


def _is_template_policy(arn: str, properties: Properties) -> bool:
    """Return whether to compare a policy; one that attaches itself has its own row."""
    return arn in properties.get("ManagedPolicyArns", [arn])


def _read_inline_policy(iam: Any, role: str, name: str) -> Any:
    return iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]


def _describe_policy(
    client: ClientFactory, _physical_id: str, properties: Properties
) -> Properties:
    """Describe an inline policy in every role that it names; it differs if one role lacks it."""
    iam = client("iam")
    name = properties["PolicyName"]
    roles = [
        role
        for role in properties.get("Roles", [])
        if name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    ]
    documents = [_read_inline_policy(iam, role, name) for role in roles]
    return {"PolicyName": name, "Roles": roles, "PolicyDocument": require_equal(documents)}


def _describe_managed_policy(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    iam = client("iam")
    policy = iam.get_policy(PolicyArn=physical_id)["Policy"]
    version = iam.get_policy_version(PolicyArn=physical_id, VersionId=policy["DefaultVersionId"])[
        "PolicyVersion"
    ]
    entities = iam.list_entities_for_policy(PolicyArn=physical_id)
    return {
        **policy,
        "ManagedPolicyName": policy["PolicyName"],
        "PolicyArn": policy["Arn"],
        "PolicyDocument": version["Document"],
        "Roles": [role["RoleName"] for role in entities["PolicyRoles"]],
        "Users": [user["UserName"] for user in entities["PolicyUsers"]],
        "Groups": [group["GroupName"] for group in entities["PolicyGroups"]],
    }


DESCRIBE: dict[str, DescribeFunction] = {
    "AWS::IAM::Role": _describe_role,
    "AWS::IAM::Policy": _describe_policy,
    "AWS::IAM::ManagedPolicy": _describe_managed_policy,
}
