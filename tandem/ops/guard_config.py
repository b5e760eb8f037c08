"""The guard's configuration of an environment."""

from __future__ import annotations

from tandem.declarations import names
from tandem.declarations.arns import build_arn, build_topic_arn
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
        topic_arn=build_topic_arn(environment),
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


def object_prefix(environment: Environment) -> str:
    """Return the prefix of fence and leases, as an existing bucket may have other users.

    With one key for two environments, a stop of one would stop the other, and a lease of one would
    keep a fleet that the other forgot. Two accounts, or two regions, may each have an environment
    of the same name.
    """
    if not environment.artifacts.existing_bucket:
        return ""
    return f"guard/{environment.account}/{environment.region}/{environment.name}/"
