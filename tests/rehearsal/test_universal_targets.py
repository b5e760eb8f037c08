"""Schedules whose target is the EKS API: when they fire, as whom, with which words, and what
becomes of a failure."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError
from doubles.aws_principal import create_principal
from twin_fleet import TwinFleet
from twin_looking import client, until

from rehearsal.aws.fleet_behavior import FleetBehavior

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint"), pytest.mark.proof]

ACCOUNT = "222233334444"
TARGET = "arn:aws:scheduler:::aws-sdk:eks:updateNodegroupConfig"
QUICK = FleetBehavior(start_delay_s=0.1, stop_delay_s=0.1, retry_delay_s=10)
TRUST = {
    "Effect": "Allow",
    "Principal": {"Service": "scheduler.amazonaws.com"},
    "Action": "sts:AssumeRole",
}
_NUMBER = itertools.count()


class Scene(TwinFleet):
    """A raised node group, a queue for what fails, and schedules that set the group to 0."""

    def __init__(self, endpoint):
        super().__init__(endpoint, f"scheduled-{next(_NUMBER)}")
        self.sqs, self.iam, self.scheduler = (
            client(endpoint, service) for service in ("sqs", "iam", "scheduler")
        )
        self.queue = self.sqs.create_queue(QueueName=self.name)["QueueUrl"]
        self.queue_arn = f"arn:aws:sqs:us-east-2:{ACCOUNT}:{self.name}"
        self.role = f"arn:aws:iam::{ACCOUNT}:role/{self.name}"
        self.make()
        self.raise_to(1)

    def have_role(self, *statements):
        """Make the schedules' role."""
        document = {"Version": "2012-10-17", "Statement": [TRUST]}
        self.iam.create_role(RoleName=self.name, AssumeRolePolicyDocument=json.dumps(document))
        document["Statement"] = list(statements)
        self.iam.put_role_policy(
            RoleName=self.name, PolicyName="own", PolicyDocument=json.dumps(document)
        )

    def scale_statement(self):
        resource = f"arn:aws:eks:us-east-2:{ACCOUNT}:nodegroup/{self.name}/fleet/*"
        return {"Effect": "Allow", "Action": "eks:UpdateNodegroupConfig", "Resource": resource}

    def send_statement(self):
        return {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": self.queue_arn}

    def input(self, **more):
        scaling = {"MinSize": 0, "DesiredSize": 0}
        return {
            "ClusterName": self.name,
            "NodegroupName": "fleet",
            "ScalingConfig": scaling,
            **more,
        }

    def at(self, in_s, **more):
        moment = self.endpoint.now() + timedelta(seconds=in_s)
        return {"ScheduleExpression": f"at({moment:%Y-%m-%dT%H:%M:%S})", **more}

    def schedule(
        self, expression=None, target_input=None, retries=0, arn=TARGET, client=None, **more
    ):
        """Make a schedule that is due a minute from now."""
        timing = {**self.at(60), **(expression or {})}
        return (client or self.scheduler).create_schedule(
            **{
                "Name": self.name,
                "FlexibleTimeWindow": {"Mode": "OFF"},
                **timing,
                "Target": {
                    "Arn": arn,
                    "RoleArn": self.role,
                    "Input": json.dumps(self.input() if target_input is None else target_input),
                    "DeadLetterConfig": {"Arn": self.queue_arn},
                    "RetryPolicy": {
                        "MaximumRetryAttempts": retries,
                        "MaximumEventAgeInSeconds": 3600,
                    },
                    **more,
                },
            }
        )

    def pass_time(self, seconds):
        """Put the endpoint's clock forward; what is due has been done then."""
        self.endpoint.set_fleet(replace(QUICK, clock_offset_s=seconds))

    def dead(self):
        """What stands in the queue: body and attributes."""
        answer = self.sqs.receive_message(
            QueueUrl=self.queue, MessageAttributeNames=["All"], MaxNumberOfMessages=10
        )
        return [
            (
                json.loads(message["Body"]),
                {key: item["StringValue"] for key, item in message["MessageAttributes"].items()},
            )
            for message in answer.get("Messages", [])
        ]

    def there(self):
        return [
            row["Name"]
            for row in self.scheduler.list_schedules()["Schedules"]
            if row["Name"] == self.name
        ]


@pytest.fixture
def scene(endpoint):
    endpoint.set_fleet(QUICK)
    yield Scene(endpoint)
    endpoint.set_fleet()


@pytest.fixture
def strict(enforcing):
    enforcing.set_fleet(QUICK)
    yield Scene(enforcing)
    enforcing.set_fleet()


# the words


@pytest.mark.parametrize(
    "target_input",
    [
        {"ScalingConfig": {"minSize": 0, "desiredSize": 0}},
        {"ScalingConfig": {"MinSize": "none"}},
    ],
)
def test_an_input_in_other_words_fails_and_changes_nothing(scene, target_input):
    scene.schedule(target_input=scene.input(**target_input))
    scene.pass_time(61)
    [(body, attributes)] = scene.dead()

    assert (body, attributes["ERROR_CODE"]) == (scene.input(**target_input), "ValidationException")
    assert (scene.states(), scene.size()) == (["running"], 1)


# failures


def test_a_failure_stands_in_the_dead_letter_queue_with_its_reason(scene):
    target_input = scene.input(NodegroupName="other")
    answer = scene.schedule(target_input=target_input)
    scene.pass_time(61)
    [(body, attributes)] = scene.dead()

    assert (body, attributes["SCHEDULE_ARN"]) == (target_input, answer["ScheduleArn"])
    assert attributes["ERROR_CODE"] == "ResourceNotFoundException"


def test_a_failed_call_is_made_again_until_it_succeeds(scene):
    scene.endpoint.set_fleet(replace(QUICK, refuses_update=True))
    scene.schedule(scene.at(0), retries=3)
    time.sleep(0.5)
    before = scene.states()
    scene.pass_time(15)

    assert before == ["running"]
    assert until(scene.states, []) == []
    assert scene.dead() == []


# the role, where policies bind


def test_a_role_without_the_action_fails(strict):
    strict.have_role(strict.send_statement())
    strict.schedule()
    strict.pass_time(61)

    assert [attributes["ERROR_CODE"] for _, attributes in strict.dead()] == [
        "AccessDeniedException"
    ]
    assert strict.states() == ["running"]


@pytest.mark.parametrize("passes", [True, False])
def test_who_makes_a_schedule_must_be_allowed_to_pass_its_role(strict, passes):
    strict.have_role(strict.scale_statement())
    condition = {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}
    role = strict.role if passes else f"{strict.role}-of-others"
    somebody = create_principal(
        strict.endpoint,
        {"Effect": "Allow", "Action": "scheduler:CreateSchedule", "Resource": "*"},
        {"Effect": "Allow", "Action": "iam:PassRole", "Resource": role, "Condition": condition},
    )
    if not passes:
        with pytest.raises(ClientError, match="iam:PassRole"):
            strict.schedule(client=somebody.client("scheduler"))
    else:
        strict.schedule(client=somebody.client("scheduler"))

    assert len(strict.there()) == passes
