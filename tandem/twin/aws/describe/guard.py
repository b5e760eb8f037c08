"""Schedules, rules, queues and budgets, as their services describe them."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from tandem.twin.aws.describe.form import Client, Describe, GoneError, Properties, whole


def _schedule_group(client: Client, physical_id: str, _properties: Properties) -> Properties:
    scheduler = client("scheduler")
    found: Properties = scheduler.get_schedule_group(Name=physical_id)
    return {**found, "Tags": scheduler.list_tags_for_resource(ResourceArn=found["Arn"])["Tags"]}


def _schedule(client: Client, physical_id: str, properties: Properties) -> Properties:
    group = properties.get("GroupName", "default")
    found: Properties = client("scheduler").get_schedule(Name=physical_id, GroupName=group)
    return found


def _rule(client: Client, physical_id: str, _properties: Properties) -> Properties:
    events = client("events")
    found: Properties = events.describe_rule(Name=physical_id)
    tags = events.list_tags_for_resource(ResourceARN=found["Arn"])["Tags"]
    return {**found, "Targets": events.list_targets_by_rule(Rule=physical_id)["Targets"], "Tags": tags}


def _queue(client: Client, physical_id: str, _properties: Properties) -> Properties:
    sqs = client("sqs")
    found: Properties = _attributes(sqs, physical_id)
    return {
        **found,
        "Arn": found["QueueArn"],
        "QueueName": found["QueueArn"].rpartition(":")[2],
        "Tags": [
            {"Key": key, "Value": value} for key, value in sqs.list_queue_tags(QueueUrl=physical_id)["Tags"].items()
        ],
    }


def _attributes(sqs: Any, url: str) -> Properties:
    found: Properties = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return found


def _queue_policy(client: Client, _physical_id: str, properties: Properties) -> Properties:
    """It differs where one of its queues has another."""
    policies = [_attributes(client("sqs"), url).get("Policy") for url in properties["Queues"]]
    same = all(policy == policies[0] for policy in policies)
    return {"Queues": properties["Queues"], "PolicyDocument": policies[0] if same else policies}


def _budget(client: Client, physical_id: str, _properties: Properties) -> Properties:
    budgets, named = client("budgets"), {"BudgetName": physical_id}
    named["AccountId"] = client("sts").get_caller_identity()["Account"]
    told = [
        {"Notification": one,
         "Subscribers": budgets.describe_subscribers_for_notification(**named, Notification=one)["Subscribers"]}
        for one in budgets.describe_notifications_for_budget(**named)["Notifications"]
    ]  # fmt: skip
    budget = budgets.describe_budget(**named)["Budget"]
    arn = f"arn:aws:budgets::{named['AccountId']}:budget/{physical_id}"
    tags = budgets.list_tags_for_resource(ResourceARN=arn)["ResourceTags"]
    return {"Budget": budget, "NotificationsWithSubscribers": whole(told), "ResourceTags": tags}


def _invocation(client: Client, physical_id: str, properties: Properties) -> Properties:
    name, qualifier = properties["FunctionName"], properties["Qualifier"]
    try:
        found: Properties = client("lambda").get_function_event_invoke_config(FunctionName=name, Qualifier=qualifier)
    except ClientError as missing:
        raise GoneError(physical_id) from missing
    return {**found, "FunctionName": name, "Qualifier": found["FunctionArn"].rpartition(":")[2]}


DESCRIBE: dict[str, Describe] = {
    "AWS::Scheduler::ScheduleGroup": _schedule_group,
    "AWS::Scheduler::Schedule": _schedule,
    "AWS::Events::Rule": _rule,
    "AWS::SQS::Queue": _queue,
    "AWS::SQS::QueuePolicy": _queue_policy,
    "AWS::Budgets::Budget": _budget,
    "AWS::Lambda::EventInvokeConfig": _invocation,
}
