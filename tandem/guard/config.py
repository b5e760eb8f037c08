"""The guarded fleet with its limits, and boto3's clients for it.

Invariant: standard library and boto3 only, because a Lambda packs this file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Self

import boto3

from tandem.aws import faults
from tandem.aws.client_config import GUARD_CLIENT_CONFIG, SINGLE_TRY_CLIENT_CONFIG
from tandem.guard.values import format_value, parse_timestamp

# the name of a Lambda's variable is this and the field's name in capitals
VARIABLE_PREFIX = "TANDEM_"
_PARSERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("max_hours", "idle_minutes", "grace_minutes", "usd_per_hour"), float),
    **dict.fromkeys(("block_starts", "block_ends"), parse_timestamp),
    "nodes": int,
}


@dataclass(frozen=True, kw_only=True)
class GuardConfig:
    """One environment's fleet and its limits.

    Args:
        environment: its name; the value of its resources' OWNER_TAG.
        bucket: of stop.json, leases and heartbeats.
        prefix: of the keys of these, as several environments may share a bucket; empty, or with its
            slash.
        topic_arn: where people are notified; None notifies nobody. Never the topic that starts the
            stop function.
        namespace: of the guard's own metrics in CloudWatch; only the guard may publish there.
        nodes: capacity.nodes; the most nodes of a lease.
        max_hours: most hours that an instance may live and a lease may last.
        idle_minutes: minutes without a heartbeat before a stop.
        grace_minutes: minutes that EKS has to end an instance before it is terminated by id.
        usd_per_hour: of one instance.
        capacity_kind: capacity-block, reservation, spot or on-demand, as declared; the node group's
            tag goes first.
        block_starts, block_ends: of the Capacity Block as declared; None: not declared, or another
            kind. EC2's word and the node group's tags come first.
        schedule_group, scheduler_role_arn, dead_letter_arn: of one-shot stops.
    """

    environment: str
    account: str
    region: str
    cluster: str
    node_group: str
    bucket: str
    topic_arn: str | None = None
    namespace: str
    nodes: int
    max_hours: float
    idle_minutes: float
    grace_minutes: float = 10
    usd_per_hour: float
    capacity_kind: str
    block_starts: datetime | None = None
    block_ends: datetime | None = None
    schedule_group: str
    scheduler_role_arn: str
    dead_letter_arn: str
    prefix: str = ""

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> Self:
        """Read a Lambda's environment: TANDEM_CLUSTER and so on; an empty one counts as absent.

        Raises:
            TypeError, ValueError: a variable is missing or cannot be read.
        """
        texts = {
            item.name: variables.get(VARIABLE_PREFIX + item.name.upper(), "")
            for item in fields(cls)
        }
        return cls(**{name: _PARSERS.get(name, str)(text) for name, text in texts.items() if text})

    def to_variables(self) -> dict[str, str]:
        """Return the variables that `from_variables` reads."""
        values = {
            VARIABLE_PREFIX + item.name.upper(): getattr(self, item.name) for item in fields(self)
        }
        return {
            variable: format_value(value)
            for variable, value in values.items()
            if value not in {None, ""}
        }

    @property
    def node_group_description(self) -> str:
        """The node group's name in messages."""
        return f"node group {self.node_group} of cluster {self.cluster}"

    @property
    def grace_period(self) -> timedelta:
        """Time for EKS to end an instance before it is terminated by id."""
        return timedelta(minutes=self.grace_minutes)

    @property
    def idle_limit(self) -> timedelta:
        """Longest time of a fleet without a heartbeat."""
        return timedelta(minutes=self.idle_minutes)

    def url(self, key: str) -> str:
        """Return the `s3://` address of an object."""
        return f"s3://{self.bucket}/{self.prefix}{key}"


@dataclass(frozen=True, kw_only=True)
class AwsClients:
    """boto3's clients of one account and region, and this machine's clock.

    Args:
        eks_once: as eks, but without retries by boto3: these would not check the fleet's owner
            again.
        wall_s: seconds since the epoch. No monotonic clock, because that stands still while a
            machine sleeps.
        pause: waits for so many seconds.
    """

    s3: Any
    eks: Any
    ec2: Any
    sns: Any
    cloudwatch: Any
    scheduler: Any
    autoscaling: Any
    eks_once: Any = None
    wall_s: Callable[[], float] = time.time
    pause: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        """Use the usual client if no client without retries is given."""
        if self.eks_once is None:
            object.__setattr__(self, "eks_once", self.eks)

    @classmethod
    def create(cls, region: str, session: Any = None) -> Self:
        """Return clients that give up in time, and accept only AWS's own answers.

        Args:
            region: of the environment.
            session: a boto3 session; None takes the credentials of the process.
        """
        build_client = (session or boto3.session.Session()).client
        services = [client.name for client in fields(cls) if client.default is MISSING]
        clients = {
            service: build_client(service, region_name=region, config=GUARD_CLIENT_CONFIG)
            for service in services
        }
        clients["eks_once"] = build_client(
            "eks", region_name=region, config=SINGLE_TRY_CLIENT_CONFIG
        )
        for client in clients.values():
            faults.reject_foreign_answers(client)
        return cls(**clients)
