"""Group account: who asks, and whether the account is ready for a first deploy."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from tandem.aws.faults import ANSWER_CODES, error_code
from tandem.errors import TandemError
from tandem.ops.account import build_aws_command
from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.context import EXIT_EXTERNAL, DoctorContext, Finding
from tandem.ops.guard_config import aws_partition
from tandem.ops.people.policy_targets import boundary_arn, version_parameter
from tandem.shell_command import build_cdk_command, quote_command
from tandem.spec import names
from tandem.spec.environment import EXAMPLE_ACCOUNTS, PLACEHOLDER_RESERVATION_ID, Environment, GitopsDelivery

# requiresBootstrapStackVersion in the manifests of aws-cdk-lib 2.275: of stacks and assets, and of their lookup roles
MIN_BOOTSTRAP_VERSION = 6
MIN_LOOKUP_VERSION = 8  # an older one has no role to look with, and `cdk diff` takes the deploy role
RESERVED_HOSTS = ("example", "example.com", "example.net", "example.org", "invalid", "test")  # RFC 2606
HOME_REGIONS = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}  # enabled in each account
NOT_FOUND_CODES = {"ValidationError"}  # with which CloudFormation says that there is no such stack
IDENTITY_COMMAND = "aws sts get-caller-identity"


def check_placeholders(context: DoctorContext, _: AllowlistedAccount) -> Iterator[Finding]:
    """Find what a copied file still has of the example."""
    environment = context.environment
    placeholders = []
    if environment.account in EXAMPLE_ACCOUNTS:
        placeholders.append(("account", environment.account, "write your own account"))
    if environment.capacity.reservation_id == PLACEHOLDER_RESERVATION_ID:
        change = "write your reservation's id, or null until then"
        placeholders.append(("capacity.reservation_id", PLACEHOLDER_RESERVATION_ID, change))
    delivery = environment.delivery
    host = (urlsplit(delivery.repo_url).hostname or "") if isinstance(delivery, GitopsDelivery) else ""
    if any(host == name or host.endswith(f".{name}") for name in RESERVED_HOSTS):
        change = "write the URL of the repository that holds manifests/"
        placeholders.append(("delivery.repo_url", f"at {host}", change))
    for path, value, change in placeholders:
        command = f"environments/{environment.name}.yaml: {path}"
        yield Finding("fail", f"{path} is {value}, a placeholder", change, command)
    if not placeholders:
        yield Finding("ok", "none left in the environment's file")


def check_credentials(context: DoctorContext, account: AllowlistedAccount) -> Iterator[Finding]:
    """Compare the account of the credentials with the declared one."""
    declared_account = context.environment.account
    try:
        identity = account.ask("sts", "GetCallerIdentity", "credentials")
    except TandemError as error:
        yield _judge_identity_error(context, account, error)
        return
    if identity["Account"] == declared_account:
        yield Finding("ok", f"account {declared_account} as {identity['Arn'].partition('::')[2].partition(':')[2]}")
        return
    message = f"these are of account {identity['Account']}, the environment is in {declared_account}"
    yield Finding("fail", message, f"log in to {declared_account}, or name another environment", IDENTITY_COMMAND)


def _judge_identity_error(context: DoctorContext, account: AllowlistedAccount, error: TandemError) -> Finding:
    """Tell credentials that are bad from good ones in a region that is not enabled, where none is accepted."""
    region, code = context.environment.region, error_code(error.__cause__)
    home_region = HOME_REGIONS[aws_partition(region)]
    if code in ANSWER_CODES["foreign"] and home_region != region:
        try:
            account.ask("sts", "GetCallerIdentity", "credentials", region=home_region)
        except TandemError:
            pass
        else:
            message = f"accepted in {home_region}: {region} is not enabled for the account"
            return Finding("fail", message, "enable it", _build_enable_command(region))
    action = "log in again" if code in ANSWER_CODES["expired"] else error.change
    return Finding("fail", error.problem, action, IDENTITY_COMMAND, code=error.exit_code)


def _build_enable_command(region: str) -> str:
    return build_aws_command("account enable-region", region_name=region)


def check_region(context: DoctorContext, account: AllowlistedAccount) -> Iterator[Finding]:
    """See that the account may use the region."""
    name = context.environment.region
    response = account.find(
        "ec2", "DescribeRegions", name, absent={"InvalidParameterValue"}, RegionNames=[name], AllRegions=True
    )
    rows = response["Regions"] if response else []
    if not rows:
        yield Finding(
            "fail", f"AWS knows no region {name}", "correct `region`", "aws ec2 describe-regions --all-regions"
        )
    elif rows[0]["OptInStatus"] == "not-opted-in":
        yield Finding("fail", f"{name} is not enabled for the account", "enable it", _build_enable_command(name))
    else:
        yield Finding("ok", f"{name} is enabled ({rows[0]['OptInStatus']})")


def check_bootstrap(context: DoctorContext, account: AllowlistedAccount) -> Iterator[Finding]:
    """See that the CDK was bootstrapped with the environment's qualifier, and that it is new enough."""
    environment, bootstrap = context.environment, context.environment.bootstrap
    parameter, boundary = version_parameter(environment), bootstrap.permissions_boundary
    command = quote_command(
        *("npx", "cdk", "bootstrap", f"aws://{environment.account}/{environment.region}"),
        *("--qualifier", bootstrap.qualifier, "--toolkit-stack-name", f"CDKToolkit-{bootstrap.qualifier}"),
        *(("--custom-permissions-boundary", boundary) if boundary else ()),
    )
    response = account.find("ssm", "GetParameter", parameter, absent={"ParameterNotFound"}, Name=parameter)
    if response is None:
        yield Finding("fail", f"there is no {parameter}", "bootstrap once per account and region", command)
        return
    value = str(response["Parameter"]["Value"])
    if not value.isdigit() or int(value) < MIN_BOOTSTRAP_VERSION:
        message = f"{parameter} is {value}, the CDK needs {MIN_BOOTSTRAP_VERSION}"
        yield Finding("fail", message, "bootstrap again", command)
    elif int(value) < MIN_LOOKUP_VERSION:
        yield Finding("warn", f"{parameter} is {value}: too old for `cdk diff`", "bootstrap again", command)
    else:
        yield Finding("ok", f"version {value} with qualifier {bootstrap.qualifier}")


def check_boundary(context: DoctorContext, account: AllowlistedAccount) -> Iterator[Finding]:
    """See that the permissions boundary exists: a role with one that does not is never made."""
    if context.environment.bootstrap.permissions_boundary is None:
        yield Finding("ok", "none is declared")
        return
    arn = boundary_arn(context.environment)
    if account.find("iam", "GetPolicy", arn, absent={"NoSuchEntity", "NoSuchEntityException"}, PolicyArn=arn):
        yield Finding("ok", arn)
        return
    command = build_aws_command("iam list-policies --scope Local", query="Policies[].Arn")
    yield Finding("fail", f"there is no policy {arn}", "make it, or correct bootstrap.permissions_boundary", command)


def check_stacks(context: DoctorContext, account: AllowlistedAccount) -> Iterator[Finding]:
    """Tell what of the environment is deployed, and what of it stands in the way of the next deploy."""
    environment = context.environment
    states = {kind: read_stack_status(account, kind) for kind in names.stack_kinds(environment)}
    present = {kind: state for kind, state in states.items() if state}
    findings = [finding for kind, state in present.items() if (finding := _judge_stack(environment, kind, state))]
    yield from findings
    absent_text = ", ".join(kind for kind in states if kind not in present)
    if not present:
        yield Finding("ok", "none is there: never deployed, or destroyed")
    elif absent_text and not findings:
        message = f"half is there: {', '.join(present)}; not there: {absent_text}"
        yield Finding("warn", message, "deploy the others before a run", build_cdk_command("deploy", environment.name))
    elif not findings:
        yield Finding("ok", f"all {len(present)} are deployed")


def read_stack_status(account: AllowlistedAccount, kind: str) -> str:
    """Return how CloudFormation calls the state of a stack; empty where there is none."""
    stack = names.stack_name(account.environment, kind)
    response = account.find("cloudformation", "DescribeStacks", stack, absent=NOT_FOUND_CODES, StackName=stack)
    return str(response["Stacks"][0]["StackStatus"]) if response and response["Stacks"] else ""


def _judge_stack(environment: Environment, kind: str, state: str) -> Finding | None:
    """Return what is wrong with a stack in this state (CloudFormation user guide, "Stack status codes")."""
    stack = names.stack_name(environment, kind)

    def build_command(verb: str) -> str:
        return build_aws_command(f"cloudformation {verb}", stack_name=stack, region=environment.region)

    if state.endswith("_IN_PROGRESS"):
        command = build_command("describe-stack-events")
        return Finding("warn", f"{stack} is {state}", "wait for its end, a deploy would fail now", command)
    if state == "UPDATE_ROLLBACK_FAILED":
        action, command = "make good what the events name, then roll back", build_command("continue-update-rollback")
        return Finding("fail", f"{stack} is {state}", action, command, code=EXIT_EXTERNAL)
    if state == "ROLLBACK_COMPLETE" or state.endswith("_FAILED"):
        action, command = "read its events, delete it, deploy again", build_command("delete-stack")
        return Finding("fail", f"{stack} is {state}: it takes no update", action, command, code=EXIT_EXTERNAL)
    return None
