"""A fragment's logical ids and addresses are those of the CDK, so that no resource is replaced."""

from __future__ import annotations

import aws_cdk as cdk
import pytest
from aws_cdk import assertions
from constructs import Construct

from stacks.fragment import Fragment, compute_address, compute_logical_id

TOPIC_TYPE = "AWS::SNS::Topic"
PATHS = [
    ("Alarms", "post-us-east-2-not_ready"),
    ("post", "compile-qwen-vllm", "Resource"),
    ("my-storage", "storage", "Resource"),  # the CDK leaves "storage" out of the name
    ("storage", "my-storage", "Resource"),
    ("a" * 200, "b" * 100, "Resource"),  # cut
]


@pytest.fixture(scope="module")
def stack():
    return cdk.Stack(cdk.Stage(cdk.App(), "bench-0"), "Workloads")


@pytest.mark.parametrize("path", PATHS, ids=["alarm", "manifest", "repeated", "ending", "long"])
def test_logical_id_is_that_of_the_cdk(path, stack):
    scope = stack
    for id_ in path[:-1]:
        scope = Construct(scope, id_)
    resource = cdk.CfnResource(scope, path[-1], type=TOPIC_TYPE)
    assert compute_logical_id(path) == stack.resolve(resource.logical_id)


def test_address_is_that_of_the_cdk(stack):
    scope = Construct(stack, "addressed")
    assert compute_address(("bench-0", "Workloads", "addressed")) == scope.node.addr


def test_resource_gets_its_properties():
    stack = cdk.Stack(cdk.App(), "properties")
    fragment = Fragment()
    fragment.add_resource(("One",), TOPIC_TYPE, {"TopicName": "a"})
    fragment.include(stack, "Fragment")
    assertions.Template.from_stack(stack).has_resource_properties(TOPIC_TYPE, {"TopicName": "a"})
