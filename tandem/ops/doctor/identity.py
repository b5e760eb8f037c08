"""Groups account and people: the caller, readiness for a deploy, access, notifications."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from tandem.aws.faults import ANSWER_CODES, classify_fault, error_code
from tandem.declarations import names
from tandem.declarations.environment import (
    EXAMPLE_ACCOUNTS,
    PLACEHOLDER_RESERVATION_ID,
    GitopsDelivery,
)
from tandem.declarations.project_image import list_hosted_images
from tandem.errors import TandemError
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.destroy.stacks import read_stack
from tandem.ops.doctor.context import EXIT_EXTERNAL, DoctorContext, Finding
from tandem.ops.faults import ABSENT_CODES
from tandem.ops.guard_config import topic_arn
from tandem.ops.people.policy_targets import boundary_arn, list_principals, version_parameter
from tandem.shell_command import build_cdk_command, quote_command

# requiresBootstrapStackVersion in the manifests of aws-cdk-lib 2.275: of stacks and assets, and of
# their lookup roles
MIN_BOOTSTRAP_VERSION = 6
MIN_LOOKUP_VERSION = 8  # an older one has no role for lookups, and `cdk diff` takes the deploy role
# RFC 2606
RESERVED_HOSTS = ("example", "example.com", "example.net", "example.org", "invalid", "test")
# enabled in each account
HOME_REGIONS = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}


def check_placeholders(context: DoctorContext, _: AccountClients) -> Iterator[Finding]:
    """Find placeholders of the example in a copied file."""
    environment = context.environment
    delivery = context.environment.delivery
    host = (
        (urlsplit(delivery.repo_url).hostname or "") if isinstance(delivery, GitopsDelivery) else ""
    )
    is_reserved = any(host == name or host.endswith(f".{name}") for name in RESERVED_HOSTS)
    reservation = environment.capacity.reservation_id
    action = "write your reservation's id, or null until then"
    rows = (
        (
            "account",
            environment.account,
            "write your own account",
            environment.account in EXAMPLE_ACCOUNTS,
        ),
        ("capacity.reservation_id", reservation, action, reservation == PLACEHOLDER_RESERVATION_ID),
        (
            "delivery.repo_url",
            f"at {host}",
            "write the URL of the repository that holds manifests/",
            is_reserved,
        ),
    )
    for path, value, change, is_placeholder in rows:
        if is_placeholder:
            place = f"environments/{environment.name}.yaml: {path}"
            yield Finding("fail", f"{path} is {value}, a placeholder", change, place)
    if not any(row[-1] for row in rows):
        yield Finding("ok", "none left in the environment's file")


def check_credentials(context: DoctorContext, account: AccountClients) -> Finding:
    """Compare the account of the credentials with the declared one."""
    declared_account = context.environment.account
    region = context.environment.region
    try:
        identity = account.ask("sts", "GetCallerIdentity", "credentials")
    except TandemError as error:
        # query the home region too: a region that is not enabled accepts no credentials, good or
        # bad
        code = error_code(error.__cause__)
        home_region = HOME_REGIONS[names.aws_partition(region)]
        if code in ANSWER_CODES["foreign"] and home_region != region:
            try:
                account.ask("sts", "GetCallerIdentity", "credentials", region=home_region)
            except TandemError:
                pass
            else:
                message = f"accepted in {home_region}: {region} is not enabled for the account"
                return Finding("fail", message, "enable it", _build_enable_command(region))
        fault = classify_fault(error.__cause__, "GetCallerIdentity") if error.__cause__ else None
        if fault is not None and fault.kind == "no credentials":
            message = f"no credentials for account {declared_account}"
            return Finding("fail", message, "set AWS_PROFILE", code=error.exit_code)
        return Finding("fail", error.problem, error.change, code=error.exit_code)
    if identity["Account"] == declared_account:
        return Finding(
            "ok",
            f"account {declared_account} as {identity['Arn'].partition('::')[2].partition(':')[2]}",
        )
    message = (
        f"these are of account {identity['Account']}, the environment is in {declared_account}"
    )
    return Finding("fail", message, f"log in to {declared_account}, or name another environment")


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
    bootstrap = context.environment.bootstrap
    parameter = version_parameter(environment)
    boundary = bootstrap.permissions_boundary
    command = quote_command(
        *("npx", "cdk", "bootstrap", f"aws://{environment.account}/{environment.region}"),
        *(
            "--qualifier",
            bootstrap.qualifier,
            "--toolkit-stack-name",
            f"CDKToolkit-{bootstrap.qualifier}",
        ),
        *(("--custom-permissions-boundary", boundary) if boundary else ()),
    )
    response = account.find("ssm", "GetParameter", parameter, Name=parameter)
    if response is None:
        return Finding(
            "fail", f"there is no {parameter}", "bootstrap once per account and region", command
        )
    value = str(response["Parameter"]["Value"])
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
        "fail", f"there is no policy {arn}", "make it, or correct bootstrap.permissions_boundary"
    )


def check_stacks(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Report the deployed stacks, and which of them block the next deploy.

    Source of the states: CloudFormation user guide, "Stack status codes".
    """
    environment = context.environment
    images = [image.name for image in list_hosted_images(context.experiments)]
    kinds = names.stack_kinds(environment, images)
    is_good = True
    present = {kind: stack.status for kind in kinds if (stack := read_stack(account, kind))}
    for kind, state in present.items():
        stack_name = names.stack_name(environment, kind)
        code = EXIT_EXTERNAL
        roll_back, delete = (
            build_aws_command(
                f"cloudformation {verb}", stack_name=stack_name, region=environment.region
            )
            for verb in ("continue-update-rollback", "delete-stack")
        )
        if state.endswith("_IN_PROGRESS"):
            yield Finding(
                "warn", f"{stack_name} is {state}", "wait for its end, a deploy would fail now"
            )
        elif state == "UPDATE_ROLLBACK_FAILED":
            action = "make good what the events name, then roll back"
            yield Finding("fail", f"{stack_name} is {state}", action, roll_back, code)
        elif state == "ROLLBACK_COMPLETE" or state.endswith("_FAILED"):
            message = f"{stack_name} is {state}: it takes no update"
            action = "read its events, delete it, deploy again"
            yield Finding("fail", message, action, delete, code)
        else:
            continue
        is_good = False
    if not present:
        yield Finding("ok", "none is there: never deployed, or destroyed")
    elif is_good and len(present) < len(kinds):
        absent_text = ", ".join(kind for kind in kinds if kind not in present)
        message = f"half is there: {', '.join(present)}; not there: {absent_text}"
        yield Finding(
            "warn",
            message,
            "deploy the others before a run",
            build_cdk_command("deploy", environment.name),
        )
    elif is_good:
        yield Finding("ok", f"all {len(present)} are deployed")


def check_principals(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that each `cluster.access` principal exists by ARN: EKS refuses an entry for any other.

    IAM looks a principal up by its name alone, so its ARN is compared with the one that IAM
    returns: a path may be missing.
    """
    existing_count = 0
    for arn in dict.fromkeys(list_principals(context.environment)):
        kind, _, path = arn.rpartition(":")[2].partition("/")
        name = path.rpartition("/")[2]
        operation, parameter = (
            ("GetRole", "RoleName") if kind == "role" else ("GetUser", "UserName")
        )
        if arn.split(":")[4] != context.environment.account:
            yield Finding(
                "warn",
                f"{arn} is of another account",
                "see there that it exists: this account cannot look",
            )
            continue
        answer = account.find("iam", operation, arn, **{parameter: name})
        own_arn = answer[kind.capitalize()]["Arn"] if answer else None
        if own_arn is None:
            yield Finding("fail", f"there is no {kind} {arn}", "make it, or correct cluster.access")
        elif own_arn != arn:
            yield Finding(
                "fail",
                f"there is no {arn}: the {kind} of this name has another ARN",
                f"write {own_arn}",
            )
        else:
            existing_count += 1
    if not context.environment.cluster.access.admin:
        yield Finding(
            "warn",
            "cluster.access.admin is empty: nobody can enter the cluster",
            "name at least one",
        )
    if existing_count:
        yield Finding("ok", f"{existing_count} principals of cluster.access exist")


def check_subscriptions(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that every subscriber has confirmed: an unconfirmed one gets no message."""
    subscriptions = context.environment.observability.alarm_subscriptions
    topic = topic_arn(context.environment)
    if not subscriptions:
        command = (
            "observability: {alarm_subscriptions: [{protocol: email, endpoint:"
            " oncall@example.com}]}"
        )
        yield Finding(
            "warn",
            "observability.alarm_subscriptions is empty: nobody gets alarms",
            "add one",
            command,
        )
        return
    try:
        rows = list(
            account.list_rows(
                "sns", "ListSubscriptionsByTopic", "Subscriptions", topic, TopicArn=topic
            )
        )
    except TandemError as error:
        if error_code(error.__cause__) not in ABSENT_CODES:
            raise
        yield Finding(
            "ok", "the topic is not there yet; each subscriber confirms once after the first deploy"
        )
        return
    states = {(row["Protocol"], row["Endpoint"]): row["SubscriptionArn"] for row in rows}
    problems = {
        None: (
            "is declared and not subscribed",
            "deploy; if its confirmation has lapsed, subscribe it again",
        ),
        "PendingConfirmation": (
            "has not confirmed",
            "follow the link in its mail, or subscribe again",
        ),
    }
    confirmed_count = 0
    for subscription in subscriptions:
        protocol = subscription.protocol
        endpoint = subscription.endpoint
        state = states.get((protocol, endpoint))
        flags = {"topic_arn": topic, "protocol": protocol, "notification_endpoint": endpoint}
        command = build_aws_command(f"sns subscribe --region {context.environment.region}", **flags)
        if state in problems:
            problem, action = problems[state]
            yield Finding("warn", f"{endpoint} ({protocol}) {problem}", action, command)
        else:
            confirmed_count += 1
    if confirmed_count:
        yield Finding("ok", f"{confirmed_count} of {len(subscriptions)} subscribers have confirmed")
