"""Dashboards, alarms, their topic and what is counted in logs, as CloudWatch, SNS and CloudWatch Logs describe them."""

from __future__ import annotations

import json
from typing import Any

from tandem.twin.aws.describe.form import Client, Describe, Properties, one, pascal, tag_list, whole


def _dashboard(client: Client, physical_id: str, _properties: Properties) -> Properties:
    cloudwatch = client("cloudwatch")
    found: Properties = cloudwatch.get_dashboard(DashboardName=physical_id)
    return {**found, "Tags": cloudwatch.list_tags_for_resource(ResourceARN=found["DashboardArn"])["Tags"]}


def _alarm(client: Client, physical_id: str, _properties: Properties) -> Properties:
    return _described(client("cloudwatch"), physical_id, "MetricAlarm")


def _composite(client: Client, physical_id: str, _properties: Properties) -> Properties:
    return _described(client("cloudwatch"), physical_id, "CompositeAlarm")


def _described(cloudwatch: Any, name: str, kind: str) -> Properties:
    listed = cloudwatch.describe_alarms(AlarmNames=[name], AlarmTypes=[kind])[f"{kind}s"]
    found: Properties = whole(one(listed, name))
    tags = cloudwatch.list_tags_for_resource(ResourceARN=found["AlarmArn"])["Tags"]
    return {**found, "Arn": found["AlarmArn"], "Tags": tags}


def _topic(client: Client, physical_id: str, _properties: Properties) -> Properties:
    sns = client("sns")
    found: Properties = sns.get_topic_attributes(TopicArn=physical_id)["Attributes"]
    return {
        **found,
        "TopicName": found["TopicArn"].rpartition(":")[2],
        "Tags": sns.list_tags_for_resource(ResourceArn=physical_id)["Tags"],
    }


def _topic_policy(client: Client, _physical_id: str, properties: Properties) -> Properties:
    """It differs where one of its topics has another."""
    sns = client("sns")
    policies = [
        json.loads(sns.get_topic_attributes(TopicArn=arn)["Attributes"]["Policy"]) for arn in properties["Topics"]
    ]
    same = all(policy == policies[0] for policy in policies)
    return {"Topics": properties["Topics"], "PolicyDocument": policies[0] if same else policies}


def _subscription(client: Client, physical_id: str, properties: Properties) -> Properties:
    pages = client("sns").get_paginator("list_subscriptions_by_topic").paginate(TopicArn=properties["TopicArn"])
    listed = [item for page in pages for item in page["Subscriptions"]]
    found: Properties = one([item for item in listed if item["SubscriptionArn"] == physical_id], physical_id)
    return found


def _metric_filter(client: Client, physical_id: str, properties: Properties) -> Properties:
    listed = client("logs").describe_metric_filters(
        logGroupName=properties["LogGroupName"], filterNamePrefix=physical_id
    )["metricFilters"]
    found = one([item for item in listed if item["filterName"] == physical_id], physical_id)
    described: Properties = pascal(whole(found), frozenset({"dimensions"}))
    for counted in described["MetricTransformations"]:
        if "Dimensions" in counted:
            counted["Dimensions"] = tag_list(counted["Dimensions"])
    return described


DESCRIBE: dict[str, Describe] = {
    "AWS::CloudWatch::Dashboard": _dashboard,
    "AWS::CloudWatch::Alarm": _alarm,
    "AWS::CloudWatch::CompositeAlarm": _composite,
    "AWS::SNS::Topic": _topic,
    "AWS::SNS::TopicPolicy": _topic_policy,
    "AWS::SNS::Subscription": _subscription,
    "AWS::Logs::MetricFilter": _metric_filter,
}
