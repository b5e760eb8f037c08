"""Group account: who asks, and whether the account is ready for a first deploy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from tandem.aws.faults import ANSWER_CODES
from tandem.errors import TandemError
from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.call_policy import boundary_arn, version_parameter
from tandem.ops.doctor.check_result import (
    EXIT_EXTERNAL,
    CheckFinding,
    fail_finding,
    ok_finding,
    warn_finding,
)
from tandem.ops.doctor.context import DoctorContext
from tandem.ops.faults import error_code
from tandem.ops.guard_config import aws_partition
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


def check_placeholders(context: DoctorContext, _: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Find what a copied file still has of the example."""
    environment, file = context.environment, f"environments/{context.environment.name}.yaml"
    placeholders = list(_list_placeholders(environment))
    for path, value, change in placeholders:
        yield fail_finding(f"{path} is {value}, a placeholder", change, f"{file}: {path}")
    if not placeholders:
        yield ok_finding("none left in the environment's file")


def _list_placeholders(environment: Environment) -> Iterator[tuple[str, str, str]]:
    if environment.account in EXAMPLE_ACCOUNTS:
        yield "account", environment.account, "write your own account"
    if environment.capacity.reservation_id == PLACEHOLDER_RESERVATION_ID:
        yield "capacity.reservation_id", PLACEHOLDER_RESERVATION_ID, "write your reservation's id, or null until then"
    delivery = environment.delivery
    host = (urlsplit(delivery.repo_url).hostname or "") if isinstance(delivery, GitopsDelivery) else ""
    if any(host == name or host.endswith(f".{name}") for name in RESERVED_HOSTS):
        yield "delivery.repo_url", f"at {host}", "write the URL of the repository that holds manifests/"


def check_credentials(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Compare the account of the credentials with the declared one."""
    environment = context.environment
    try:
        identity = _read_identity(account)
    except TandemError as error:
        yield _judge_identity_error(context, account, error)
        return
    if identity["Account"] != environment.account:
        yield fail_finding(
            f"these are of account {identity['Account']}, the environment is in {environment.account}",
            f"log in to {environment.account}, or name the environment of {identity['Account']}", IDENTITY_COMMAND,
        )  # fmt: skip
    else:
        yield ok_finding(f"account {identity['Account']} as {identity['Arn'].partition('::')[2].partition(':')[2]}")


def _read_identity(account: AllowlistedAccount, region: str = "") -> dict[str, Any]:
    identity = account.ask("sts", "GetCallerIdentity", "credentials", region=region)
    assert identity is not None, "no code of GetCallerIdentity says absent"
    return identity


def _judge_identity_error(context: DoctorContext, account: AllowlistedAccount, error: TandemError) -> CheckFinding:
    """Tell credentials that are bad from good ones in a region that is not enabled, where none is accepted."""
    region = context.environment.region
    home_region = HOME_REGIONS[aws_partition(region)]
    code = error_code(error.__cause__)
    if code in ANSWER_CODES["foreign"] and home_region != region:
        try:
            _read_identity(account, home_region)
        except TandemError:
            pass
        else:
            return fail_finding(
                f"accepted in {home_region} and not in {region}: the region is not enabled for the account",
                "enable it",
                quote_command("aws", "account", "enable-region", "--region-name", region),
            )
    action = "log in again" if code in ANSWER_CODES["expired"] else error.change
    return fail_finding(error.problem, action, IDENTITY_COMMAND, code=error.exit_code)


def check_region(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the account may use the region."""
    name = context.environment.region
    response = account.ask(
        "ec2", "DescribeRegions", name, absent={"InvalidParameterValue"}, RegionNames=[name], AllRegions=True
    )
    rows = response["Regions"] if response else []
    if not rows:
        yield fail_finding(
            f"AWS knows no region {name}", "correct `check_region`", "aws ec2 describe-regions --all-regions"
        )
    elif rows[0]["OptInStatus"] == "not-opted-in":
        yield fail_finding(
            f"{name} is not enabled for the account", "enable it",
            quote_command("aws", "account", "enable-region", "--region-name", name),
        )  # fmt: skip
    else:
        yield ok_finding(f"{name} is enabled ({rows[0]['OptInStatus']})")


def check_bootstrap(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the CDK was bootstrapped with the environment's qualifier, and that it is new enough."""
    parameter = version_parameter(context.environment)
    response = account.ask("ssm", "GetParameter", parameter, absent={"ParameterNotFound"}, Name=parameter)
    value = str(response["Parameter"]["Value"]) if response else ""
    if response is None:
        yield fail_finding(
            f"there is no {parameter}",
            "bootstrap once per account and region",
            _build_bootstrap_command(context.environment),
        )
    elif not value.isdigit() or int(value) < MIN_BOOTSTRAP_VERSION:
        yield fail_finding(
            f"{parameter} is {value}, the CDK in use needs {MIN_BOOTSTRAP_VERSION}", "bootstrap again",
            _build_bootstrap_command(context.environment),
        )  # fmt: skip
    elif int(value) < MIN_LOOKUP_VERSION:
        yield warn_finding(
            f"{parameter} is {value}: enough to deploy, too old for the role that `cdk diff` looks with",
            "bootstrap again", _build_bootstrap_command(context.environment),
        )  # fmt: skip
    else:
        yield ok_finding(f"version {value} with qualifier {context.environment.bootstrap.qualifier}")


def _build_bootstrap_command(environment: Environment) -> str:
    bootstrap = environment.bootstrap
    boundary_flags = (
        ["--custom-permissions-boundary", bootstrap.permissions_boundary] if bootstrap.permissions_boundary else []
    )
    return quote_command(
        "npx",
        "cdk",
        "bootstrap",
        f"aws://{environment.account}/{environment.region}",
        "--qualifier",
        bootstrap.qualifier,
        "--toolkit-stack-name",
        f"CDKToolkit-{bootstrap.qualifier}",
        *boundary_flags,
    )


def check_boundary(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the permissions boundary exists: a role with one that does not is never made."""
    name = context.environment.bootstrap.permissions_boundary
    if name is None:
        yield ok_finding("none is declared")
        return
    arn = boundary_arn(context.environment)
    if account.ask("iam", "GetPolicy", arn, absent={"NoSuchEntity", "NoSuchEntityException"}, PolicyArn=arn) is None:
        yield fail_finding(
            f"there is no policy {arn}", "make it, or correct bootstrap.permissions_boundary",
            "aws iam list-policies --scope Local --query 'Policies[].Arn'",
        )  # fmt: skip
    else:
        yield ok_finding(arn)


def check_stacks(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Tell what of the environment is deployed, and what of it stands in the way of the next deploy."""
    environment = context.environment
    states = {
        kind: _read_stack_status(account, names.stack_name(environment, kind))
        for kind in names.stack_kinds(environment)
    }
    present_states = {kind: state for kind, state in states.items() if state is not None}
    findings = {
        kind: finding for kind, state in present_states.items() if (finding := _judge_stack(environment, kind, state))
    }
    yield from findings.values()
    absent_kinds = [kind for kind in states if kind not in present_states]
    if not present_states:
        yield ok_finding("none is there: never deployed, or destroyed")
    elif absent_kinds and not findings:
        yield warn_finding(
            f"half is there: {', '.join(present_states)}; not there: {', '.join(absent_kinds)}",
            "deploy the others before a run",
            build_cdk_command("deploy", environment.name),
        )
    elif not findings:
        yield ok_finding(f"all {len(present_states)} are deployed")


def _read_stack_status(account: AllowlistedAccount, stack: str) -> str | None:
    response = account.ask("cloudformation", "DescribeStacks", stack, absent=NOT_FOUND_CODES, StackName=stack)
    rows = response["Stacks"] if response else []
    return str(rows[0]["StackStatus"]) if rows else None


def _judge_stack(environment: Environment, kind: str, state: str) -> CheckFinding | None:
    """Return what is wrong with a stack in this state (CloudFormation user guide, "Stack status codes")."""
    stack = names.stack_name(environment, kind)

    def build_command(verb: str) -> str:
        return quote_command("aws", "cloudformation", verb, "--stack-name", stack, "--region", environment.region)

    if state.endswith("_IN_PROGRESS"):
        return warn_finding(f"{stack} is {state}", "wait for its end, a deploy would fail now",
                    build_command("describe-stack-events"))  # fmt: skip
    if state == "UPDATE_ROLLBACK_FAILED":
        return fail_finding(f"{stack} is {state}", "make good what the events name, then roll back",
                    build_command("continue-update-rollback"), code=EXIT_EXTERNAL)  # fmt: skip
    if state == "ROLLBACK_COMPLETE" or state.endswith("_FAILED"):
        return fail_finding(f"{stack} is {state}: it takes no update", "read its events, delete it, deploy again",
                    build_command("delete-stack"), code=EXIT_EXTERNAL)  # fmt: skip
    return None
