"""What one look at the fleet shows, and what follows from it.

Invariant: what could not be read is None or empty, and has its reason in `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from tandem.errors import ExternalError
from tandem.guard.capacity_block import NO_WINDOW, BlockReservation, BlockWindow
from tandem.guard.fence import Fence
from tandem.guard.lease import Lease, LeasePointer

NORMAL_END_LIMIT = timedelta(minutes=30)  # for so long the reaper leaves an ending lease alone
CLOCK_TOLERANCE = timedelta(minutes=5)  # clocks differ; a beat further in the future does not count
# of a node group that accepts an update; DEGRADED stays after a lack of capacity
# (aws/containers-roadmap#2326)
STABLE_STATUSES = frozenset({"ACTIVE", "DEGRADED"})
StateSource = Literal["fence", "lease", "heartbeat", "node group", "instances", "reservation"]


@dataclass(frozen=True, kw_only=True)
class FleetInstance:
    """One accelerator node as EC2 lists it; terminated ones are left out.

    Args:
        state: pending, running, shutting-down, stopping or stopped.
        is_ours: whether the guard may touch it: it has the environment's own tag, or its node group
            does.
        scaling_group: the Auto Scaling group in its tag; empty if there is none.
    """

    id: str
    launched_at: datetime
    state: str
    is_ours: bool
    scaling_group: str = ""

    @property
    def is_up(self) -> bool:
        """Whether the instance stays: pending or running."""
        return self.state in {"pending", "running"}


@dataclass(frozen=True, kw_only=True)
class FleetState:
    """Result of one look.

    Args:
        read_start_s: when this look began, by the wall clock.
        desired_size, min_size: sizes of the node group; None: unknown, or there is none.
        has_node_group: whether there is a node group; None: unknown.
        has_owner_tag: whether it has the environment's own tag; None: unknown, or there is none.
        max_size: of the node group; 0: unknown, or there is none.
        status: of the node group; empty: unknown, or there is none.
        labels: our labels of the node group's nodes.
        capacity_kind: of the deployed node group; as declared if its tags name none.
        scaling_groups: names of its Auto Scaling groups by EKS or, if EKS does not answer, by the
            instances.
        instances: every instance of the node group in EC2's list that is not terminated.
        alive_since: time since which the guard's own figures count instances without a break. It is
            read only if the lease is unknown: the present instances' age does not show the
            instances that they replaced.
        pointer: to the only lease; None: unknown.
        lease: the pointer's lease, also after its deadline and behind a fence: see `live_lease`.
        heartbeat: of the lease's run.
        block_starts, block_ends: of the Capacity Block of the deployed node group: by EC2, and
            where EC2 does not say, as planned.
        planned_window: the block's hours in the node group's tags; without such tags the declared
            ones.
        reservation_id: of the Capacity Block or reservation in the node group's tag; empty: none,
            or unknown.
        reservation: the block's reservation by EC2; None: unknown, another kind, or the node group
            names none.
        unknown: what could not be read, and why.
        faults: objects that were read but could not be parsed, each in a sentence.
    """

    now: datetime
    read_start_s: float = 0
    desired_size: int | None = None
    min_size: int | None = None
    has_node_group: bool | None = None
    has_owner_tag: bool | None = None
    max_size: int = 0
    status: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity_kind: str = ""
    scaling_groups: tuple[str, ...] = ()
    instances: tuple[FleetInstance, ...] = ()
    alive_since: datetime | None = None
    fence: Fence | None = None
    pointer: LeasePointer | None = None
    lease: Lease | None = None
    heartbeat: datetime | None = None
    block_starts: datetime | None = None
    block_ends: datetime | None = None
    planned_window: BlockWindow = NO_WINDOW
    reservation_id: str = ""
    reservation: BlockReservation | None = None
    unknown: Mapping[StateSource, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def is_stable(self) -> bool:
        """Whether no update of the node group is known to be under way."""
        return self.status in STABLE_STATUSES

    @property
    def is_fenced(self) -> bool:
        """Whether a fence is known to exist."""
        return self.fence is not None and self.fence.is_closed

    @property
    def live_lease(self) -> Lease | None:
        """The lease, if live: before its deadline and without a fence."""
        if self.lease and self.now < self.lease.deadline and not self.is_fenced:
            return self.lease
        return None

    def require_known(
        self, *sources: StateSource, where: str, consequence: str, change: str
    ) -> None:
        """Continue only if these sources were read.

        Args:
            sources: the necessary ones.
            where, change: of the error.
            consequence: the action that is left out otherwise, in a few words.

        Raises:
            ExternalError: a source could not be read.
        """
        for source in sources:
            if source in self.unknown:
                problem = f"{source} unknown ({self.unknown[source]}), so {consequence}"
                raise ExternalError(problem, where=where, change=change)

    @property
    def own_instances(self) -> tuple[FleetInstance, ...]:
        """The instances that the guard may touch."""
        return tuple(instance for instance in self.instances if instance.is_ours)

    @property
    def can_scale(self) -> bool:
        """Whether the node group is known to be ours, by its tag or an instance's."""
        return bool(self.has_owner_tag or (self.has_node_group is not False and self.own_instances))

    @property
    def is_block_paid(self) -> bool:
        """Whether a Capacity Block costs money now, used or not; by plan if EC2 is silent."""
        if self.reservation is not None and self.reservation.state != "active":
            return False
        return bool(
            self.block_starts
            and self.block_ends
            and self.block_starts <= self.now < self.block_ends
        )

    @property
    def is_ending(self) -> bool:
        """Whether the lease is marked as ending, and not for too long."""
        end_start = self.lease.ending if self.lease else None
        return (
            end_start is not None
            and end_start - CLOCK_TOLERANCE <= self.now < end_start + NORMAL_END_LIMIT
        )
