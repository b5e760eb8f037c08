"""Who is told: one topic that this environment's alarms alone may publish to, and its subscribers.

Invariant: nothing is published in the clear, and a subscriber that is added or moved in the file touches no other.
"""

from __future__ import annotations

import hashlib

from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.policy import allow, document
from stacks.watch_key import CLOUDWATCH, alarm_arns
from tandem.spec import names
from tandem.spec.environment import Environment, Subscription

_DIGITS = 8


class Notices(Construct):
    """The topic, its policy and its subscriptions.

    An e-mail address or a URL has to confirm its subscription; a queue or a function has to admit the topic by a policy
    of its own, which is its owner's to write.

    Attributes:
        topic_arn: what a composite alarm notifies.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, key_arn: str) -> None:
        super().__init__(scope, id_)
        topic = sns.CfnTopic(
            self, "Topic", topic_name=names.topic(environment), kms_master_key_id=key_arn,
            display_name=f"Tandem {environment.name}",
        )  # fmt: skip
        self.topic_arn = topic.ref
        alarms = allow(
            ["sns:Publish"], [self.topic_arn], service=CLOUDWATCH,
            conditions={
                "StringEquals": {"aws:SourceAccount": environment.account},
                "ArnLike": {"aws:SourceArn": alarm_arns(environment)},
            },
        )  # fmt: skip
        in_the_clear = {
            "Effect": "Deny", "Principal": "*", "Action": ["sns:Publish"], "Resource": [self.topic_arn],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }  # fmt: skip
        sns.CfnTopicPolicy(self, "Policy", topics=[self.topic_arn], policy_document=document(alarms, in_the_clear))
        for subscription in environment.observability.alarm_subscriptions:
            sns.CfnSubscription(
                self, _id(subscription), topic_arn=self.topic_arn, protocol=subscription.protocol,
                endpoint=subscription.endpoint,
            )  # fmt: skip


def _id(subscription: Subscription) -> str:
    """Return an id that is the subscriber's own wherever it stands in the list."""
    digest = hashlib.sha256(subscription.endpoint.encode()).hexdigest()[:_DIGITS]
    return f"{subscription.protocol}-{digest}"
