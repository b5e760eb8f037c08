"""State and cost of an environment's fleet at this moment, and its next end.

Invariant: nothing is changed. A source that could not be read is named with the missing right, and
is never reported as fine. A node group or an instance without the environment's own tag is shown as
somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.errors import TandemError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fence import FENCE_KEY
from tandem.guard.fleet_state import FleetState
from tandem.guard.lease import POINTER_KEY
from tandem.guard.observe import observe_fleet
from tandem.guard.pass_metrics import FLEET_USD
from tandem.guard.schedules import ForeignSchedule, list_foreign_schedules
from tandem.ops.account import create_guard_clients, iterate_rows, read_node_group
from tandem.ops.faults import call_if_present, convert_errors
from tandem.ops.reservation import find_reservation_id, read_reservation
from tandem.ops.stop_paths import StopPath, read_statistics, read_stop_paths

# a normal end removes the lease, and the status must still show tonight's cost
BILL_WINDOW_WITHOUT_LEASE = timedelta(hours=24)
# 720 figures of an hour each; CloudWatch gives at most 1,440 at once
MAX_BILL_WINDOW = timedelta(days=30)

# the rights to read each source of a look
READ_RIGHTS = {
    "fence": f"s3:GetObject on {FENCE_KEY}",
    "lease": f"s3:GetObject on {POINTER_KEY} and runs/*",
    "heartbeat": "s3:GetObject on runs/*",
    "node group": "eks:DescribeNodegroup",
    "instances": "ec2:DescribeInstances",
    "reservation": "ec2:DescribeCapacityReservations",
}
DeploymentLevel = Literal["nothing", "cluster", "fleet"]
ReadResult = TypeVar("ReadResult")


@dataclass(frozen=True, kw_only=True)
class FleetBill:
    """Cost of the fleet by the guard's count, including instances that EC2 lists no more.

    Args:
        run: of the lease; None: no lease, so the last hours are counted.
        since: beginning of the count.
        usd: the sum of the reaper's figures, one a pass; None: the reaper published none in this
            time.
    """

    run: str | None
    since: datetime
    usd: float | None


@dataclass(frozen=True, kw_only=True)
class StatusReport:
    """Result of one look.

    Args:
        deployment: how far the environment exists; None: unknown.
        node_group: as EKS describes it; None: unknown, or absent.
        reservation: the deployed one as EC2 describes it, before a deploy the declared one; None:
            unknown, there is no id, or EC2 knows none of this id.
        alarms: names of those in ALARM, without that of the parked fleet.
        paths: the three that stop the fleet, independent of each other; none if nothing is
            deployed.
        bill: cost since the lease began; None: unknown, or nothing is deployed.
        schedules: those in the guard's group that belong to no lease.
        unknown: what could not be read, why, and what to do.
    """

    environment: Environment
    guard_config: GuardConfig
    now: datetime
    fleet: FleetState
    deployment: DeploymentLevel | None
    node_group: Mapping[str, Any] | None
    reservation: Mapping[str, Any] | None
    alarms: tuple[str, ...]
    paths: tuple[StopPath, ...] = ()
    bill: FleetBill | None = None
    schedules: tuple[ForeignSchedule, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def reservation_id(self) -> str:
        """Return the deployed reservation's id, before a deploy of the declared; empty if none."""
        return find_reservation_id(self.environment, self.node_group)

    @property
    def node_hours(self) -> float:
        """Return the hours of all instances that EC2 lists now, each since its launch."""
        ages = (
            max(self.now - instance.launched_at, timedelta()) for instance in self.fleet.instances
        )
        return sum(ages, timedelta()) / timedelta(hours=1)

    @property
    def cost_usd(self) -> float:
        """Return the cost of these hours at the declared price; a block's are paid."""
        return self.node_hours * self.guard_config.usd_per_hour

    @property
    def is_block_active(self) -> bool:
        """Whether capacity costs money at this moment, used or not."""
        row = self.reservation or {"State": ""}
        starts = row.get("StartDate")
        ends = row.get("EndDate")
        return (
            row["State"] == "active"
            and (starts or self.now) <= self.now
            and not (ends and ends <= self.now)
        )

    @property
    def is_block_idle(self) -> bool:
        """Whether capacity costs money and no live lease uses it; False if unknown."""
        is_used = self.fleet.live_lease and any(instance.is_up for instance in self.fleet.instances)
        return self.is_block_active and "instances" not in self.unknown and not is_used


def read_status(
    environment: Environment,
    config: GuardConfig,
    now: datetime,
    other_environments: Sequence[str],
    boto_session: Any,
) -> StatusReport:
    """Look once. The caller checks the account before.

    Args:
        environment: as declared.
        config: of the environment.
        other_environments: names of other environments, whose alarms are not shown.
        boto_session: a boto3 session.

    Raises:
        ExternalError: the settings of this machine cannot be used.
    """
    clients = create_guard_clients(environment, boto_session)
    reader = _SourceReader()
    fleet = observe_fleet(clients, config, now)
    node_group = reader.read("node group", lambda: read_node_group(clients.eks, environment))
    deployment: DeploymentLevel | None = "fleet"
    if node_group is None and "node group" not in reader.unknown:
        has_cluster = reader.read("cluster", lambda: cluster_exists(clients, config))
        deployment = {None: None, True: "cluster", False: "nothing"}[has_cluster]
    reservation_id = find_reservation_id(environment, node_group)
    reservation = reader.read("reservation", lambda: read_reservation(clients.ec2, reservation_id))
    alarms = reader.read(
        "alarms", lambda: tuple(_list_alarms(clients, environment, other_environments))
    )
    status = StatusReport(
        environment=environment,
        guard_config=config,
        now=now,
        fleet=fleet,
        deployment=deployment,
        node_group=node_group,
        reservation=reservation,
        alarms=alarms or (),
    )
    if deployment == "nothing":
        unknown = {source: why for source, why in fleet.unknown.items() if source == "instances"}
        return replace(status, unknown=_name_rights(unknown) | reader.unknown)
    return _add_deployed_parts(status, reader, clients, boto_session)


def _add_deployed_parts(
    status: StatusReport, reader: _SourceReader, clients: AwsClients, boto_session: Any
) -> StatusReport:
    """Return a status with what only a deployed environment has: stops, bill and schedules."""
    config = status.guard_config
    fleet = status.fleet
    paths, unread_paths = read_stop_paths(clients, boto_session, status.environment, config, fleet)
    reader.unknown |= unread_paths
    bill = reader.read("bill", lambda: read_bill(clients.cloudwatch, config, fleet))
    schedules = reader.read("schedules", lambda: _read_foreign_schedules(clients, config, fleet))
    return replace(
        status,
        paths=paths,
        bill=bill,
        schedules=schedules or (),
        unknown=_name_rights(fleet.unknown) | reader.unknown,
    )


def _name_rights(unknown: Mapping[Any, str]) -> dict[str, str]:
    """Return why the sources of a look could not be read, each with the right that it takes."""
    return {source: f"{why}; it takes {READ_RIGHTS[source]}" for source, why in unknown.items()}


class _SourceReader:
    """The sources of a look, and why some of them could not be read."""

    def __init__(self) -> None:
        self.unknown: dict[str, str] = {}

    def read(self, source: str, read: Callable[[], ReadResult]) -> ReadResult | None:
        """Read a source; return None, and keep the reason, if that fails."""
        try:
            return read()
        except TandemError as fault:
            self.unknown[source] = f"{fault.problem}; {fault.change}"
            return None


def read_bill(cloudwatch: Any, config: GuardConfig, fleet: FleetState) -> FleetBill:
    """Return the reaper's count since the lease began; without a lease, of the last hours.

    Raises:
        ExternalError: its figures could not be read.
    """
    lease = fleet.lease
    bill_start = fleet.now - BILL_WINDOW_WITHOUT_LEASE
    if lease:
        bill_start = max(lease.created, fleet.now - MAX_BILL_WINDOW)
    span = (bill_start, fleet.now)
    points = read_statistics(cloudwatch, config, FLEET_USD, span, Period=3600, Statistics=["Sum"])
    usd = sum(float(point["Sum"]) for point in points) if points else None
    return FleetBill(run=lease.run if lease else None, since=bill_start, usd=usd)


def _read_foreign_schedules(
    clients: AwsClients, config: GuardConfig, fleet: FleetState
) -> tuple[ForeignSchedule, ...]:
    """Return the schedules of the guard's group that no lease owns.

    Raises:
        ExternalError: Scheduler did not answer, or the lease is unknown.
    """
    if "lease" in fleet.unknown:
        return ()  # without a known lease its schedule looks like a foreign one
    where = f"schedules of group {config.schedule_group}"
    with convert_errors("scheduler", "ListSchedules", where):
        return list_foreign_schedules(clients, config, fleet.lease)


def cluster_exists(clients: AwsClients, config: GuardConfig) -> bool:
    """Whether EKS knows the environment's cluster.

    Raises:
        ExternalError: EKS did not answer.
    """
    where = f"cluster {config.cluster}"
    return call_if_present(clients.eks, "DescribeCluster", where, name=config.cluster) is not None


def _list_alarms(
    clients: AwsClients, environment: Environment, other_environments: Sequence[str]
) -> Iterator[str]:
    """Yield the names of the environment's alarms in ALARM, except the one of the parked fleet."""
    prefix = names.alarm_name(environment, "")
    where = f"alarms {names.alarm_name(environment, '')}*"
    neighbour_prefixes = tuple(f"{name}-" for name in other_environments if name.startswith(prefix))
    for kind in ("MetricAlarm", "CompositeAlarm"):
        for alarm in iterate_rows(
            clients.cloudwatch,
            "DescribeAlarms",
            f"{kind}s",
            where,
            AlarmNamePrefix=prefix,
            StateValue="ALARM",
            AlarmTypes=[kind],
        ):
            name = alarm["AlarmName"]
            if name != names.alarm_name(environment, "parked") and not name.startswith(
                neighbour_prefixes
            ):
                yield name


def current_time() -> datetime:
    """Return the time by this machine's clock."""
    return datetime.now(UTC)
