"""Commands run by people who have the policies of their kind and nothing else, at an endpoint where
policies bind."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError
from doubles.aws_principal import RolePrincipal, create_principal
from doubles.fault_proxy.proxy import FaultProxy
from fleet_world import Fleet, write_environment

from tandem.declarations import names
from tandem.declarations.names import PeopleKind
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY
from tandem.ops.people.policies import build_policy
from tandem.ops.people.rights import list_command_calls, list_policy_kinds

pytestmark = pytest.mark.endpoint

TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "scheduler.amazonaws.com"},
                "Action": "sts:AssumeRole",
            },
        ],
    }
)
SMALL = json.dumps({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}})


@pytest.fixture(scope="module")
def front(enforcing_account):
    """What is asked of the endpoint passes it unchanged, and is noted."""
    with FaultProxy(enforcing_account.url) as proxy:
        yield proxy


@pytest.fixture
def own_fleet(specs, enforcing_account):
    """A fleet at 0, and one small stack of the environment's own."""
    fleet = Fleet(endpoint=enforcing_account, specs=specs, name=write_environment(specs))
    fleet.deploy()
    fleet.looked()
    fleet.client("iam").update_assume_role_policy(
        RoleName=names.scheduler_role_name(fleet.environment), PolicyDocument=TRUST
    )
    fleet.client("cloudformation").create_stack(
        StackName=names.stack_name(fleet.environment, "Observability"),
        TemplateBody=SMALL,
        Tags=[
            {"Key": key, "Value": value}
            for key, value in names.resource_tags(fleet.environment).items()
        ],
    )
    return fleet


@pytest.fixture
def become(own_fleet, front, monkeypatch, tmp_path):
    """Let the commands that follow be somebody of a kind."""
    monkeypatch.setattr(
        "botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.01
    )
    monkeypatch.setattr("tandem.guard.fleet_changes.POLL_INTERVAL", timedelta(seconds=0.05))

    def act(kind: PeopleKind) -> RolePrincipal:
        documents = [
            build_policy(own_fleet.environment, policy_kind)
            for policy_kind in list_policy_kinds(kind)
        ]
        who = create_principal(
            own_fleet.endpoint,
            *(statement for document in documents for statement in document["Statement"]),
        )
        for name, value in {
            **own_fleet.endpoint.client_environment(tmp_path),
            **who.environment(front.url),
        }.items():
            monkeypatch.setenv(name, value)
        front.forget()
        return who

    return act


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(ClientError) as raised_error:
        act()
    return str(raised_error.value.response["Error"]["Code"])


def asked(front: FaultProxy) -> set[str]:
    return {call.operation for call in front.log}


def wanted(*commands: str) -> set[str]:
    return {call.operation for call in list_command_calls(*commands)}


def stacks(fleet: Fleet) -> list[str]:
    listing = fleet.client("cloudformation").describe_stacks()["Stacks"]
    return [
        stack["StackName"] for stack in listing if stack["StackName"].startswith(f"{fleet.name}-")
    ]


@pytest.mark.proof
def test_a_viewer_sees_all_that_status_shows(own_fleet, become, front, capsys):
    become("viewer")
    code = own_fleet.tandem("status", "--json")
    assert json.loads(capsys.readouterr().out)["unknown"] == {}
    assert (code, asked(front) <= wanted("status")) == (0, True)


@pytest.mark.parametrize("kind", ["viewer", pytest.param("engineer", marks=pytest.mark.proof)])
def test_who_may_not_start_is_denied_and_nothing_is_raised(own_fleet, become, kind, capsys):
    who = become(kind)

    code = own_fleet.tandem("start", "--hours", "1", "--yes")

    assert (code, own_fleet.states()) == (3, [])
    assert "AccessDenied" in capsys.readouterr().err
    mine = own_fleet.guarded
    request = {
        "clusterName": mine.cluster,
        "nodegroupName": mine.node_group,
        "scalingConfig": {"desiredSize": 1},
    }
    assert (
        refusal(lambda: who.client("eks").update_nodegroup_config(**request))
        == "AccessDeniedException"
    )
    assert own_fleet.states() == []


def test_who_may_not_destroy_is_denied_and_nothing_goes(own_fleet, become, capsys):
    who = become("engineer")

    code = own_fleet.tandem("destroy", "--yes-i-mean", own_fleet.name)

    assert (code, "denied" in capsys.readouterr().err) == (3, True)
    name = names.stack_name(own_fleet.environment, "Observability")
    assert refusal(lambda: who.client("cloudformation").delete_stack(StackName=name)).startswith(
        "AccessDenied"
    )
    assert stacks(own_fleet) == [name]


@pytest.mark.proof
def test_an_operator_starts_stops_and_clears(own_fleet, become, front, capsys):
    become("operator")

    start_code = own_fleet.tandem("start", "--hours", "1", "--yes")
    assert (start_code, capsys.readouterr().err) == (0, "")
    own_fleet.until(["running"])
    assert asked(front) <= wanted("start")

    front.forget()
    stop_code = own_fleet.tandem("stop", "--wait")
    assert (stop_code, own_fleet.states(), own_fleet.get(FENCE_KEY)["state"]) == (0, [], "stopping")
    assert asked(front) <= wanted("stop")

    front.forget()
    assert own_fleet.tandem("stop", "--release") == 0
    assert (own_fleet.get(POINTER_KEY)["run"], asked(front) <= wanted("stop --release")) == (
        None,
        True,
    )


@pytest.mark.proof
def test_what_is_protected_is_an_admins_to_destroy(own_fleet, become, front, capsys):
    name = names.stack_name(own_fleet.environment, "Observability")
    own_fleet.client("cloudformation").update_termination_protection(
        StackName=name, EnableTerminationProtection=True
    )
    words = ["--yes-i-mean", own_fleet.name, "--poll-s", "0.05"]

    become("operator")
    code = own_fleet.tandem("destroy", *words)
    assert (code, stacks(own_fleet)) == (3, [name])
    assert "UpdateTerminationProtection" in capsys.readouterr().err

    become("admin")
    own_fleet.tandem("destroy", *words)
    assert stacks(own_fleet) == []
    assert asked(front) <= wanted("destroy", "destroy what is protected")
