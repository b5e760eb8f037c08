"""Dashboards, alarms, their topic, metric filters, as CloudWatch, SNS and Logs describe them."""

from __future__ import annotations

import json
from typing import Any

from rehearsal.aws.descriptions.conversion import (
    ClientFactory,
    DescribeFunction,
    Properties,
    require_equal,
    require_single,
    tag_list,
    to_pascal_case,
    to_whole_numbers,
)


def _describe_dashboard(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    cloudwatch = client("cloudwatch")
    dashboard: Properties = cloudwatch.get_dashboard(DashboardName=physical_id)
    return {
        **dashboard,
        "Tags": cloudwatch.list_tags_for_resource(ResourceARN=dashboard["DashboardArn"])["Tags"],
    }


def _describe_metric_alarm(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    return _describe_alarm(client("cloudwatch"), physical_id, "MetricAlarm")


def _describe_composite_alarm(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    return _describe_alarm(client("cloudwatch"), physical_id, "CompositeAlarm")


def _describe_alarm(cloudwatch: Any, name: str, kind: str) -> Properties:
    alarms = cloudwatch.describe_alarms(AlarmNames=[name], AlarmTypes=[kind])[f"{kind}s"]
    alarm: Properties = to_whole_numbers(require_single(alarms, name))
    tags = cloudwatch.list_tags_for_resource(ResourceARN=alarm["AlarmArn"])["Tags"]
    return {**alarm, "Arn": alarm["AlarmArn"], "Tags": tags}


def _describe_topic(client: ClientFactory, physical_id: str, _properties: Properties) -> Properties:
    sns = client("sns")
    attributes: Properties = sns.get_topic_attributes(TopicArn=physical_id)["Attributes"]
    return {
        **attributes,
        "TopicName": attributes["TopicArn"].rpartition(":")[2],
        "Tags": sns.list_tags_for_resource(ResourceArn=physical_id)["Tags"],
    }


def _describe_topic_policy(
    client: ClientFactory, _physical_id: str, properties: Properties
) -> Properties:
    """Describe a topic policy; it differs if one of its topics has another policy."""
    sns = client("sns")
    policies = [
        json.loads(sns.get_topic_attributes(TopicArn=arn)["Attributes"]["Policy"])
        for arn in properties["Topics"]
    ]
    return {"Topics": properties["Topics"], "PolicyDocument": require_equal(policies)}


def _describe_subscription(
    client: ClientFactory, physical_id: str, properties: Properties
) -> Properties:
    pages = (
        client("sns")
        .get_paginator("list_subscriptions_by_topic")
        .paginate(TopicArn=properties["TopicArn"])
    )
    subscriptions = [item for page in pages for item in page["Subscriptions"]]
    subscription: Properties = require_single(
        [item for item in subscriptions if item["SubscriptionArn"] == physical_id], physical_id
    )
    return subscription


def _describe_metric_filter(
    client: ClientFactory, physical_id: str, properties: Properties
) -> Properties:
    filters = client("logs").describe_metric_filters(
        logGroupName=properties["LogGroupName"], filterNamePrefix=physical_id
    )["metricFilters"]
    metric_filter = require_single(
        [item for item in filters if item["filterName"] == physical_id], physical_id
    )
    description: Properties = to_pascal_case(
        to_whole_numbers(metric_filter), frozenset({"dimensions"})
    )
    for transformation in description["MetricTransformations"]:
        if "Dimensions" in transformation:
            transformation["Dimensions"] = tag_list(transformation["Dimensions"])
    return description


DESCRIBE: dict[str, DescribeFunction] = {
    "AWS::CloudWatch::Dashboard": _describe_dashboard,
    "AWS::CloudWatch::Alarm": _describe_metric_alarm,
    "AWS::CloudWatch::CompositeAlarm": _describe_composite_alarm,
    "AWS::SNS::Topic": _describe_topic,
    "AWS::SNS::TopicPolicy": _describe_topic_policy,
    "AWS::SNS::Subscription": _describe_subscription,
    "AWS::Logs::MetricFilter": _describe_metric_filter,
}
