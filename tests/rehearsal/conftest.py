"""One running endpoint for all tests of a worker, and stacks deployed to it without the CDK."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError

from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.template_check import ResourceCheck, check_stack

ACCOUNT = "222233334444"
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def endpoint():
    with AwsEndpoint(account=ACCOUNT, region="us-east-2") as running:
        yield running


@pytest.fixture(scope="session")
def enforcing():
    """An endpoint where policies bind."""
    with AwsEndpoint(account=ACCOUNT, region="us-east-2", enforces_policies=True) as running:
        yield running


@pytest.fixture(scope="session")
def restart(tmp_path_factory):
    """An endpoint that keeps its state, in its second life, and what was seen of the first one and
    at its end."""
    folder = tmp_path_factory.mktemp("state")
    endpoint = AwsEndpoint(account=ACCOUNT, region="us-east-2", state_dir=folder)
    where = {"LocationConstraint": "us-east-2"}
    with endpoint:
        s3 = endpoint.client("s3")
        s3.create_bucket(Bucket="before", CreateBucketConfiguration=where)
        endpoint.reset()
        after_reset = s3.list_buckets()["Buckets"]
        endpoint.client("ssm").put_parameter(Name="p", Value="v", Type="String")
        s3.create_bucket(Bucket="kept", CreateBucketConfiguration=where)
        s3.put_object(
            Bucket="kept",
            Key="a/b",
            Body=b"x",
            Metadata={"sha256": "abc"},
            ChecksumAlgorithm="SHA256",
        )
        process = endpoint.process_id
        work = endpoint.log.parent
    left = SimpleNamespace(process=process, work=work, work_there=work.exists())
    with endpoint:
        yield SimpleNamespace(endpoint=endpoint, folder=folder, after_reset=after_reset, left=left)


def settled(endpoint: AwsEndpoint, stack: str) -> str:
    """Wait until CloudFormation has done with the stack; its status."""
    cloudformation = endpoint.client("cloudformation")
    for _ in range(3000):
        status = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
        if not status.endswith("IN_PROGRESS"):
            return str(status)
        time.sleep(0.02)
    raise TimeoutError(stack)


def deployed(
    endpoint: AwsEndpoint, template: dict[str, Any], stack: str = "", *, update: bool = False
) -> SimpleNamespace:
    """Create (or update) a stack; its name, status and the reasons of what failed."""
    name = stack or f"stack-{uuid.uuid4().hex[:8]}"
    cloudformation = endpoint.client("cloudformation")
    act = cloudformation.update_stack if update else cloudformation.create_stack
    identity = act(
        StackName=name, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_NAMED_IAM"]
    )["StackId"]
    status = settled(endpoint, identity)
    events = cloudformation.describe_stack_events(StackName=identity)["StackEvents"]
    reasons = [
        event.get("ResourceStatusReason", "")
        for event in events
        if event["ResourceStatus"].endswith("FAILED")
    ]
    return SimpleNamespace(name=name, id=identity, status=status, reasons=reasons)


@pytest.fixture
def deploy(endpoint):
    """Deploy resources given as logical id to definition, or a whole template."""

    def act(resources: dict[str, Any], stack: str = "", *, update: bool = False) -> SimpleNamespace:
        template = resources if "Resources" in resources else {"Resources": resources}
        return deployed(endpoint, template, stack, update=update)

    return act


@pytest.fixture
def delete(endpoint):
    def act(stack: SimpleNamespace) -> str:
        endpoint.client("cloudformation").delete_stack(StackName=stack.name)
        return settled(endpoint, stack.id)

    return act


@pytest.fixture
def change_set(endpoint):
    """Make a new stack by change set, as the CDK CLI does; its status."""

    def act(resources: dict[str, Any], *, adopt: bool) -> str:
        cloudformation = endpoint.client("cloudformation")
        name = f"adopting-{uuid.uuid4().hex[:6]}"
        cloudformation.create_change_set(
            StackName=name,
            ChangeSetName="c",
            ChangeSetType="CREATE",
            ImportExistingResources=adopt,
            TemplateBody=json.dumps({"Resources": resources}),
        )
        cloudformation.execute_change_set(StackName=name, ChangeSetName="c")
        return settled(endpoint, name)

    return act


@pytest.fixture
def bucket(s3):
    """A bucket of this test's own, where the `s3` of its module is."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    return name


@pytest.fixture
def refusal():
    """The code with which AWS refuses a call."""

    def act(call: Callable[..., Any], **arguments: Any) -> str:
        with pytest.raises(ClientError) as refusal:
            call(**arguments)
        return str(refusal.value.response["Error"]["Code"])

    return act


@pytest.fixture
def check_resources(endpoint):
    """Hold a stack; by logical id."""

    def act(stack: str) -> dict[str, ResourceCheck]:
        return {
            item.logical_id: item
            for item in check_stack(endpoint.client, stack, endpoint.list_custom_resources())
        }

    return act


@pytest.fixture(scope="session")
def templates():
    """The templates that between them have every type of our stacks."""
    names = ("producer", "consumer", "watcher", "guarded")
    return {name: yaml.safe_load((HERE / f"{name}.yaml").read_text()) for name in names}


@pytest.fixture(scope="session")
def everything(endpoint, templates):
    """Every resource of all templates, deployed once and held."""
    checks: dict[str, ResourceCheck] = {}
    for name, template in templates.items():
        stack = deployed(endpoint, template, name)
        assert (stack.status, stack.reasons) == ("CREATE_COMPLETE", [])
        checks |= {
            item.logical_id: item
            for item in check_stack(endpoint.client, name, endpoint.list_custom_resources())
        }
    return checks
