"""Groups account and people: the caller, readiness for a deploy, access, notifications."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from tandem.aws.faults import ANSWER_CODES, classify_fault, error_code
from tandem.declarations import names
from tandem.declarations.arns import build_topic_arn
from tandem.declarations.environment import (
    EXAMPLE_ACCOUNTS,
    PLACEHOLDER_RESERVATION_ID,
    Environment,
    GitopsDelivery,
)
from tandem.declarations.project_image import list_hosted_images
from tandem.errors import TandemError
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.destroy.stacks import CloudFormationStack, read_stack
from tandem.ops.doctor.context import EXIT_EXTERNAL, DoctorContext, Finding
from tandem.ops.faults import ABSENT_CODES
from tandem.ops.people.policy_targets import boundary_arn, list_principals, version_parameter
from tandem.shell_command import build_bootstrap_command, build_cdk_command

# requiresBootstrapStackVersion in the manifests of aws-cdk-lib 2.275: of stacks and assets, and of
# their lookup roles
MIN_BOOTSTRAP_VERSION = 6
MIN_LOOKUP_VERSION = 8  # an older one has no role for lookups, and `cdk diff` takes the deploy role
# RFC 2606
RESERVED_HOSTS = ("example", "example.com", "example.net", "example.org", "invalid", "test")
# enabled in each account
HOME_REGIONS = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
SUBSCRIPTION_LINES = (
    "observability: {alarm_subscriptions: [{protocol: email, endpoint: oncall@example.com}]}"
)


def check_placeholders(context: DoctorContext, _: AccountClients) -> Iterator[Finding]:
    """Find placeholders of the example in a copied file."""
    environment = context.environment
    findings = []
    file = f"environments/{environment.name}.yaml"
    if environment.account in EXAMPLE_ACCOUNTS:
        message = f"account is {environment.account}, a placeholder"
        findings.append(Finding("fail", message, "write your own account", f"{file}: account"))
    reservation = environment.capacity.reservation_id
    if reservation == PLACEHOLDER_RESERVATION_ID:
        message = f"capacity.reservation_id is {reservation}, a placeholder"
        action = "write your reservation's id, or null until then"
        findings.append(Finding("fail", message, action, f"{file}: capacity.reservation_id"))
    host = _find_repository_host(environment)
    if any(host == name or host.endswith(f".{name}") for name in RESERVED_HOSTS):
        message = f"delivery.repo_url is at {host}, a placeholder"
        action = "write the URL of the repository that holds manifests/"
        findings.append(Finding("fail", message, action, f"{file}: delivery.repo_url"))
    yield from findings or [Finding("ok", "none left in the environment's file")]


def _find_repository_host(environment: Environment) -> str:
    delivery = environment.delivery
    url = delivery.repo_url if isinstance(delivery, GitopsDelivery) else ""
    return urlsplit(url).hostname or ""


def check_credentials(context: DoctorContext, account: AccountClients) -> Finding:
    """Compare the account of the credentials with the declared one."""
    declared_account = context.environment.account
    try:
        identity = account.ask("sts", "GetCallerIdentity", "credentials")
    except TandemError as error:
        return _judge_refused_credentials(context, account, error)
    if identity["Account"] == declared_account:
        caller = identity["Arn"].partition("::")[2].partition(":")[2]
        return Finding("ok", f"account {declared_account} as {caller}")
    message = (
        f"these are of account {identity['Account']}, the environment is in {declared_account}"
    )
    return Finding("fail", message, f"log in to {declared_account}, or name another environment")


def _judge_refused_credentials(
    context: DoctorContext, account: AccountClients, error: TandemError
) -> Finding:
    environment = context.environment
    cause = error.__cause__
    home_region = HOME_REGIONS[names.aws_partition(environment.region)]
    # a region that is not enabled accepts no credentials, good or bad
    if error_code(cause) in ANSWER_CODES["foreign"] and _accepts_credentials(account, home_region):
        message = f"accepted in {home_region}: {environment.region} is not enabled for the account"
        return Finding("fail", message, "enable it", _build_enable_command(environment.region))
    fault = classify_fault(cause, "GetCallerIdentity") if cause else None
    if fault is not None and fault.kind == "no credentials":
        message = f"no credentials for account {environment.account}"
        return Finding("fail", message, "set AWS_PROFILE", code=error.exit_code)
    return Finding("fail", error.problem, error.change, code=error.exit_code)


def _accepts_credentials(account: AccountClients, region: str) -> bool:
    try:
        account.ask("sts", "GetCallerIdentity", "credentials", region=region)
    except TandemError:
        return False
    return True


def _build_enable_command(region: str) -> str:
    return build_aws_command("account enable-region", region_name=region)


def check_region(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the account may use the region."""
    name = context.environment.region
    absent = {"InvalidParameterValue"}
    response = account.find(
        "ec2", "DescribeRegions", name, absent=absent, RegionNames=[name], AllRegions=True
    )
    if not response or not response["Regions"]:
        return Finding("fail", f"AWS knows no region {name}", "correct `region`")
    status = response["Regions"][0]["OptInStatus"]
    if status == "not-opted-in":
        return Finding(
            "fail",
            f"{name} is not enabled for the account",
            "enable it",
            _build_enable_command(name),
        )
    return Finding("ok", f"{name} is enabled ({status})")


def check_bootstrap(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the CDK was bootstrapped with the qualifier, by a new enough bootstrap."""
    environment = context.environment
    bootstrap = environment.bootstrap
    parameter = version_parameter(environment)
    place = f"aws://{environment.account}/{environment.region}"
    command = build_bootstrap_command(place, bootstrap.qualifier, bootstrap.permissions_boundary)
    response = account.find("ssm", "GetParameter", parameter, Name=parameter)
    if response is None:
        return Finding(
            "fail", f"there is no {parameter}", "bootstrap once per account and region", command
        )
    value = response["Parameter"]["Value"]
    if not value.isdigit() or int(value) < MIN_BOOTSTRAP_VERSION:
        message = f"{parameter} is {value}, the CDK needs {MIN_BOOTSTRAP_VERSION}"
        return Finding("fail", message, "bootstrap again", command)
    if int(value) < MIN_LOOKUP_VERSION:
        return Finding(
            "warn", f"{parameter} is {value}: too old for `cdk diff`", "bootstrap again", command
        )
    return Finding("ok", f"version {value} with qualifier {bootstrap.qualifier}")


def check_boundary(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the permissions boundary exists: IAM makes no role with a missing one."""
    if context.environment.bootstrap.permissions_boundary is None:
        return Finding("ok", "none is declared")
    arn = boundary_arn(context.environment)
    if account.find("iam", "GetPolicy", arn, PolicyArn=arn):
        return Finding("ok", arn)
    return Finding(
        "fail", f"there is no policy {arn}", "create it, or correct bootstrap.permissions_boundary"
    )


def check_stacks(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Report the deployed stacks, and which of them block the next deploy.

    Source of the states: CloudFormation user guide, "Stack status codes".
    """
    environment = context.environment
    images = [image.name for image in list_hosted_images(context.experiments)]
    kinds = names.stack_kinds(environment, images)
    stacks = list(filter(None, (read_stack(account, kind) for kind in kinds)))
    judged = [_judge_stack(environment, stack) for stack in stacks]
    problems = [finding for finding in judged if finding is not None]
    yield from problems
    if not problems:
        yield _judge_presence(environment, kinds, [stack.kind for stack in stacks])


def _judge_presence(
    environment: Environment, kinds: Sequence[str], present: Sequence[str]
) -> Finding:
    """Report how many of the stacks exist."""
    if not present:
        return Finding("ok", "no stack exists: never deployed, or destroyed")
    missing = [kind for kind in kinds if kind not in present]
    if not missing:
        return Finding("ok", f"all {len(present)} are deployed")
    message = f"partly deployed: {', '.join(present)}; missing: {', '.join(missing)}"
    command = build_cdk_command("deploy", environment.name)
    return Finding("warn", message, "deploy the others before a run", command)


def _judge_stack(environment: Environment, stack: CloudFormationStack) -> Finding | None:
    """Report a stack that takes no deploy now; None if it does."""
    message = f"{stack.name} is {stack.status}"
    flags = {"stack_name": stack.name, "region": environment.region}
    if stack.status.endswith("_IN_PROGRESS"):
        return Finding("warn", message, "wait for its end, a deploy would fail now")
    if stack.status == "UPDATE_ROLLBACK_FAILED":
        action = "fix what the events name, then roll back"
        command = build_aws_command("cloudformation continue-update-rollback", **flags)
        return Finding("fail", message, action, command, EXIT_EXTERNAL)
    if stack.status == "ROLLBACK_COMPLETE" or stack.status.endswith("_FAILED"):
        action = "read its events, delete it, deploy again"
        command = build_aws_command("cloudformation delete-stack", **flags)
        return Finding("fail", f"{message}: it takes no update", action, command, EXIT_EXTERNAL)
    return None


def check_principals(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that each `cluster.access` principal exists by ARN: EKS refuses an entry for any other.

    IAM looks a principal up by its name alone, so its ARN is compared with the one that IAM
    returns: a path may be missing.
    """
    arns = dict.fromkeys(list_principals(context.environment))
    judged = [_judge_principal(context.environment, account, arn) for arn in arns]
    problems = [finding for finding in judged if finding is not None]
    yield from problems
    if not context.environment.cluster.access.admin:
        message = "cluster.access.admin is empty: nobody can enter the cluster"
        yield Finding("warn", message, "name at least one")
    existing_count = len(judged) - len(problems)
    if existing_count:
        yield Finding("ok", f"{existing_count} principals of cluster.access exist")


def _judge_principal(environment: Environment, account: AccountClients, arn: str) -> Finding | None:
    """Report a principal that IAM does not know by this ARN; None if it does."""
    if arn.split(":")[4] != environment.account:
        action = "check there that it exists: this account cannot"
        return Finding("warn", f"{arn} is of another account", action)
    kind, _, path = arn.rpartition(":")[2].partition("/")
    name = path.rpartition("/")[2]
    if kind == "role":
        answer = account.find("iam", "GetRole", arn, RoleName=name)
    else:
        answer = account.find("iam", "GetUser", arn, UserName=name)
    if answer is None:
        return Finding("fail", f"there is no {kind} {arn}", "create it, or correct cluster.access")
    own_arn = answer[kind.capitalize()]["Arn"]
    if own_arn == arn:
        return None
    message = f"there is no {arn}: the {kind} of this name has another ARN"
    return Finding("fail", message, f"write {own_arn}")


def check_subscriptions(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that every subscriber has confirmed: an unconfirmed one gets no message."""
    subscriptions = context.environment.observability.alarm_subscriptions
    topic = build_topic_arn(context.environment)
    if not subscriptions:
        message = "observability.alarm_subscriptions is empty: nobody gets alarms"
        yield Finding("warn", message, "add one", SUBSCRIPTION_LINES)
        return
    subscribers = _read_subscribers(account, topic)
    if subscribers is None:
        message = "the topic is not there yet; each subscriber confirms once after the first deploy"
        yield Finding("ok", message)
        return

    confirmed_count = 0
    for subscription in subscriptions:
        protocol = subscription.protocol
        endpoint = subscription.endpoint
        command = build_aws_command(
            f"sns subscribe --region {context.environment.region}",
            topic_arn=topic,
            protocol=protocol,
            notification_endpoint=endpoint,
        )
        state = subscribers.get((protocol, endpoint))
        if state is None:
            message = f"{endpoint} ({protocol}) is declared and not subscribed"
            action = "deploy; if its confirmation has lapsed, subscribe it again"
            yield Finding("warn", message, action, command)
        elif state == "PendingConfirmation":
            message = f"{endpoint} ({protocol}) has not confirmed"
            yield Finding(
                "warn", message, "follow the link in its mail, or subscribe again", command
            )
        else:
            confirmed_count += 1
    if confirmed_count:
        yield Finding("ok", f"{confirmed_count} of {len(subscriptions)} subscribers have confirmed")


def _read_subscribers(account: AccountClients, topic: str) -> dict[tuple[str, str], str] | None:
    """Return the ARN or state of each subscriber of a topic; None if there is no topic."""
    try:
        rows = list(
            account.list_rows(
                "sns", "ListSubscriptionsByTopic", "Subscriptions", topic, TopicArn=topic
            )
        )
    except TandemError as error:
        if error_code(error.__cause__) not in ABSENT_CODES:
            raise
        return None
    return {(row["Protocol"], row["Endpoint"]): row["SubscriptionArn"] for row in rows}
