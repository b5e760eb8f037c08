"""The proof of the one-shot stop where policies bind: asked with the printed policy, fired by the
schedules' role."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doubles.aws_principal import create_principal
from fleet_world import Fleet, write_environment

from tandem.declarations import names
from tandem.ops.doctor import stop_proof
from tandem.ops.people.policies import build_command_policy

pytestmark = pytest.mark.proof

TRUST = {
    "Effect": "Allow",
    "Principal": {"Service": "scheduler.amazonaws.com"},
    "Action": "sts:AssumeRole",
}


@pytest.fixture
def proven(enforcing_account, specs, tmp_path, monkeypatch):
    """Deploy, give the schedules' role this trust and these rights, and prove it as somebody; the
    exit code."""
    for name, value in {
        "START_DELAY_S": 0.0,
        "RESULT_TIMEOUT_S": 60.0,
        "POLL_INTERVAL_S": 0.05,
    }.items():
        monkeypatch.setattr(stop_proof, name, value)
    fleet = Fleet(endpoint=enforcing_account, specs=specs, name=write_environment(specs))
    fleet.deploy()

    def act(*statements: Any, trust: Any = TRUST, without: str = "") -> tuple[int, Fleet]:
        iam = fleet.client("iam")
        role = names.scheduler_role_name(fleet.environment)
        document = {"Version": "2012-10-17", "Statement": [trust] if trust else []}
        iam.update_assume_role_policy(RoleName=role, PolicyDocument=json.dumps(document))
        own = {"Version": "2012-10-17", "Statement": list(statements)}
        iam.put_role_policy(RoleName=role, PolicyName="stop", PolicyDocument=json.dumps(own))
        rights = build_command_policy(fleet.environment, "doctor", "doctor --prove-stop")[
            "Statement"
        ]
        who = create_principal(
            enforcing_account, *(right for right in rights if without not in right["Action"])
        )
        for name, value in {
            **enforcing_account.client_environment(tmp_path),
            **who.environment(),
        }.items():
            monkeypatch.setenv(name, value)
        return fleet.tandem("doctor", "--prove-stop"), fleet

    act.rights = rights_of(fleet)  # type: ignore[attr-defined]
    return act


def rights_of(fleet: Fleet) -> list[dict[str, Any]]:
    """As stacks/guard_rights.py gives them, but for the key: there is none here."""
    mine = fleet.guarded
    group = f"arn:aws:eks:{mine.region}:{mine.account}:nodegroup/{mine.cluster}/{mine.node_group}/*"
    return [
        {"Effect": "Allow", "Action": ["eks:UpdateNodegroupConfig"], "Resource": [group]},
        {"Effect": "Allow", "Action": ["sqs:SendMessage"], "Resource": [mine.dead_letter_arn]},
    ]


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_the_printed_policy_is_enough_for_the_proof(proven):
    code, fleet = proven(*proven.rights)
    assert (code, fleet.schedules()) == (0, [])


def test_a_role_that_scheduler_may_not_have_asks_for_guard(proven, capsys):
    code, _ = proven(*proven.rights, trust=None)

    text = told(capsys)
    assert code == 3
    assert "fail prove-stop no start can arm a stop" in text
    assert "do deploy Guard" in text


def test_a_role_without_its_right_fails_with_the_letters_words(proven, capsys):
    code, _ = proven(proven.rights[1])

    text = told(capsys)
    assert code == 3
    assert "fail prove-stop Scheduler gave the call up" in text
    assert "AccessDenied" in text
    assert "do deploy Guard" in text


def test_who_may_not_pass_the_role_is_told_so(proven, capsys):
    code, _ = proven(*proven.rights, without="iam:PassRole")
    assert code == 3
    assert "do add iam:PassRole on arn:aws:iam::" in told(capsys)
