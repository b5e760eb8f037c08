"""Every call that the doctor may make, and the IAM policy that allows just these.

Invariant: `Account.ask` makes no call that is not in CALLS, and each of them reads; the proof of the one-shot stop, and
nothing else, may make those of PROOF_CALLS too. Actions and the resources that they take are those of the Service
Authorization Reference; `*` stands where it names no narrower resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tandem.ops.guarded import former_prefix_of, partition_of, prefix_of
from tandem.spec import names
from tandem.spec.built_image import BUILT
from tandem.spec.environment import Environment
from tandem.stop import POINTER_KEY

PROOF = "prove-stop-"  # a proof's schedule begins with it; a lease's with `stop-`
FENCE_AND_LEASES = ("stop.json", POINTER_KEY, "runs/*/lease.json", "runs/*/heartbeat.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of one service.

    Args:
        service: as boto3 names it.
        operation: as the API reference spells it.
        action: that IAM must allow; empty for one that needs no right.
    """

    service: str
    operation: str
    action: str


def _call(service: str, operation: str, action: str | None = None) -> Call:
    return Call(
        service=service, operation=operation, action=f"{service}:{operation}" if action is None else action
    )  # fmt: skip


CALLS = (
    _call("sts", "GetCallerIdentity", ""),
    _call("autoscaling", "DescribeAutoScalingGroups"),
    _call("budgets", "DescribeBudget", "budgets:ViewBudget"),
    _call("ce", "ListCostAllocationTags"),
    _call("cloudformation", "DescribeStacks"),
    _call("ec2", "DescribeAvailabilityZones"),
    _call("ec2", "DescribeCapacityReservations"),
    _call("ec2", "DescribeInstanceTypeOfferings"),
    _call("ec2", "DescribeInstances"),
    _call("ec2", "DescribeRegions"),
    _call("ec2", "DescribeSubnets"),
    _call("ecr", "DescribeImages"),
    _call("ecr", "DescribePullThroughCacheRules"),
    _call("eks", "DescribeAddonVersions"),
    _call("eks", "DescribeCluster"),
    _call("eks", "DescribeClusterVersions"),
    _call("eks", "DescribeNodegroup"),
    _call("iam", "GetPolicy"),
    _call("iam", "GetRole"),
    _call("iam", "GetUser"),
    _call("kms", "DescribeKey"),
    _call("lambda", "GetFunctionConfiguration"),
    _call("s3", "GetObject"),
    _call("s3", "HeadBucket", "s3:ListBucket"),
    _call("s3", "ListBuckets", "s3:ListAllMyBuckets"),
    _call("scheduler", "GetSchedule"),
    _call("scheduler", "ListSchedules"),
    _call("secretsmanager", "DescribeSecret"),
    _call("service-quotas", "ListAWSDefaultServiceQuotas", "servicequotas:ListAWSDefaultServiceQuotas"),
    _call("service-quotas", "ListServiceQuotas", "servicequotas:ListServiceQuotas"),
    _call("sns", "ListSubscriptionsByTopic"),
    _call("ssm", "GetParameter"),
)
"""In the order of their names, after the one that says who asks."""

PROOF_CALLS = (
    _call("eks", "DescribeUpdate"),
    _call("eks", "ListUpdates"),
    _call("scheduler", "CreateSchedule"),
    _call("scheduler", "DeleteSchedule"),
    _call("sqs", "DeleteMessage"),
    _call("sqs", "GetQueueUrl"),
    _call("sqs", "ReceiveMessage"),
)
"""What `--prove-stop` asks beside CALLS: a schedule of its own, EKS's updates, and the queue of what was given up."""

PASS_ROLE, DECRYPT = (
    "iam:PassRole",
    "kms:Decrypt",
)  # what IAM asks for beside a schedule with a role, an encrypted queue
_BY_NAME = {(call.service, call.operation): call for call in (*CALLS, *PROOF_CALLS)}


def known(service: str, operation: str) -> Call:
    """Return the call of this name.

    Raises:
        KeyError: neither the doctor nor the proof may make it.
    """
    return _BY_NAME[service, operation]


def resources(environment: Environment, action: str) -> tuple[str, ...]:
    """Return the ARNs that an action is needed on, `*` where it takes none."""
    return tuple(_resources(environment).get(action, ("*",)))


def _resources(environment: Environment) -> dict[str, list[str]]:
    place, region, account = partition_of(environment.region), environment.region, environment.account
    bucket, cluster, group = names.bucket(environment), names.cluster(environment), names.node_group(environment)
    buckets = [bucket] if environment.artifacts.existing_bucket else [bucket, names.log_bucket(environment)]
    # an image behind a mirror may lie in any repository of the account
    own = [names.repository(environment, image.name) for image in BUILT] if not environment.registry_mirrors else ["*"]

    def arn(service: str, rest: str) -> str:
        return f"arn:{place}:{service}:{region}:{account}:{rest}"

    principals = _principals(environment)
    updates = [arn("eks", f"cluster/{cluster}"), arn("eks", f"nodegroup/{cluster}/{group}/*")]
    schedules = [arn("scheduler", f"schedule/{names.schedule_group(environment)}/{PROOF}*")]
    every_schedule = [arn("scheduler", f"schedule/{names.schedule_group(environment)}/*")]
    prefixes = {prefix_of(environment), former_prefix_of(environment)}  # an older release's objects still rule
    queue = [arn("sqs", names.dead_letter_queue(environment))]
    found = {
        "budgets:ViewBudget": [f"arn:{place}:budgets::{account}:budget/{names.budget(environment)}"],
        "cloudformation:DescribeStacks": [arn("cloudformation", f"stack/{environment.name}-*/*")],
        "ecr:DescribeImages": [arn("ecr", f"repository/{name}") for name in own],
        "eks:DescribeCluster": [arn("eks", f"cluster/{cluster}")],
        "eks:DescribeNodegroup": [arn("eks", f"nodegroup/{cluster}/{group}/*")],
        "iam:GetRole": [one for one in principals if ":role/" in one],
        "iam:GetUser": [one for one in principals if ":user/" in one],
        "kms:DescribeKey": [environment.artifacts.kms_key_arn] if environment.artifacts.kms_key_arn else [],
        "lambda:GetFunctionConfiguration": [arn("lambda", f"function:{names.guard_function(environment, 'stop')}")],
        "s3:GetObject": [f"arn:{place}:s3:::{bucket}/{prefix}{key}" for prefix in prefixes for key in FENCE_AND_LEASES],
        "s3:ListBucket": [f"arn:{place}:s3:::{name}" for name in buckets],
        "sns:ListSubscriptionsByTopic": [topic_arn(environment)],
        "eks:DescribeUpdate": updates,
        "eks:ListUpdates": updates,
        "scheduler:CreateSchedule": schedules,
        "scheduler:DeleteSchedule": schedules,
        "scheduler:GetSchedule": every_schedule,
        "sqs:DeleteMessage": queue,
        "sqs:GetQueueUrl": queue,
        "sqs:ReceiveMessage": queue,
        PASS_ROLE: [f"arn:{place}:iam::{account}:role/{names.scheduler_role(environment)}"],
        DECRYPT: [arn("kms", "key/*")],
        "ssm:GetParameter": [arn("ssm", f"parameter{version_parameter(environment)}")],
        "iam:GetPolicy": [boundary_arn(environment)] if environment.bootstrap.permissions_boundary else [],
        "secretsmanager:DescribeSecret": (
            # Secrets Manager puts six characters of its own behind a name
            [arn("secretsmanager", f"secret:{environment.hub.token_secret}-??????")]
            if environment.hub.token_secret
            else []
        ),
    }
    return {action: sorted(set(arns)) for action, arns in found.items()}


def _principals(environment: Environment) -> list[str]:
    access = environment.cluster.access
    return [arn for kind in (access.admin, access.operator, access.engineer, access.viewer) for arn in kind]


def version_parameter(environment: Environment) -> str:
    """Return the SSM parameter in which a bootstrap keeps its version (CDK guide, "Bootstrap template")."""
    return f"/cdk-bootstrap/{environment.bootstrap.qualifier}/version"


def boundary_arn(environment: Environment) -> str:
    """Return the ARN of the permissions boundary's policy."""
    place = partition_of(environment.region)
    return f"arn:{place}:iam::{environment.account}:policy/{environment.bootstrap.permissions_boundary}"


def topic_arn(environment: Environment) -> str:
    """Return the ARN of the topic that tells people."""
    place, here = partition_of(environment.region), f"{environment.region}:{environment.account}"
    return f"arn:{place}:sns:{here}:{names.topic(environment)}"


def policy(environment: Environment, *, proof: bool = False) -> dict[str, Any]:
    """Return the IAM policy that allows all the doctor asks of this environment, and nothing else.

    Args:
        environment: as declared.
        proof: whether it is to allow the proof of the one-shot stop too.
    """
    statements = list(_statements(environment, (*CALLS, *PROOF_CALLS) if proof else CALLS))
    return {"Version": "2012-10-17", "Statement": [*statements, *(_beside(environment) if proof else ())]}


def _beside(environment: Environment) -> Iterator[dict[str, Any]]:
    """Yield what a schedule with a role and an encrypted queue need beside their own calls."""
    for action, condition in (
        (PASS_ROLE, {"iam:PassedToService": "scheduler.amazonaws.com"}),
        (DECRYPT, {"kms:ViaService": f"sqs.{environment.region}.amazonaws.com"}),
    ):
        yield {
            "Effect": "Allow", "Action": action, "Resource": list(resources(environment, action)),
            "Condition": {"StringEquals": condition},
        }  # fmt: skip


def _statements(environment: Environment, calls: Iterable[Call]) -> Iterator[dict[str, Any]]:
    everywhere: list[str] = []
    for action in sorted({call.action for call in calls if call.action}):
        arns = resources(environment, action)
        if arns == ("*",):
            everywhere.append(action)
        elif arns:
            yield {"Effect": "Allow", "Action": action, "Resource": list(arns)}
    if environment.artifacts.kms_key_arn:  # what S3 asks of whoever reads an object under the key
        by_s3 = {"StringEquals": {"kms:ViaService": f"s3.{environment.region}.amazonaws.com"}}
        key = environment.artifacts.kms_key_arn
        yield {"Effect": "Allow", "Action": DECRYPT, "Resource": [key], "Condition": by_s3}
    yield {"Effect": "Allow", "Action": everywhere, "Resource": "*"}
