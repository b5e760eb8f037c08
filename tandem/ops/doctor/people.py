"""Group people: who may enter the cluster, and who is told."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.errors import TandemError
from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.call_policy import topic_arn
from tandem.ops.doctor.check_result import CheckFinding, fail_finding, ok_finding, warn_finding
from tandem.ops.doctor.context import DoctorContext
from tandem.ops.faults import error_code
from tandem.shell_command import quote_command

NO_PRINCIPAL_CODES = {"NoSuchEntity", "NoSuchEntityException"}
NO_TOPIC_CODES = {"NotFound", "NotFoundException"}
PENDING = "PendingConfirmation"


def check_principals(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that every principal of `cluster.access` exists: EKS refuses an access entry for one that does not."""
    environment = context.environment
    access = environment.cluster.access
    arns = [arn for kind in (access.admin, access.operator, access.engineer, access.viewer) for arn in kind]
    existing_count = 0
    for arn in dict.fromkeys(arns):
        kind, _, path = arn.rpartition(":")[2].partition("/")
        name = path.rpartition("/")[2]
        if arn.split(":")[4] != environment.account:
            yield warn_finding(f"{arn} is of another account", "see there that it exists: it is not asked from here")
            continue
        operation, parameter = ("GetRole", "RoleName") if kind == "role" else ("GetUser", "UserName")
        response = account.ask("iam", operation, arn, absent=NO_PRINCIPAL_CODES, **{parameter: name})
        if response is None:
            yield fail_finding(f"there is no {kind} {arn}", "make it, or correct cluster.access",
                       quote_command("aws", "iam", f"get-{kind}", f"--{kind}-name", name))  # fmt: skip
        else:
            existing_count += 1
    if not access.admin:
        yield warn_finding("cluster.access.admin is empty: nobody can enter the cluster", "name at least one")
    if existing_count:
        yield ok_finding(f"{existing_count} principals of cluster.access exist")


def check_subscriptions(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that who is to be told has confirmed, for one who has not is told nothing."""
    environment = context.environment
    alarm_subscriptions = environment.observability.alarm_subscriptions
    if not alarm_subscriptions:
        yield warn_finding("observability.alarm_subscriptions is empty: nobody is told of a fleet that will not stop",
                   "name who", "observability: {alarm_subscriptions: [{protocol: email, endpoint: WHO}]}")  # fmt: skip
        return
    topic = topic_arn(environment)
    try:
        rows = account.list_rows("sns", "ListSubscriptionsByTopic", "Subscriptions", topic, TopicArn=topic)
    except TandemError as error:
        if error_code(error.__cause__) not in NO_TOPIC_CODES:
            raise
        yield ok_finding("the topic is not there yet; each subscriber confirms once after the first deploy")
        return
    states = {(row["Protocol"], row["Endpoint"]): row["SubscriptionArn"] for row in rows}
    confirmed_count = 0
    for subscription in alarm_subscriptions:
        state = states.get((subscription.protocol, subscription.endpoint))
        command = quote_command(
            "aws", "sns", "subscribe", "--region", environment.region, "--topic-arn", topic,
            "--protocol", subscription.protocol, "--notification-endpoint", subscription.endpoint,
        )  # fmt: skip
        if state is None:
            yield warn_finding(f"{subscription.endpoint} ({subscription.protocol}) is declared and not subscribed",
                       "deploy; if it is deployed, the confirmation has lapsed: subscribe it again",
                       command)  # fmt: skip
        elif state == PENDING:
            yield warn_finding(
                f"{subscription.endpoint} ({subscription.protocol}) has not confirmed and is told nothing",
                "follow the link in its mail, or subscribe it again",
                command,
            )
        else:
            confirmed_count += 1
    if confirmed_count:
        yield ok_finding(f"{confirmed_count} of {len(alarm_subscriptions)} subscribers have confirmed")
