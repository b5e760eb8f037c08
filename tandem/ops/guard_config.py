"""What a stop and a start know of an environment, from its declared file."""

from __future__ import annotations

from tandem.guard.config import GuardConfig
from tandem.spec import names
from tandem.spec.environment import Environment


def build_guard_config(environment: Environment) -> GuardConfig:
    """Return the environment's fleet and its limits; nothing is looked up."""
    capacity, guard = environment.capacity, environment.guard
    block = capacity.block if capacity.kind == "capacity-block" else None
    region_account = f"{environment.region}:{environment.account}"
    partition = aws_partition(environment.region)
    return GuardConfig(
        environment=environment.name,
        account=environment.account,
        region=environment.region,
        cluster=names.cluster_name(environment),
        node_group=names.node_group_name(environment),
        bucket=names.bucket_name(environment),
        topic_arn=f"arn:{partition}:sns:{region_account}:{names.topic_name(environment)}",
        namespace=names.guard_namespace(environment),
        nodes=capacity.nodes,
        max_hours=guard.max_hours,
        idle_minutes=guard.idle_minutes,
        usd_per_hour=capacity.usd_per_hour,
        capacity_kind=capacity.kind,
        reservation_id=None if capacity.awaits_reservation else capacity.reservation_id,
        block_starts=block.starts if block else None,
        block_ends=block.ends if block else None,
        schedule_group=names.schedule_group_name(environment),
        scheduler_role_arn=f"arn:{partition}:iam::{environment.account}:role/{names.scheduler_role_name(environment)}",
        dead_letter_arn=f"arn:{partition}:sqs:{region_account}:{names.dead_letter_queue_name(environment)}",
        prefix=object_prefix(environment),
        former_prefix=former_object_prefix(environment),
    )


def stop_topic_arn(environment: Environment) -> str:
    """Return the ARN of the topic that stops the fleet, whoever publishes to it."""
    region_account = f"{environment.region}:{environment.account}"
    return f"arn:{aws_partition(environment.region)}:sns:{region_account}:{names.stop_topic_name(environment)}"


def object_prefix(environment: Environment) -> str:
    """Return what stands before the keys of fence and leases: a bucket that is not our own may be another's too.

    Under one key a stop of one environment would stop the other, and the lease of one keep what the other forgot. Two
    accounts, or two regions, may each have an environment of the same name.
    """
    if not environment.artifacts.existing_bucket:
        return ""
    return f"guard/{environment.account}/{environment.region}/{environment.name}/"


def former_object_prefix(environment: Environment) -> str:
    """Return where releases up to 0.1 kept fence and leases in a bucket that is not our own; empty where none did."""
    return f"guard/{environment.name}/" if environment.artifacts.existing_bucket else ""


def aws_partition(region: str) -> str:
    """Return the partition that a region's ARNs begin with (AWS General Reference, ARNs)."""
    return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get("us-gov" if region.startswith("us-gov-") else region[:2], "aws")
