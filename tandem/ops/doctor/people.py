"""Group people: who may enter the cluster, and who is told."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.ops.doctor.account import Account
from tandem.ops.doctor.calls import topic_arn
from tandem.ops.doctor.line import Finding, fail, ok, warn
from tandem.ops.doctor.subject import Subject
from tandem.ops.fault import OpsError, code_of
from tandem.shell_command import quote_command

NO_PRINCIPAL = {"NoSuchEntity", "NoSuchEntityException"}
NO_TOPIC = {"NotFound", "NotFoundException"}
PENDING = "PendingConfirmation"


def principals(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that every principal of `cluster.access` exists: EKS refuses an access entry for one that does not."""
    environment = subject.environment
    access = environment.cluster.access
    named = [arn for kind in (access.admin, access.operator, access.engineer, access.viewer) for arn in kind]
    good = 0
    for arn in dict.fromkeys(named):
        kind, _, path = arn.rpartition(":")[2].partition("/")
        name = path.rpartition("/")[2]
        if arn.split(":")[4] != environment.account:
            yield warn(f"{arn} is of another account", "see there that it exists: it is not asked from here")
            continue
        operation, parameter = ("GetRole", "RoleName") if kind == "role" else ("GetUser", "UserName")
        found = account.ask("iam", operation, arn, absent=NO_PRINCIPAL, **{parameter: name})
        if found is None:
            yield fail(f"there is no {kind} {arn}", "make it, or correct cluster.access",
                       quote_command("aws", "iam", f"get-{kind}", f"--{kind}-name", name))  # fmt: skip
        else:
            good += 1
    if not access.admin:
        yield warn("cluster.access.admin is empty: nobody can enter the cluster", "name at least one")
    if good:
        yield ok(f"{good} principals of cluster.access exist")


def subscriptions(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that who is to be told has confirmed, for one who has not is told nothing."""
    environment = subject.environment
    declared = environment.observability.alarm_subscriptions
    if not declared:
        yield warn("observability.alarm_subscriptions is empty: nobody is told of a fleet that will not stop",
                   "name who", "observability: {alarm_subscriptions: [{protocol: email, endpoint: WHO}]}")  # fmt: skip
        return
    topic = topic_arn(environment)
    try:
        rows = account.every("sns", "ListSubscriptionsByTopic", "Subscriptions", topic, TopicArn=topic)
    except OpsError as error:
        if code_of(error.__cause__) not in NO_TOPIC:
            raise
        yield ok("the topic is not there yet; each subscriber confirms once after the first deploy")
        return
    states = {(row["Protocol"], row["Endpoint"]): row["SubscriptionArn"] for row in rows}
    good = 0
    for one in declared:
        state = states.get((one.protocol, one.endpoint))
        again = quote_command(
            "aws", "sns", "subscribe", "--region", environment.region, "--topic-arn", topic,
            "--protocol", one.protocol, "--notification-endpoint", one.endpoint,
        )  # fmt: skip
        if state is None:
            yield warn(f"{one.endpoint} ({one.protocol}) is declared and not subscribed",
                       "deploy; if it is deployed, the confirmation has lapsed: subscribe it again",
                       again)  # fmt: skip
        elif state == PENDING:
            yield warn(f"{one.endpoint} ({one.protocol}) has not confirmed and is told nothing",
                       "follow the link in its mail, or subscribe it again", again)  # fmt: skip
        else:
            good += 1
    if good:
        yield ok(f"{good} of {len(declared)} subscribers have confirmed")
