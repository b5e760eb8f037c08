"""What an environment's fleet is and costs at this moment, and what will end it.

Invariant: nothing is changed. What could not be read is named with the right that is missing, and is never taken for
fine; a node group or an instance without the environment's own tag is shown as somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from tandem.guard import fleet_stop
from tandem.guard.fleet_stop import AwsClients, FleetState, GuardConfig, StateSource
from tandem.guard.schedules import ForeignSchedule, list_foreign_schedules
from tandem.ops.account import create_session
from tandem.ops.faults import OperationError, call_operation, convert_error, error_code
from tandem.ops.reservation import CapacityReservation, read_reservation
from tandem.ops.row_pages import iterate_rows
from tandem.ops.stop_paths import PathClients, StopPath, build_path_readers
from tandem.spec import names
from tandem.spec.environment import Environment

STATUS_CALLS = (
    ("sts", "GetCallerIdentity"),
    ("s3", "GetObject"),
    ("eks", "DescribeCluster"),
    ("eks", "DescribeNodegroup"),
    ("ec2", "DescribeInstances"),
    ("ec2", "DescribeCapacityReservations"),
    ("scheduler", "GetSchedule"),
    ("scheduler", "ListSchedules"),
    ("cloudwatch", "GetMetricStatistics"),
    ("cloudwatch", "DescribeAlarms"),
    ("lambda", "GetFunctionConfiguration"),
    ("budgets", "DescribeBudget"),
    ("budgets", "DescribeNotificationsForBudget"),
    ("budgets", "DescribeSubscribersForNotification"),
)
"""Service and operation of every call; GetCallerIdentity needs no right."""

BILL_WINDOW_WITHOUT_LEASE = timedelta(
    hours=24
)  # a normal end takes the lease away, and tonight's cost must still stand
MAX_BILL_WINDOW = timedelta(days=30)  # 720 figures of an hour each; CloudWatch gives at most 1,440 at once

DeploymentLevel = Literal["nothing", "cluster", "fleet"]
ReadResult = TypeVar("ReadResult")
_INSTANCE_STATES = ["pending", "running", "shutting-down", "stopping", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorNode:
    """One accelerator node as EC2 lists it.

    Args:
        zone: the zone's id where EC2 says it, else its name.
        state: pending, running, shutting-down, stopping or stopped.
        ours: whether it, or its node group, carries the environment's own tag.
    """

    id: str
    type: str
    zone: str
    state: str
    launched: datetime
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """The accelerator node group as EKS describes it.

    Args:
        status: ACTIVE, UPDATING, DEGRADED and so on.
        owned: whether it carries the environment's own tag.
        labels: of its nodes.
        issues: what EKS says is wrong with it.
    """

    status: str
    desired: int
    minimum: int
    maximum: int
    owned: bool
    labels: Mapping[str, str]
    issues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetBill:
    """What the guard counted as the fleet's cost, also of instances that EC2 lists no more.

    Args:
        run: whose lease it is; None: no lease, so the last hours are counted.
        since: from when.
        usd: the sum of the reaper's figures, one a pass; None: the reaper published none in this time.
    """

    run: str | None
    since: datetime
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """What was seen.

    Args:
        deployment: how far the environment exists; None: unknown.
        node_group: None: unknown, or there is none.
        reservation: None: unknown, none is declared, or EC2 knows none of this id.
        paths: the three that stop the fleet, independent of each other.
        alarms: names of those in ALARM; the parked fleet's own is none.
        bill: what was spent since the lease began; None: unknown, or nothing is deployed.
        schedules: in the guard's own group, and of no lease.
        unknown: what could not be read, why, and what to do.
    """

    environment: Environment
    guard_config: GuardConfig
    now: datetime
    fleet: FleetState
    deployment: DeploymentLevel | None
    node_group: NodeGroup | None
    nodes: tuple[AcceleratorNode, ...]
    reservation: CapacityReservation | None
    paths: tuple[StopPath, ...]
    alarms: tuple[str, ...]
    bill: FleetBill | None = None
    schedules: tuple[ForeignSchedule, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def node_hours(self) -> float:
        """Return the hours of all that EC2 lists now, each since its launch."""
        return (
            sum(max(self.now - instance.launched_at, timedelta()).total_seconds() for instance in self.fleet.instances)
            / 3600
        )

    @property
    def cost_usd(self) -> float:
        """Return what these hours cost at the declared price; of a block they are paid already."""
        return self.node_hours * self.guard_config.usd_per_hour

    @property
    def is_block_active(self) -> bool:
        """Whether capacity is paid for at this moment, used or not."""
        return self.reservation is not None and self.reservation.is_active(self.now)

    @property
    def is_block_idle(self) -> bool:
        """Whether capacity is paid for and nothing runs on it with a live lease; False where that is unknown."""
        has_running_node = any(instance.state in {"pending", "running"} for instance in self.fleet.instances)
        return (
            self.is_block_active
            and "instances" not in self.unknown
            and not (has_running_node and self.fleet.live_lease)
        )


@dataclass(slots=True)
class _SourceReader:
    """Reads one thing after another, and keeps what could not be read."""

    unknown: dict[str, str] = field(default_factory=dict)

    def read(self, source: str, read: Callable[[], ReadResult]) -> ReadResult | None:
        try:
            return read()
        except OperationError as fault:
            self.unknown[source] = f"{fault.problem}; {fault.change}"
            return None


def read_status(
    environment: Environment,
    config: GuardConfig,
    now: datetime,
    other_environments: Sequence[str] = (),
    boto_session: Any = None,
) -> StatusReport:
    """Look once. The account is the caller's to require before.

    Args:
        environment: as declared.
        config: of the environment.
        other_environments: names of other environments, whose alarms are not shown.
        boto_session: a boto3 session; None takes a new one.

    Raises:
        OpsError: the settings of this machine cannot be used.
    """
    boto_session = boto_session or create_session()
    clients, reader = AwsClients.create(environment.region, boto_session), _SourceReader()
    fleet = fleet_stop.observe_fleet(clients, config, now)
    node_group = reader.read("node group", lambda: _read_node_group(clients, config))
    nodes = reader.read("instances", lambda: tuple(_list_nodes(clients, config, fleet)))
    deployment: DeploymentLevel | None = "fleet"
    if node_group is None and "node group" not in reader.unknown:
        cluster = reader.read("cluster", lambda: cluster_exists(clients, config))
        deployment = None if cluster is None else "cluster" if cluster else "nothing"
    capacity_reservation = reader.read("reservation", lambda: read_reservation(clients.ec2, environment))
    alarms = reader.read("alarms", lambda: tuple(_list_alarms(clients, environment, other_environments)))
    report = StatusReport(
        environment=environment,
        guard_config=config,
        now=now,
        fleet=fleet,
        deployment=deployment,
        node_group=node_group,
        nodes=nodes or (),
        reservation=capacity_reservation,
        paths=(),
        alarms=alarms or (),
        unknown=reader.unknown,
    )
    return report if deployment == "nothing" else _add_guard_status(report, clients, boto_session, reader)


def _add_guard_status(
    status: StatusReport, clients: AwsClients, boto_session: Any, reader: _SourceReader
) -> StatusReport:
    """Return the status with all that only a deployed environment has."""
    environment, config, fleet = status.environment, status.guard_config, status.fleet
    readers = build_path_readers(clients, PathClients.create(environment, boto_session), environment, config, fleet)
    paths = tuple(
        reader.read(name, act) or StopPath(name=name, state="unknown", sentence="it could not be read, see above")
        for name, act in readers.items()
    )
    bill = reader.read("bill", lambda: read_bill(clients.cloudwatch, config, fleet))
    schedules = reader.read("schedules", lambda: _read_foreign_schedules(clients, config, fleet))
    return replace(
        status, paths=paths, bill=bill, schedules=schedules or (),
        unknown=_describe_read_failures(config, fleet) | reader.unknown,
    )  # fmt: skip


def read_bill(cloudwatch: Any, config: GuardConfig, fleet: FleetState) -> FleetBill:
    """Return what the reaper counted since the lease began; without a lease, in the last hours.

    Raises:
        OpsError: its figures could not be read.
    """
    lease = fleet.lease
    bill_start = max(lease.created, fleet.now - MAX_BILL_WINDOW) if lease else fleet.now - BILL_WINDOW_WITHOUT_LEASE
    statistics = call_operation(
        cloudwatch, "GetMetricStatistics", f"metric {fleet_stop.FLEET_USD} of {config.namespace}",
        Namespace=config.namespace, MetricName=fleet_stop.FLEET_USD, StartTime=bill_start,
        EndTime=fleet.now + timedelta(minutes=1), Period=3600, Statistics=["Sum"],
    )  # fmt: skip
    sums = [float(point["Sum"]) for point in statistics.get("Datapoints", [])]
    return FleetBill(run=lease.run if lease else None, since=bill_start, usd=sum(sums) if sums else None)


def _read_foreign_schedules(clients: AwsClients, config: GuardConfig, fleet: FleetState) -> tuple[ForeignSchedule, ...]:
    """Return the schedules of the guard's group that no lease owns.

    Raises:
        OpsError: Scheduler could not be asked, or which lease there is.
    """
    if "lease" in fleet.unknown:
        return ()  # its own schedule could not be told from a foreign one, and the lease is unknown already
    try:
        return list_foreign_schedules(clients, config, fleet.lease)
    except fleet_stop.CALL_ERRORS as error:
        where = f"schedules of group {config.schedule_group}"
        raise convert_error(error, service="scheduler", operation="ListSchedules", where=where) from error


def _read_node_group(clients: AwsClients, config: GuardConfig) -> NodeGroup | None:
    where = f"node group {config.node_group} of {config.cluster}"
    try:
        response = call_operation(
            clients.eks, "DescribeNodegroup", where, clusterName=config.cluster, nodegroupName=config.node_group
        )
    except OperationError as fault:
        if error_code(fault.__cause__) == "ResourceNotFoundException":
            return None
        raise
    node_group = response["nodegroup"]
    sizes = node_group.get("scalingConfig", {})
    return NodeGroup(
        status=node_group["status"], desired=sizes.get("desiredSize", 0), minimum=sizes.get("minSize", 0),
        maximum=sizes.get("maxSize", 0), labels=node_group.get("labels", {}),
        owned=node_group.get("tags", {}).get(names.OWNER_TAG) == config.environment,
        issues=tuple(
            f"{issue.get('code', '')}: {issue.get('message', '')}"
            for issue in node_group.get("health", {}).get("issues", [])
        ),
    )  # fmt: skip


def cluster_exists(clients: AwsClients, config: GuardConfig) -> bool:
    """Whether EKS knows the environment's cluster.

    Raises:
        OpsError: EKS could not be asked.
    """
    try:
        call_operation(clients.eks, "DescribeCluster", f"cluster {config.cluster}", name=config.cluster)
    except OperationError as fault:
        if error_code(fault.__cause__) == "ResourceNotFoundException":
            return False
        raise
    return True


def _list_nodes(clients: AwsClients, config: GuardConfig, fleet: FleetState) -> Iterator[AcceleratorNode]:
    own_ids = {own_instance.id for own_instance in fleet.instances if own_instance.is_ours}
    where = f"instances of node group {config.node_group}"
    filters = [
        {"Name": f"tag:{fleet_stop.CLUSTER_TAG}", "Values": [config.cluster]},
        {"Name": f"tag:{fleet_stop.NODE_GROUP_TAG}", "Values": [config.node_group]},
        {"Name": "instance-state-name", "Values": _INSTANCE_STATES},
    ]
    for launch in iterate_rows(clients.ec2, "DescribeInstances", "Reservations", where, Filters=filters):
        for instance in launch["Instances"]:
            yield _build_node(instance, own_ids)


def _build_node(instance: Mapping[str, Any], own_ids: Collection[str]) -> AcceleratorNode:
    placement = instance.get("Placement", {})
    return AcceleratorNode(
        id=instance["InstanceId"], type=instance.get("InstanceType", "?"), state=instance["State"]["Name"],
        zone=placement.get("AvailabilityZoneId") or placement.get("AvailabilityZone") or "?",
        launched=instance["LaunchTime"], ours=instance["InstanceId"] in own_ids,
    )  # fmt: skip


def _describe_read_failures(config: GuardConfig, fleet: FleetState) -> dict[str, str]:
    """Return what the look could not read, with the right that it takes."""
    required_rights: dict[StateSource, str] = {
        "fence": f"s3:GetObject on {config.url(fleet_stop.FENCE_KEY)}",
        "lease": f"s3:GetObject on {config.url(fleet_stop.POINTER_KEY)} and runs/*",
        "heartbeat": f"s3:GetObject on {config.url('runs/*')}",
        "node group": "eks:DescribeNodegroup",
        "instances": "ec2:DescribeInstances",
    }
    return {source: f"{why}; it takes {required_rights[source]}" for source, why in fleet.unknown.items()}


def _list_alarms(clients: AwsClients, environment: Environment, other_environments: Sequence[str]) -> Iterator[str]:
    """Yield the names of the environment's alarms in ALARM, but for the one that says that the fleet is parked."""
    prefix = names.alarm_name(environment, "")
    neighbour_prefixes = tuple(f"{name}-" for name in other_environments if name.startswith(prefix))
    for key, kind in (("MetricAlarms", "MetricAlarm"), ("CompositeAlarms", "CompositeAlarm")):
        for alarm in iterate_rows(
            clients.cloudwatch, "DescribeAlarms", key, f"alarms {prefix}*", AlarmNamePrefix=prefix, StateValue="ALARM",
            AlarmTypes=[kind],
        ):  # fmt: skip
            name = str(alarm["AlarmName"])
            if name != names.alarm_name(environment, "parked") and not name.startswith(neighbour_prefixes):
                yield name


def current_time() -> datetime:
    """Return the time by this machine's clock."""
    return datetime.now(UTC)
