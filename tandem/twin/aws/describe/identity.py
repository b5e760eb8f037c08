"""Roles, policies and profiles as IAM describes them."""

from __future__ import annotations

from typing import Any

from tandem.twin.aws.describe.form import Client, Describe, Properties


def _role(client: Client, physical_id: str, properties: Properties) -> Properties:
    iam = client("iam")
    found: Properties = iam.get_role(RoleName=physical_id)["Role"]
    attached = iam.list_attached_role_policies(RoleName=physical_id)["AttachedPolicies"]
    own = {item["PolicyName"] for item in properties.get("Policies", [])}
    names = [name for name in iam.list_role_policies(RoleName=physical_id)["PolicyNames"] if name in own]
    return {
        **found,
        "PermissionsBoundary": found.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn"),
        "ManagedPolicyArns": [item["PolicyArn"] for item in attached if _wanted(item["PolicyArn"], properties)],
        "Policies": [{"PolicyName": name, "PolicyDocument": _inline(iam, physical_id, name)} for name in names],
    }


def _wanted(arn: str, properties: Properties) -> bool:
    """An AWS::IAM::ManagedPolicy may attach itself to the role; its own row holds that."""
    return arn in properties.get("ManagedPolicyArns", [arn])


def _inline(iam: Any, role: str, name: str) -> Any:
    return iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]


def _policy(client: Client, _physical_id: str, properties: Properties) -> Properties:
    """An inline policy is looked for in every role that it names; it differs where one lacks it."""
    iam, name = client("iam"), properties["PolicyName"]
    roles = [
        role for role in properties.get("Roles", []) if name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    ]
    documents = [_inline(iam, role, name) for role in roles]
    same = all(document == documents[0] for document in documents)
    return {"PolicyName": name, "Roles": roles, "PolicyDocument": documents[0] if documents and same else documents}


def _managed_policy(client: Client, physical_id: str, _properties: Properties) -> Properties:
    iam = client("iam")
    found = iam.get_policy(PolicyArn=physical_id)["Policy"]
    version = iam.get_policy_version(PolicyArn=physical_id, VersionId=found["DefaultVersionId"])["PolicyVersion"]
    entities = iam.list_entities_for_policy(PolicyArn=physical_id)
    return {
        **found,
        "ManagedPolicyName": found["PolicyName"],
        "PolicyArn": found["Arn"],
        "PolicyDocument": version["Document"],
        "Roles": [role["RoleName"] for role in entities["PolicyRoles"]],
        "Users": [user["UserName"] for user in entities["PolicyUsers"]],
        "Groups": [group["GroupName"] for group in entities["PolicyGroups"]],
    }


def _instance_profile(client: Client, physical_id: str, _properties: Properties) -> Properties:
    found = client("iam").get_instance_profile(InstanceProfileName=physical_id)["InstanceProfile"]
    return {**found, "Roles": [role["RoleName"] for role in found["Roles"]]}


DESCRIBE: dict[str, Describe] = {
    "AWS::IAM::Role": _role,
    "AWS::IAM::Policy": _policy,
    "AWS::IAM::ManagedPolicy": _managed_policy,
    "AWS::IAM::InstanceProfile": _instance_profile,
}
