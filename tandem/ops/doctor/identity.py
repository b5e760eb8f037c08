"""Group account: who asks, and whether the account is ready for a first deploy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from tandem.ops.doctor.account import Account
from tandem.ops.doctor.calls import boundary_arn, version_parameter
from tandem.ops.doctor.line import WORLD, Finding, fail, ok, warn
from tandem.ops.doctor.subject import Subject
from tandem.ops.fault import EXPIRED, STRANGER, OpsError, code_of
from tandem.ops.guarded import partition_of
from tandem.shell_command import build_cdk_command, quote_command
from tandem.spec import names
from tandem.spec.environment import EXAMPLE_ACCOUNTS, PLACEHOLDER_RESERVATION_ID, Environment, GitopsDelivery

# requiresBootstrapStackVersion in the manifests of aws-cdk-lib 2.275: of stacks and assets, and of their lookup roles
BOOTSTRAP_VERSION = 6
LOOKUP_VERSION = 8  # an older one has no role to look with, and `cdk diff` takes the deploy role
RESERVED_HOSTS = ("example", "example.com", "example.net", "example.org", "invalid", "test")  # RFC 2606
HOME_REGIONS = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}  # enabled in each account
GONE = {"ValidationError"}  # with which CloudFormation says that there is no such stack
WHO = "aws sts get-caller-identity"


def placeholders(subject: Subject, _: Account) -> Iterator[Finding]:
    """Find what a copied file still has of the example."""
    environment, file = subject.environment, f"environments/{subject.environment.name}.yaml"
    found = list(_placeholders(environment))
    for path, value, change in found:
        yield fail(f"{path} is {value}, a placeholder", change, f"{file}: {path}")
    if not found:
        yield ok("none left in the environment's file")


def _placeholders(environment: Environment) -> Iterator[tuple[str, str, str]]:
    if environment.account in EXAMPLE_ACCOUNTS:
        yield "account", environment.account, "write your own account"
    if environment.capacity.reservation_id == PLACEHOLDER_RESERVATION_ID:
        yield "capacity.reservation_id", PLACEHOLDER_RESERVATION_ID, "write your reservation's id, or null until then"
    delivery = environment.delivery
    host = (urlsplit(delivery.repo_url).hostname or "") if isinstance(delivery, GitopsDelivery) else ""
    if any(host == name or host.endswith(f".{name}") for name in RESERVED_HOSTS):
        yield "delivery.repo_url", f"at {host}", "write the URL of the repository that holds manifests/"


def credentials(subject: Subject, account: Account) -> Iterator[Finding]:
    """Compare the account of the credentials with the declared one."""
    environment = subject.environment
    try:
        found = _identity(account)
    except OpsError as error:
        yield _no_identity(subject, account, error)
        return
    if found["Account"] != environment.account:
        yield fail(
            f"these are of account {found['Account']}, the environment is in {environment.account}",
            f"log in to {environment.account}, or name the environment of {found['Account']}", WHO,
        )  # fmt: skip
    else:
        yield ok(f"account {found['Account']} as {found['Arn'].partition('::')[2].partition(':')[2]}")


def _identity(account: Account, region: str = "") -> dict[str, Any]:
    found = account.ask("sts", "GetCallerIdentity", "credentials", region=region)
    assert found is not None, "no code of GetCallerIdentity says absent"
    return found


def _no_identity(subject: Subject, account: Account, error: OpsError) -> Finding:
    """Tell credentials that are bad from good ones in a region that is not enabled, where none is accepted."""
    region = subject.environment.region
    home = HOME_REGIONS[partition_of(region)]
    code = code_of(error.__cause__)
    if code in STRANGER and home != region:
        try:
            _identity(account, home)
        except OpsError:
            pass
        else:
            return fail(
                f"accepted in {home} and not in {region}: the region is not enabled for the account", "enable it",
                quote_command("aws", "account", "enable-region", "--region-name", region),
            )  # fmt: skip
    do = "log in again" if code in EXPIRED else error.change
    return fail(error.problem, do, WHO, code=error.code)


def region(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the account may use the region."""
    name = subject.environment.region
    found = account.ask(
        "ec2", "DescribeRegions", name, absent={"InvalidParameterValue"}, RegionNames=[name], AllRegions=True
    )
    rows = found["Regions"] if found else []
    if not rows:
        yield fail(f"AWS knows no region {name}", "correct `region`", "aws ec2 describe-regions --all-regions")
    elif rows[0]["OptInStatus"] == "not-opted-in":
        yield fail(
            f"{name} is not enabled for the account", "enable it",
            quote_command("aws", "account", "enable-region", "--region-name", name),
        )  # fmt: skip
    else:
        yield ok(f"{name} is enabled ({rows[0]['OptInStatus']})")


def bootstrap(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the CDK was bootstrapped with the environment's qualifier, and that it is new enough."""
    parameter = version_parameter(subject.environment)
    found = account.ask("ssm", "GetParameter", parameter, absent={"ParameterNotFound"}, Name=parameter)
    value = str(found["Parameter"]["Value"]) if found else ""
    if found is None:
        yield fail(f"there is no {parameter}", "bootstrap once per account and region", _bootstrap(subject.environment))
    elif not value.isdigit() or int(value) < BOOTSTRAP_VERSION:
        yield fail(
            f"{parameter} is {value}, the CDK in use needs {BOOTSTRAP_VERSION}", "bootstrap again",
            _bootstrap(subject.environment),
        )  # fmt: skip
    elif int(value) < LOOKUP_VERSION:
        yield warn(
            f"{parameter} is {value}: enough to deploy, too old for the role that `cdk diff` looks with",
            "bootstrap again", _bootstrap(subject.environment),
        )  # fmt: skip
    else:
        yield ok(f"version {value} with qualifier {subject.environment.bootstrap.qualifier}")


def _bootstrap(environment: Environment) -> str:
    mine = environment.bootstrap
    boundary = ["--custom-permissions-boundary", mine.permissions_boundary] if mine.permissions_boundary else []
    return quote_command(
        "npx", "cdk", "bootstrap", f"aws://{environment.account}/{environment.region}", "--qualifier", mine.qualifier,
        "--toolkit-stack-name", f"CDKToolkit-{mine.qualifier}", *boundary,
    )  # fmt: skip


def boundary(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the permissions boundary exists: a role with one that does not is never made."""
    name = subject.environment.bootstrap.permissions_boundary
    if name is None:
        yield ok("none is declared")
        return
    arn = boundary_arn(subject.environment)
    if account.ask("iam", "GetPolicy", arn, absent={"NoSuchEntity", "NoSuchEntityException"}, PolicyArn=arn) is None:
        yield fail(
            f"there is no policy {arn}", "make it, or correct bootstrap.permissions_boundary",
            "aws iam list-policies --scope Local --query 'Policies[].Arn'",
        )  # fmt: skip
    else:
        yield ok(arn)


def stacks(subject: Subject, account: Account) -> Iterator[Finding]:
    """Tell what of the environment is deployed, and what of it stands in the way of the next deploy."""
    environment = subject.environment
    states = {kind: _state(account, names.stack(environment, kind)) for kind in names.stack_kinds(environment)}
    there = {kind: state for kind, state in states.items() if state is not None}
    bad = {kind: finding for kind, state in there.items() if (finding := _stuck(environment, kind, state))}
    yield from bad.values()
    absent = [kind for kind in states if kind not in there]
    if not there:
        yield ok("none is there: never deployed, or destroyed")
    elif absent and not bad:
        yield warn(
            f"half is there: {', '.join(there)}; not there: {', '.join(absent)}", "deploy the others before a run",
            build_cdk_command("deploy", environment.name),
        )  # fmt: skip
    elif not bad:
        yield ok(f"all {len(there)} are deployed")


def _state(account: Account, stack: str) -> str | None:
    found = account.ask("cloudformation", "DescribeStacks", stack, absent=GONE, StackName=stack)
    rows = found["Stacks"] if found else []
    return str(rows[0]["StackStatus"]) if rows else None


def _stuck(environment: Environment, kind: str, state: str) -> Finding | None:
    """Return what is wrong with a stack in this state (CloudFormation user guide, "Stack status codes")."""
    stack = names.stack(environment, kind)

    def act(verb: str) -> str:
        return quote_command("aws", "cloudformation", verb, "--stack-name", stack, "--region", environment.region)

    if state.endswith("_IN_PROGRESS"):
        return warn(f"{stack} is {state}", "wait for its end, a deploy would fail now",
                    act("describe-stack-events"))  # fmt: skip
    if state == "UPDATE_ROLLBACK_FAILED":
        return fail(f"{stack} is {state}", "make good what the events name, then roll back",
                    act("continue-update-rollback"), code=WORLD)  # fmt: skip
    if state == "ROLLBACK_COMPLETE" or state.endswith("_FAILED"):
        return fail(f"{stack} is {state}: it takes no update", "read its events, delete it, deploy again",
                    act("delete-stack"), code=WORLD)  # fmt: skip
    return None
