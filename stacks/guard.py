"""The Guard stack: stops of a fleet that nobody stops, their notifications, a start's basis.

Invariant: it knows no experiment and no reservation id, and waits for no cluster. It exists before
every fleet: Fleet is deployed after it and deleted before it. Each of its three paths (a lease's
one-shot stop, the reaper, the budget) works without the other two. Nothing is published
unencrypted. Only alarms of this environment, budgets of this account and the guard's own functions
may publish. The stop topic notifies no person and the people's topic no function, so the
notification of a stop cannot start another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aws_cdk as cdk
from aws_cdk import RemovalPolicy
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks import guard_rights
from stacks.alarms import add_alarms
from stacks.finding import accept_finding, accept_rights
from stacks.guard_functions import FUNCTIONS, add_guard_function, add_reaper_schedule
from stacks.policy import Conditions, allow
from stacks.role import add_customer_key, add_role, allow_log_key
from stacks.stack import EnvironmentStack, TemplateLimitError
from tandem.declarations import names
from tandem.declarations.arns import build_arn
from tandem.declarations.budgets import build_budget_request, needs_manual_budget
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.environment import Environment
from tandem.monitoring.guard_alarms import build_guard_alarms
from tandem.ops.people.policies import MAX_POLICY_CHARACTERS, build_policy, count_policy_characters

CLOUDWATCH = "cloudwatch.amazonaws.com"
BUDGETS = "budgets.amazonaws.com"
MESSAGE_RETENTION_S = 14 * 24 * 3600  # SQS's maximum
_Budget = budgets.CfnBudget


class GuardStack(EnvironmentStack):
    """Functions, schedules' group and role, queue, topics, budget, and alarms on all these."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(
            scope,
            id_,
            environment=environment,
            description="Tandem: what stops the fleet, and tells of it",
        )

        key = _add_key(Construct(self, "Key"), environment)
        people_topic = _add_people_topic(Construct(self, "Notices"), environment, key)
        people_topic_arn = people_topic.topic_arn
        queue_arn = _add_queue(Construct(self, "DeadLetters"), environment, key).queue_arn
        _add_schedule_group(Construct(self, "OneShot"), environment, queue_arn, key.key_arn)

        functions = {
            kind: add_guard_function(
                self,
                kind,
                environment=environment,
                topic_arn=people_topic_arn,
                key=key,
                queue_arn=queue_arn,
            )
            for kind in FUNCTIONS
        }
        add_reaper_schedule(Construct(self, "EveryPass"), functions["reap"])
        stop_topic = _add_stop_topic(
            Construct(self, "StopTopic"), environment, key, functions["stop"]
        )

        if needs_manual_budget(environment):
            cdk.Annotations.of(self).add_info(
                f"no budget: CloudFormation has none in {environment.region}; make it by hand"
                " (docs/runbook.md)"
            )
        else:
            _add_budget(
                Construct(self, "Budget"), environment, stop_topic.topic_arn, people_topic_arn
            )

        if environment.guard.people_policies:
            add_people_policies(Construct(self, "People"), environment)
        add_alarms(Construct(self, "Alarms"), build_guard_alarms(environment), people_topic_arn)


def _add_key(scope: Construct, environment: Environment) -> kms.Key:
    """Add the key of both topics, the queue of given-up calls, and the two functions' logs.

    A topic under the AWS-managed key would be silent, because nobody can admit CloudWatch to that
    key. Source: SNS developer guide, "Managing Amazon SNS encryption keys and costs".
    """
    name = names.cluster_name(environment)
    log_names = [names.function_log_group_name(environment, kind) for kind in FUNCTIONS]
    groups = [build_arn(environment, "logs", f"log-group:{log_name}") for log_name in log_names]
    users = [
        *(
            allow(guard_rights.SEND_ACTIONS, ["*"], service=service, conditions=conditions)
            for service, conditions in _list_publishers(environment).items()
        ),
        allow_log_key(environment, "ArnEquals", groups),
    ]
    return add_customer_key(
        scope,
        environment,
        alias=f"alias/{name}-guard",
        description=f"Topics, queue and logs of the guard of {name}",
        users=users,
    )


def _list_publishers(environment: Environment) -> dict[str, Conditions]:
    """Return the services that notify people, with their conditions."""
    alarms = guard_rights.alarm_conditions(environment)
    budget = guard_rights.budget_conditions(environment)
    return {CLOUDWATCH: alarms, BUDGETS: budget}


def _add_queue(scope: Construct, environment: Environment, key: kms.IKey) -> sqs.Queue:
    """Add the encrypted queue of calls that were given up; it accepts only senders with TLS."""
    queue = sqs.Queue(
        scope,
        "Queue",
        queue_name=names.dead_letter_queue_name(environment),
        encryption_master_key=key,
        enforce_ssl=True,
        retention_period=cdk.Duration.seconds(MESSAGE_RETENTION_S),
        removal_policy=RemovalPolicy.DESTROY,
    )
    accept_finding(queue, "SQS3", "the queue holds what others gave up; people alone read it")
    return queue


def _add_schedule_group(
    scope: Construct, environment: Environment, queue_arn: str, key_arn: str
) -> None:
    """Add the one-shot schedules' group, and the role that only Scheduler may assume, for it alone.

    The role sizes this node group, and otherwise only reports calls that failed.
    """
    name = names.schedule_group_name(environment)
    scheduler.CfnScheduleGroup(scope, "Group", name=name)
    group_arn = build_arn(environment, "scheduler", f"schedule-group/{name}")
    add_role(
        scope,
        "scheduler.amazonaws.com",
        name=names.scheduler_role_name(environment),
        policy_name="stop",
        statements=guard_rights.list_schedule_statements(
            environment, queue_arn=queue_arn, key_arn=key_arn
        ),
        reasons=guard_rights.WILDCARD_REASONS,
        conditions={
            "StringEquals": {"aws:SourceAccount": environment.account, "aws:SourceArn": group_arn}
        },
    )


def _add_people_topic(scope: Construct, environment: Environment, key: kms.IKey) -> sns.Topic:
    """Add the topic for people and its subscriptions.

    An e-mail address or a URL must confirm its subscription. A queue or a function must admit the
    topic by its own policy, which its owner writes. Adding or moving a subscriber in the file
    changes no other, because each has its own id at any place in the list.
    """
    topic = _add_topic(
        scope,
        names.topic_name(environment),
        title=f"Tandem {environment.name}",
        key=key,
        publishers=_list_publishers(environment),
    )
    for subscription in environment.observability.alarm_subscriptions:
        sns.CfnSubscription(
            scope,
            f"{subscription.protocol}:{subscription.endpoint}",
            topic_arn=topic.topic_arn,
            protocol=subscription.protocol,
            endpoint=subscription.endpoint,
        )
    return topic


def _add_stop_topic(
    scope: Construct, environment: Environment, key: kms.IKey, function: lambda_.Function
) -> sns.Topic:
    """Add the topic that a budget notifies, and the stop function: any message stops the fleet.

    `LambdaSubscription` would admit the topic without the condition on its account.
    """
    topic = _add_topic(
        scope,
        names.stop_topic_name(environment),
        title=f"Tandem {environment.name}: stop",
        key=key,
        publishers={BUDGETS: guard_rights.budget_conditions(environment)},
    )
    permission = lambda_.CfnPermission(
        scope,
        "Invoke",
        action="lambda:InvokeFunction",
        function_name=function.function_arn,
        principal="sns.amazonaws.com",
        source_account=environment.account,
        source_arn=topic.topic_arn,
    )
    subscription = sns.Subscription(
        scope,
        "Function",
        topic=topic,
        protocol=sns.SubscriptionProtocol.LAMBDA,
        endpoint=function.function_arn,
    )
    subscription.node.add_dependency(permission)
    return topic


def _add_topic(
    scope: Construct, name: str, *, title: str, key: kms.IKey, publishers: Mapping[str, Conditions]
) -> sns.Topic:
    """Add `scope`'s topic; only some services publish, under conditions, and by TLS alone."""
    topic = sns.Topic(
        scope, "Topic", topic_name=name, display_name=title, master_key=key, enforce_ssl=True
    )
    for service, conditions in publishers.items():
        statement = allow(
            ["sns:Publish"], [topic.topic_arn], service=service, conditions=conditions
        )
        topic.add_to_resource_policy(iam.PolicyStatement.from_json(statement))
    return topic


def _add_budget(
    scope: Construct, environment: Environment, stop_topic_arn: str, people_topic_arn: str
) -> None:
    """Add the monthly budget of the fleet's instances."""
    request = build_budget_request(
        environment,
        load_catalogue(),
        stop_topic_arn=stop_topic_arn,
        people_topic_arn=people_topic_arn,
    )
    budget = request["Budget"]
    limit = budget["BudgetLimit"]
    tags = sorted(names.resource_tags(environment).items())
    budgets.CfnBudget(
        scope,
        "Budget",
        budget=_Budget.BudgetDataProperty(
            budget_name=budget["BudgetName"],
            budget_type=budget["BudgetType"],
            time_unit=budget["TimeUnit"],
            budget_limit=_Budget.SpendProperty(amount=limit["Amount"], unit=limit["Unit"]),
            cost_filters=budget["CostFilters"],
        ),
        notifications_with_subscribers=[
            _build_notification(row) for row in request["NotificationsWithSubscribers"]
        ],
        resource_tags=[_Budget.ResourceTagProperty(key=key, value=value) for key, value in tags],
    )


def _build_notification(
    row: Mapping[str, Any],
) -> budgets.CfnBudget.NotificationWithSubscribersProperty:
    notification = row["Notification"]
    return _Budget.NotificationWithSubscribersProperty(
        notification=_Budget.NotificationProperty(
            comparison_operator=notification["ComparisonOperator"],
            notification_type=notification["NotificationType"],
            threshold=notification["Threshold"],
            threshold_type=notification["ThresholdType"],
        ),
        subscribers=[
            _Budget.SubscriberProperty(
                subscription_type=subscriber["SubscriptionType"], address=subscriber["Address"]
            )
            for subscriber in row["Subscribers"]
        ],
    )


def add_people_policies(scope: Construct, environment: Environment) -> None:
    """Add one IAM policy for each kind of people and the pipeline, if the environment wants them.

    Nothing is attached here, because the roles are not ours. An attached policy outlives the stack:
    the person who takes the environment down has rights from it to the end.

    Raises:
        TemplateLimitError: a policy is longer than IAM allows.
    """
    for kind in names.PEOPLE:
        document = build_policy(environment, kind)
        name = names.people_policy_name(environment, kind)
        characters = count_policy_characters(document)
        if characters > MAX_POLICY_CHARACTERS:
            raise TemplateLimitError(
                f"{characters} characters, and IAM takes {MAX_POLICY_CHARACTERS}",
                where=f"IAM policy {name}",
                change=(
                    "name fewer principals in cluster.access, or leave guard.people_policies false"
                    " and write your own"
                ),
            )
        managed_policy = iam.CfnManagedPolicy(
            scope,
            kind.capitalize(),
            managed_policy_name=name,
            policy_document=document,
            description=f"Tandem {environment.name}: {kind}; docs/people.md",
        )
        managed_policy.apply_removal_policy(RemovalPolicy.RETAIN)
        reasons = {
            "*": "docs/reference/rights.md says of each place with a wildcard why it has one"
        }
        accept_rights(managed_policy, reasons, statements=document["Statement"])
