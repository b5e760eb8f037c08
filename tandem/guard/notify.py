"""Notification of an environment's people, by its topic, of events of its fleet.

Invariant: standard library and boto3 only, because a Lambda packs this file.
"""

from __future__ import annotations

from tandem.guard.config import AwsClients, GuardConfig

MAX_SUBJECT_CHARACTERS = 99  # SNS accepts fewer than 100
CHANGE_TEXTS = {
    "stopping": "being stopped",
    "terminating": "terminated by id",
    "stopped": "gone",
    "failed": "NOT stopped",
    "blind": "not seen whole: part of AWS does not answer the guard",
}


def notify_subscribers(
    clients: AwsClients, config: GuardConfig, context: str, message: str
) -> None:
    """Send a message to the people of the environment, if there is a topic.

    Raises:
        CALL_ERRORS: SNS does not answer, or refuses.
    """
    if config.topic_arn:
        title = f"Tandem {config.environment}: {context}"[:MAX_SUBJECT_CHARACTERS]
        clients.sns.publish(TopicArn=config.topic_arn, Subject=title, Message=message)
