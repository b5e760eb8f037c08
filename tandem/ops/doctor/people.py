"""Group people: who may enter the cluster, and who is told."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.aws.faults import error_code
from tandem.errors import TandemError
from tandem.ops.account import build_aws_command
from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.context import DoctorContext, Finding
from tandem.ops.guard_config import topic_arn
from tandem.ops.people.policy_targets import list_principals

NO_PRINCIPAL_CODES = {"NoSuchEntity", "NoSuchEntityException"}
NO_TOPIC_CODES = {"NotFound", "NotFoundException"}


def check_principals(context: DoctorContext, account: AllowlistedAccount) -> Iterator[Finding]:
    """See that every principal of `cluster.access` exists: EKS refuses an access entry for one that does not."""
    existing_count = 0
    for arn in dict.fromkeys(list_principals(context.environment)):
        kind, _, path = arn.rpartition(":")[2].partition("/")
        name = path.rpartition("/")[2]
        if arn.split(":")[4] != context.environment.account:
            yield Finding("warn", f"{arn} is of another account", "see there that it exists: it is not asked from here")
            continue
        operation, parameter = ("GetRole", "RoleName") if kind == "role" else ("GetUser", "UserName")
        if account.find("iam", operation, arn, absent=NO_PRINCIPAL_CODES, **{parameter: name}):
            existing_count += 1
            continue
        command = build_aws_command(f"iam get-{kind}", **{f"{kind}_name": name})
        yield Finding("fail", f"there is no {kind} {arn}", "make it, or correct cluster.access", command)
    if not context.environment.cluster.access.admin:
        yield Finding("warn", "cluster.access.admin is empty: nobody can enter the cluster", "name at least one")
    if existing_count:
        yield Finding("ok", f"{existing_count} principals of cluster.access exist")


def check_subscriptions(context: DoctorContext, account: AllowlistedAccount) -> Iterator[Finding]:
    """See that who is to be told has confirmed, for one who has not is told nothing."""
    subscriptions, topic = context.environment.observability.alarm_subscriptions, topic_arn(context.environment)
    if not subscriptions:
        command = "observability: {alarm_subscriptions: [{protocol: email, endpoint: oncall@example.com}]}"
        yield Finding("warn", "observability.alarm_subscriptions is empty: nobody gets alarms", "add one", command)
        return
    try:
        rows = list(account.list_rows("sns", "ListSubscriptionsByTopic", "Subscriptions", topic, TopicArn=topic))
    except TandemError as error:
        if error_code(error.__cause__) not in NO_TOPIC_CODES:
            raise
        yield Finding("ok", "the topic is not there yet; each subscriber confirms once after the first deploy")
        return
    states = {(row["Protocol"], row["Endpoint"]): row["SubscriptionArn"] for row in rows}
    confirmed_count = 0
    for subscription in subscriptions:
        protocol, endpoint = subscription.protocol, subscription.endpoint
        state, who = states.get((protocol, endpoint)), f"{endpoint} ({protocol})"
        flags = {"topic_arn": topic, "protocol": protocol, "notification_endpoint": endpoint}
        command = build_aws_command(f"sns subscribe --region {context.environment.region}", **flags)
        if state is None:
            action = "deploy; if its confirmation has lapsed, subscribe it again"
            yield Finding("warn", f"{who} is declared and not subscribed", action, command)
        elif state == "PendingConfirmation":
            yield Finding(
                "warn", f"{who} has not confirmed", "follow the link in its mail, or subscribe again", command
            )
        else:
            confirmed_count += 1
    if confirmed_count:
        yield Finding("ok", f"{confirmed_count} of {len(subscriptions)} subscribers have confirmed")
