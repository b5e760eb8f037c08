"""The guard's configuration of an environment, and the ARNs of its resources."""

from __future__ import annotations

from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.guard.config import GuardConfig


def build_guard_config(environment: Environment) -> GuardConfig:
    """Return the environment's fleet and its limits; this calls no service."""
    capacity = environment.capacity
    guard = environment.guard
    block = capacity.block if capacity.kind == "capacity-block" else None
    scheduler_role = f"role/{names.scheduler_role_name(environment)}"
    return GuardConfig(
        environment=environment.name,
        account=environment.account,
        region=environment.region,
        cluster=names.cluster_name(environment),
        node_group=names.node_group_name(environment),
        bucket=names.bucket_name(environment),
        topic_arn=topic_arn(environment),
        namespace=names.guard_namespace(environment),
        nodes=capacity.nodes,
        max_hours=guard.max_hours,
        idle_minutes=guard.idle_minutes,
        usd_per_hour=capacity.usd_per_hour,
        capacity_kind=capacity.kind,
        block_starts=block.starts if block else None,
        block_ends=block.ends if block else None,
        schedule_group=names.schedule_group_name(environment),
        scheduler_role_arn=build_arn(environment, "iam", scheduler_role, region=""),
        dead_letter_arn=build_arn(environment, "sqs", names.dead_letter_queue_name(environment)),
        prefix=object_prefix(environment),
    )


def topic_arn(environment: Environment) -> str:
    """Return the ARN of the topic that notifies people."""
    return build_arn(environment, "sns", names.topic_name(environment))


def stop_topic_arn(environment: Environment) -> str:
    """Return the ARN of the topic that stops the fleet, for any publisher."""
    return build_arn(environment, "sns", names.stop_topic_name(environment))


def object_prefix(environment: Environment) -> str:
    """Return the prefix of fence and leases, as an existing bucket may have other users.

    With one key for two environments, a stop of one would stop the other, and a lease of one would
    keep a fleet that the other forgot. Two accounts, or two regions, may each have an environment
    of the same name.
    """
    if not environment.artifacts.existing_bucket:
        return ""
    return f"guard/{environment.account}/{environment.region}/{environment.name}/"


def build_arn(
    environment: Environment, service: str, rest: str, *, region: str | None = None
) -> str:
    """Return the ARN of a resource of the account, by default in its region; "" names none."""
    arn_region = environment.region if region is None else region
    partition = names.aws_partition(environment.region)
    return f"arn:{partition}:{service}:{arn_region}:{environment.account}:{rest}"


def build_bucket_arn(environment: Environment, path: str = "", bucket: str = "") -> str:
    """Return the ARN of a bucket, the environment's by default, or of a path with its slash."""
    partition = names.aws_partition(environment.region)
    return f"arn:{partition}:s3:::{bucket or names.bucket_name(environment)}{path}"
