"""Who is told: one topic for people with its subscribers, and one that stops the fleet.

Invariant: nothing is published in the clear; alarms of this environment, budgets of this account and the guard's own
functions alone may publish; the topic that stops tells no person and a person's tells no function, so that a stop that
tells of itself cannot start another; a subscriber that is added or moved in the file touches no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.aws_location import locate_environment
from stacks.guard_key import BUDGETS, CLOUDWATCH, SNS, alarm_conditions, budget_conditions
from stacks.policy import Conditions, allow, policy_document
from tandem.spec import names
from tandem.spec.environment import AlarmSubscription, Environment

_DIGITS = 8


def people_topic_arn(environment: Environment) -> str:
    """Return the ARN of the topic for people, which other stacks name without waiting for an export."""
    return locate_environment(environment).arn("sns", names.topic_name(environment))


class PeopleTopic(Construct):
    """The topic for people, its policy and its subscriptions.

    An e-mail address or a URL has to confirm its subscription; a queue or a function has to admit the topic by a policy
    of its own, which is its owner's to write.

    Attributes:
        topic_arn: what a composite alarm notifies, as an expression that makes its user wait for the topic.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, key_arn: str) -> None:
        super().__init__(scope, id_)
        self.topic_arn = _add_topic(
            self, names.topic_name(environment), f"Tandem {environment.name}", key_arn=key_arn,
            publishers={
                CLOUDWATCH: alarm_conditions(environment),
                BUDGETS: budget_conditions(locate_environment(environment)),
            },
        )  # fmt: skip
        for subscription in environment.observability.alarm_subscriptions:
            sns.CfnSubscription(
                self, _subscription_id(subscription), topic_arn=self.topic_arn, protocol=subscription.protocol,
                endpoint=subscription.endpoint,
            )  # fmt: skip


class StopTopic(Construct):
    """The topic that a budget notifies, and the stop function behind it.

    Attributes:
        topic_arn: whatever is published to it stops the fleet.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, key_arn: str, function_arn: str
    ) -> None:
        super().__init__(scope, id_)
        self.topic_arn = _add_topic(
            self, names.stop_topic_name(environment), f"Tandem {environment.name}: stop", key_arn=key_arn,
            publishers={BUDGETS: budget_conditions(locate_environment(environment))},
        )  # fmt: skip
        permission = lambda_.CfnPermission(
            self, "Invoke", action="lambda:InvokeFunction", function_name=function_arn, principal=SNS,
            source_account=environment.account, source_arn=self.topic_arn,
        )  # fmt: skip
        sns.CfnSubscription(
            self, "Function", topic_arn=self.topic_arn, protocol="lambda", endpoint=function_arn
        ).add_resource_dependency(permission)


def _add_topic(
    scope: Construct, name: str, display_name: str, *, key_arn: str, publishers: Mapping[str, Conditions]
) -> str:
    """Add the topic of `scope`, which some services may publish to, under conditions, and by TLS alone."""
    topic = sns.CfnTopic(scope, "Topic", topic_name=name, kms_master_key_id=key_arn, display_name=display_name)
    statements = [
        allow(["sns:Publish"], [topic.ref], service=service, conditions=conditions)
        for service, conditions in publishers.items()
    ]
    policy = policy_document(*statements, _deny_plain_transport(topic.ref))
    sns.CfnTopicPolicy(scope, "Policy", topics=[topic.ref], policy_document=policy)
    return topic.ref


def _deny_plain_transport(arn: str) -> dict[str, Any]:
    return {
        "Effect": "Deny", "Principal": "*", "Action": ["sns:Publish"], "Resource": [arn],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }  # fmt: skip


def _subscription_id(subscription: AlarmSubscription) -> str:
    """Return an id that is the subscriber's own wherever it stands in the list."""
    digest = hashlib.sha256(subscription.endpoint.encode()).hexdigest()[:_DIGITS]
    return f"{subscription.protocol}-{digest}"
