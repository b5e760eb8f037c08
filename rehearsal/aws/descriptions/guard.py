"""Schedule groups, rules, queues and budgets, as their services describe them."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from rehearsal.aws.descriptions.conversion import (
    AbsentResourceError,
    ClientFactory,
    DescribeFunction,
    Properties,
    require_equal,
    to_whole_numbers,
)


def _describe_schedule_group(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    scheduler = client("scheduler")
    group: Properties = scheduler.get_schedule_group(Name=physical_id)
    return {**group, "Tags": scheduler.list_tags_for_resource(ResourceArn=group["Arn"])["Tags"]}


def _describe_rule(client: ClientFactory, physical_id: str, _properties: Properties) -> Properties:
    events = client("events")
    rule: Properties = events.describe_rule(Name=physical_id)
    tags = events.list_tags_for_resource(ResourceARN=rule["Arn"])["Tags"]
    return {
        **rule,
        "Targets": events.list_targets_by_rule(Rule=physical_id)["Targets"],
        "Tags": tags,
    }


def _describe_queue(client: ClientFactory, physical_id: str, _properties: Properties) -> Properties:
    sqs = client("sqs")
    attributes: Properties = _queue_attributes(sqs, physical_id)
    return {
        **attributes,
        "Arn": attributes["QueueArn"],
        "QueueName": attributes["QueueArn"].rpartition(":")[2],
        "Tags": [
            {"Key": key, "Value": value}
            for key, value in sqs.list_queue_tags(QueueUrl=physical_id)["Tags"].items()
        ],
    }


def _queue_attributes(sqs: Any, url: str) -> Properties:
    attributes: Properties = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])[
        "Attributes"
    ]
    return attributes


def _describe_queue_policy(
    client: ClientFactory, _physical_id: str, properties: Properties
) -> Properties:
    """Describe a queue policy; it differs if one of its queues has another policy."""
    policies = [_queue_attributes(client("sqs"), url).get("Policy") for url in properties["Queues"]]
    return {"Queues": properties["Queues"], "PolicyDocument": require_equal(policies)}


def _describe_budget(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    budgets = client("budgets")
    budget_reference = {"BudgetName": physical_id}
    budget_reference["AccountId"] = client("sts").get_caller_identity()["Account"]
    notifications = [
        {
            "Notification": notification,
            "Subscribers": budgets.describe_subscribers_for_notification(
                **budget_reference, Notification=notification
            )["Subscribers"],
        }
        for notification in budgets.describe_notifications_for_budget(**budget_reference)[
            "Notifications"
        ]
    ]
    budget = budgets.describe_budget(**budget_reference)["Budget"]
    arn = f"arn:aws:budgets::{budget_reference['AccountId']}:budget/{physical_id}"
    tags = budgets.list_tags_for_resource(ResourceARN=arn)["ResourceTags"]
    return {
        "Budget": budget,
        "NotificationsWithSubscribers": to_whole_numbers(notifications),
        "ResourceTags": tags,
    }


def _describe_invocation(
    client: ClientFactory, physical_id: str, properties: Properties
) -> Properties:
    name = properties["FunctionName"]
    qualifier = properties["Qualifier"]
    try:
        config: Properties = client("lambda").get_function_event_invoke_config(
            FunctionName=name, Qualifier=qualifier
        )
    except ClientError as error:
        raise AbsentResourceError(physical_id) from error
    return {**config, "FunctionName": name, "Qualifier": config["FunctionArn"].rpartition(":")[2]}


DESCRIBE: dict[str, DescribeFunction] = {
    "AWS::Scheduler::ScheduleGroup": _describe_schedule_group,
    "AWS::Events::Rule": _describe_rule,
    "AWS::SQS::Queue": _describe_queue,
    "AWS::SQS::QueuePolicy": _describe_queue_policy,
    "AWS::Budgets::Budget": _describe_budget,
    "AWS::Lambda::EventInvokeConfig": _describe_invocation,
}
