"""Guard with the policies of people at an endpoint where policies bind: who has them attached, and
what he does."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from assemblies import ROOT, changed, environment, synth_alone
from doubles.aws_principal import RolePrincipal, assume_role
from twin_fleet import TwinFleet
from twin_looking import until

from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.fleet_behavior import FleetBehavior
from stacks.guard import GuardStack
from tandem.cli.program import main
from tandem.declarations import names
from tandem.declarations.names import PeopleKind
from tandem.ops.people.rights import list_policy_kinds

pytestmark = [
    pytest.mark.cdk,
    pytest.mark.endpoint,
    pytest.mark.xdist_group("people-deployed"),
    pytest.mark.proof,
]

ACCOUNT = "333344445555"
REGION = "us-east-2"
ASKING = changed(
    environment("post-us-east-2"),
    name="guarded",
    account=ACCOUNT,
    capacity={"kind": "on-demand", "reservation_id": None, "block": None},
    guard={"people_policies": True},
)
WAIT_S = 20.0
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]},
        ],
    }
)


class Deployed:
    """Guard's stack, a cluster with a node group beside it, and what EC2 lists."""

    def __init__(self, endpoint: AwsEndpoint) -> None:
        self.endpoint = endpoint
        self.s3 = endpoint.client("s3")
        self.fleet = TwinFleet(
            endpoint, names.cluster_name(ASKING), names.node_group_name(ASKING)
        ).make(tags=names.resource_tags(ASKING))

    def deploy(self, template: dict[str, Any], folder: Path) -> None:
        here = {"LocationConstraint": REGION}
        for bucket in (names.bucket_name(ASKING), "assets"):
            self.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=here)
        for resource in template["Resources"].values():
            if resource["Type"] == "AWS::Lambda::Function":
                key = resource["Properties"]["Code"]["S3Key"]
                (asset,) = folder.glob(f"**/asset.{key.removesuffix('.zip')}")
                self.s3.put_object(Bucket="assets", Key=key, Body=zipped(asset))
                resource["Properties"]["Code"]["S3Bucket"] = "assets"
        cloudformation = self.endpoint.client("cloudformation")
        cloudformation.create_stack(
            StackName="guarded-Guard",
            TemplateBody=json.dumps({"Resources": template["Resources"]}),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        cloudformation.get_waiter("stack_create_complete").wait(
            StackName="guarded-Guard", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )


def zipped(folder: Path) -> bytes:
    packed_buffer = io.BytesIO()
    with zipfile.ZipFile(packed_buffer, "w") as archive:
        for path in sorted(folder.rglob("*.py")):
            archive.write(path, path.relative_to(folder))
    return packed_buffer.getvalue()


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    template = synth_alone(ASKING, folder, GuardStack, environment=ASKING)
    with AwsEndpoint(
        account=ACCOUNT, region=REGION, enforces_policies=True, report=lambda _: None
    ) as endpoint:
        endpoint.set_fleet(FleetBehavior(start_delay_s=0.1, stop_delay_s=0.1))
        result = Deployed(endpoint)
        result.deploy(template, folder)
        in_the_clear(endpoint)
        yield result


def in_the_clear(endpoint: AwsEndpoint) -> None:
    """Take the refusal of plain HTTP from the topic for people: nothing on this machine's loopback
    speaks TLS."""
    sns = endpoint.client("sns")
    topic = f"arn:aws:sns:{REGION}:{ACCOUNT}:{names.topic_name(ASKING)}"
    policy = json.loads(sns.get_topic_attributes(TopicArn=topic)["Attributes"]["Policy"])
    policy["Statement"] = [
        statement for statement in policy["Statement"] if statement["Effect"] == "Allow"
    ]
    sns.set_topic_attributes(
        TopicArn=topic, AttributeName="Policy", AttributeValue=json.dumps(policy)
    )


@pytest.fixture
def files(tmp_path):
    """The environment's file, as the command reads it."""
    document = yaml.safe_load((ROOT / "environments/post-us-east-2.yaml").read_text())
    document |= {"account": ACCOUNT, "experiments": ["post"]}
    document["capacity"] |= {"kind": "on-demand", "reservation_id": None}
    document["guard"]["people_policies"] = True
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / f"{ASKING.name}.yaml").write_text(
        yaml.safe_dump(document, sort_keys=False)
    )
    return [
        "--environments",
        str(tmp_path / "environments"),
        "--experiments",
        str(ROOT / "experiments"),
    ]


def somebody(deployed: Deployed, kind: PeopleKind) -> RolePrincipal:
    """A new role with the deployed policies of a kind attached, as an account's owner attaches
    them."""
    iam = deployed.endpoint.client("iam")
    role = f"one-{kind}"
    arn = iam.create_role(RoleName=role, AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    for policy_kind in list_policy_kinds(kind):
        name = names.people_policy_name(ASKING, policy_kind)
        iam.attach_role_policy(RoleName=role, PolicyArn=f"arn:aws:iam::{ACCOUNT}:policy/{name}")
    return assume_role(deployed.endpoint, arn)


def become(
    deployed: Deployed, kind: PeopleKind, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = somebody(deployed, kind)
    for name, value in {**deployed.endpoint.client_environment(home), **who.environment()}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("kind", ["viewer", "engineer"])
def test_who_may_not_size_a_node_group_stops_through_the_function(
    deployed, files, kind, tmp_path, monkeypatch, capsys
):
    deployed.s3.delete_object(Bucket=names.bucket_name(ASKING), Key="stop.json")
    deployed.fleet.raise_to(2)
    become(deployed, kind, tmp_path, monkeypatch)

    code = main(["stop", "--env", ASKING.name, "--why", "enough", *files])

    output = capsys.readouterr()
    assert not output.err, output.err
    assert (code, until(deployed.fleet.states, [], WAIT_S)) == (0, [])
    assert "by the stop function: fenced: enough" in " ".join(output.out.split())
    fence = deployed.s3.get_object(Bucket=names.bucket_name(ASKING), Key="stop.json")["Body"]
    assert f"one-{kind}" in json.load(fence)["who"]


def test_where_the_function_is_denied_too_the_stop_says_so_and_is_no_success(
    deployed, files, tmp_path, monkeypatch, capsys
):
    become(deployed, "pipeline", tmp_path, monkeypatch)
    code = main(["stop", "--env", ASKING.name, *files])
    err = capsys.readouterr().err
    assert code == 3
    assert "the stop function was called" in err
    assert "lambda:InvokeFunction" in err
