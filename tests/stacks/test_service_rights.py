"""What each role, key and topic of the stacks allows is what docs/service-rights.md says, over
every environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from assemblies import ROOT, Templates, list_actions, places

from tandem.declarations.names import IMAGE_KIND

pytestmark = pytest.mark.cdk

PAGE = ROOT / "docs" / "service-rights.md"
ROW = re.compile(r"^\| (\w+) \| (.+?) \| (.+) \|$", re.MULTILINE)
ACCOUNT = "aws:RequestTag/kubernetes-service-account"
RESOURCE_POLICIES = {
    "AWS::KMS::Key": ("key", "KeyPolicy"),
    "AWS::SNS::TopicPolicy": ("topic", "PolicyDocument"),
    "AWS::SQS::QueuePolicy": ("queue", "PolicyDocument"),
    "AWS::S3::BucketPolicy": ("bucket", "PolicyDocument"),
}
Right = tuple[str, str, str]
"""The stack, who holds it, the action or AWS's policy."""


def list_allowed_actions(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each allowed action, with the principal as text."""
    for statement in document["Statement"]:
        if statement["Effect"] == "Allow":
            principal = json.dumps(statement.get("Principal", ""))
            for action in list_actions(statement):
                yield principal, action


def name_principal(principal: str, region: str) -> str:
    """Return the service or the account of a principal, for any region."""
    if ":root" in principal:
        return "the account"
    service = re.search(r"[\w.-]+\.amazonaws\.com", principal)
    assert service, principal
    return service[0].replace(f".{region}.", ".REGION.")


def list_rights(stack: str, resource: dict[str, Any], region: str) -> Iterator[Right]:
    """Yield what a resource of a stack allows."""
    type_ = resource["Type"]
    properties = resource.get("Properties", {})
    if type_ == "AWS::IAM::Role":
        (trust,) = properties["AssumeRolePolicyDocument"]["Statement"]
        account = trust.get("Condition", {}).get("StringEquals", {}).get(ACCOUNT)
        policies = properties.get("Policies", [])
        purposes = ", ".join(policy["PolicyName"] for policy in policies)
        service = name_principal(json.dumps(trust["Principal"]), region)
        holder = account or (f"{service}: {purposes}" if purposes else service)
        for policy in policies:
            for _, action in list_allowed_actions(policy["PolicyDocument"]):
                yield stack, f"role of {holder}", action
        for name in re.findall(
            r"policy/([\w/-]+)", json.dumps(properties.get("ManagedPolicyArns", []))
        ):
            yield stack, f"role of {holder}", name
    if type_ == "AWS::IAM::Policy":
        name = re.sub(r"[0-9A-F]{8}$", "", properties["PolicyName"])
        for _, action in list_allowed_actions(properties["PolicyDocument"]):
            yield stack, f"policy {name}", action
    if type_ in RESOURCE_POLICIES:
        noun, field = RESOURCE_POLICIES[type_]
        for principal, action in list_allowed_actions(properties[field]):
            yield stack, f"{noun}, for {name_principal(principal, region)}", action


def read_page() -> set[Right]:
    return {
        (stack, holder, action)
        for stack, holder, actions in ROW.findall(PAGE.read_text())
        for action in re.findall(r"`(.+?)`", actions)
    }


def list_all_rights(stacks: Templates, regions: dict[str, str]) -> set[Right]:
    rights: set[Right] = set()
    for name, template in stacks.items():
        environment, _, kind = name.rpartition("-")
        stack = IMAGE_KIND if kind.startswith(IMAGE_KIND) else kind  # the builds' stacks are alike
        for resource in template["Resources"].values():
            rights.update(list_rights(stack, resource, regions[environment]))
    return rights


@pytest.fixture(scope="module")
def rights(stacks):

    return list_all_rights(stacks, {place.name: place.region for place in places()})


def test_no_role_key_or_topic_allows_what_the_page_does_not_say(rights):
    assert rights - read_page() == set()


def test_the_page_says_no_right_that_nobody_has(rights):
    assert read_page() - rights == set()
