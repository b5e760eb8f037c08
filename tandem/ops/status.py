"""What an environment's fleet is and costs at this moment, and what will end it.

Invariant: nothing is changed. What could not be read is named with the right that is missing, and is never taken for
fine; a node group or an instance without the environment's own tag is shown as somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from tandem import stop
from tandem.guard.schedules import ForeignSchedule, list_foreign_schedules
from tandem.ops.account import session
from tandem.ops.fault import OpsError, ask, code_of, fault_of
from tandem.ops.paths import GuardClients, StopPath, path_readers
from tandem.ops.reservation import Reservation, reservation
from tandem.ops.row_pages import iterate_rows
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.stop import Clients, Guarded, Seen, Source

CALLS = (
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

BILL_WITHOUT_LEASE = timedelta(hours=24)  # a normal end takes the lease away, and tonight's cost must still stand
LONGEST_BILL = timedelta(days=30)  # 720 figures of an hour each; CloudWatch gives at most 1,440 at once

Deployed = Literal["nothing", "cluster", "fleet"]
Found = TypeVar("Found")
_STATES = ["pending", "running", "shutting-down", "stopping", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
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
class Status:
    """What was seen.

    Args:
        deployed: how far the environment exists; None: unknown.
        group: None: unknown, or there is none.
        reservation: None: unknown, none is declared, or EC2 knows none of this id.
        paths: the three that stop the fleet, independent of each other.
        alarms: names of those in ALARM; the parked fleet's own is none.
        bill: what was spent since the lease began; None: unknown, or nothing is deployed.
        schedules: in the guard's own group, and of no lease.
        unknown: what could not be read, why, and what to do.
    """

    environment: Environment
    guarded: Guarded
    now: datetime
    seen: Seen
    deployed: Deployed | None
    group: NodeGroup | None
    machines: tuple[Machine, ...]
    reservation: Reservation | None
    paths: tuple[StopPath, ...]
    alarms: tuple[str, ...]
    bill: FleetBill | None = None
    schedules: tuple[ForeignSchedule, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def node_hours(self) -> float:
        """Return the hours of all that EC2 lists now, each since its launch."""
        return sum(max(self.now - one.launched, timedelta()).total_seconds() for one in self.seen.instances) / 3600

    @property
    def usd(self) -> float:
        """Return what these hours cost at the declared price; of a block they are paid already."""
        return self.node_hours * self.guarded.usd_per_hour

    @property
    def block_active(self) -> bool:
        """Whether capacity is paid for at this moment, used or not."""
        return self.reservation is not None and self.reservation.active(self.now)

    @property
    def block_idle(self) -> bool:
        """Whether capacity is paid for and nothing runs on it with a live lease; False where that is unknown."""
        running = any(one.state in {"pending", "running"} for one in self.seen.instances)
        return self.block_active and "instances" not in self.unknown and not (running and self.seen.live)


@dataclass(slots=True)
class _Reader:
    """Reads one thing after another, and keeps what could not be read."""

    unknown: dict[str, str] = field(default_factory=dict)

    def read(self, source: str, act: Callable[[], Found]) -> Found | None:
        try:
            return act()
        except OpsError as fault:
            self.unknown[source] = f"{fault.problem}; {fault.change}"
            return None


def status(
    environment: Environment, guarded: Guarded, now: datetime, others: Sequence[str] = (), shared: Any = None
) -> Status:
    """Look once. The account is the caller's to require before.

    Args:
        environment: as declared.
        guarded: of the environment.
        others: names of other environments, whose alarms are not shown.
        shared: a boto3 session; None takes a new one.

    Raises:
        OpsError: the settings of this machine cannot be used.
    """
    shared = shared or session()
    clients, reader = Clients.of(environment.region, shared), _Reader()
    seen = stop.look(clients, guarded, now)
    group = reader.read("node group", lambda: _group(clients, guarded))
    machines = reader.read("instances", lambda: tuple(_machines(clients, guarded, seen)))
    deployed: Deployed | None = "fleet"
    if group is None and "node group" not in reader.unknown:
        cluster = reader.read("cluster", lambda: cluster_exists(clients, guarded))
        deployed = None if cluster is None else "cluster" if cluster else "nothing"
    reserved = reader.read("reservation", lambda: reservation(clients.ec2, environment))
    alarms = reader.read("alarms", lambda: tuple(_alarms(clients, environment, others)))
    status = Status(
        environment=environment, guarded=guarded, now=now, seen=seen, deployed=deployed, group=group,
        machines=machines or (), reservation=reserved, paths=(), alarms=alarms or (), unknown=reader.unknown,
    )  # fmt: skip
    return status if deployed == "nothing" else _add_guard(status, clients, shared, reader)


def _add_guard(status: Status, clients: Clients, shared: Any, reader: _Reader) -> Status:
    """Return the status with all that only a deployed environment has."""
    environment, guarded, seen = status.environment, status.guarded, status.seen
    readers = path_readers(clients, GuardClients.of(environment, shared), environment, guarded, seen)
    paths = tuple(
        reader.read(name, act) or StopPath(name=name, state="unknown", sentence="it could not be read, see above")
        for name, act in readers.items()
    )
    bill = reader.read("bill", lambda: read_bill(clients.cloudwatch, guarded, seen))
    schedules = reader.read("schedules", lambda: _foreign_schedules(clients, guarded, seen))
    return replace(
        status, paths=paths, bill=bill, schedules=schedules or (),
        unknown=_unread(guarded, seen) | reader.unknown,
    )  # fmt: skip


def read_bill(cloudwatch: Any, guarded: Guarded, seen: Seen) -> FleetBill:
    """Return what the reaper counted since the lease began; without a lease, in the last hours.

    Raises:
        OpsError: its figures could not be read.
    """
    lease = seen.lease
    since = max(lease.created, seen.now - LONGEST_BILL) if lease else seen.now - BILL_WITHOUT_LEASE
    statistics = ask(
        cloudwatch, "GetMetricStatistics", f"metric {stop.FLEET_USD} of {guarded.namespace}",
        Namespace=guarded.namespace, MetricName=stop.FLEET_USD, StartTime=since,
        EndTime=seen.now + timedelta(minutes=1), Period=3600, Statistics=["Sum"],
    )  # fmt: skip
    sums = [float(point["Sum"]) for point in statistics.get("Datapoints", [])]
    return FleetBill(run=lease.run if lease else None, since=since, usd=sum(sums) if sums else None)


def _foreign_schedules(clients: Clients, guarded: Guarded, seen: Seen) -> tuple[ForeignSchedule, ...]:
    """Return the schedules of the guard's group that no lease owns.

    Raises:
        OpsError: Scheduler could not be asked, or which lease there is.
    """
    if "lease" in seen.unknown:
        return ()  # its own schedule could not be told from a foreign one, and the lease is unknown already
    try:
        return list_foreign_schedules(clients, guarded, seen.lease)
    except stop.RAISED as error:
        where = f"schedules of group {guarded.schedule_group}"
        raise fault_of(error, service="scheduler", operation="ListSchedules", where=where) from error


def _group(clients: Clients, guarded: Guarded) -> NodeGroup | None:
    where = f"node group {guarded.node_group} of {guarded.cluster}"
    try:
        said = ask(
            clients.eks, "DescribeNodegroup", where, clusterName=guarded.cluster, nodegroupName=guarded.node_group
        )
    except OpsError as fault:
        if code_of(fault.__cause__) == "ResourceNotFoundException":
            return None
        raise
    found = said["nodegroup"]
    sizes = found.get("scalingConfig", {})
    return NodeGroup(
        status=found["status"], desired=sizes.get("desiredSize", 0), minimum=sizes.get("minSize", 0),
        maximum=sizes.get("maxSize", 0), labels=found.get("labels", {}),
        owned=found.get("tags", {}).get(names.OWNER_TAG) == guarded.environment,
        issues=tuple(
            f"{issue.get('code', '')}: {issue.get('message', '')}"
            for issue in found.get("health", {}).get("issues", [])
        ),
    )  # fmt: skip


def cluster_exists(clients: Clients, guarded: Guarded) -> bool:
    """Whether EKS knows the environment's cluster.

    Raises:
        OpsError: EKS could not be asked.
    """
    try:
        ask(clients.eks, "DescribeCluster", f"cluster {guarded.cluster}", name=guarded.cluster)
    except OpsError as fault:
        if code_of(fault.__cause__) == "ResourceNotFoundException":
            return False
        raise
    return True


def _machines(clients: Clients, guarded: Guarded, seen: Seen) -> Iterator[Machine]:
    ours = {one.id for one in seen.instances if one.ours}
    where = f"instances of node group {guarded.node_group}"
    filters = [
        {"Name": f"tag:{stop.CLUSTER_TAG}", "Values": [guarded.cluster]},
        {"Name": f"tag:{stop.NODE_GROUP_TAG}", "Values": [guarded.node_group]},
        {"Name": "instance-state-name", "Values": _STATES},
    ]
    for launch in iterate_rows(clients.ec2, "DescribeInstances", "Reservations", where, Filters=filters):
        for instance in launch["Instances"]:
            yield _machine(instance, ours)


def _machine(one: Mapping[str, Any], ours: Collection[str]) -> Machine:
    place = one.get("Placement", {})
    return Machine(
        id=one["InstanceId"], type=one.get("InstanceType", "?"), state=one["State"]["Name"],
        zone=place.get("AvailabilityZoneId") or place.get("AvailabilityZone") or "?",
        launched=one["LaunchTime"], ours=one["InstanceId"] in ours,
    )  # fmt: skip


def _unread(guarded: Guarded, seen: Seen) -> dict[str, str]:
    """Return what the look could not read, with the right that it takes."""
    needed: dict[Source, str] = {
        "fence": f"s3:GetObject on {guarded.url(stop.FENCE_KEY)}",
        "lease": f"s3:GetObject on {guarded.url(stop.POINTER_KEY)} and runs/*",
        "heartbeat": f"s3:GetObject on {guarded.url('runs/*')}",
        "node group": "eks:DescribeNodegroup",
        "instances": "ec2:DescribeInstances",
    }
    return {source: f"{why}; it takes {needed[source]}" for source, why in seen.unknown.items()}


def _alarms(clients: Clients, environment: Environment, others: Sequence[str]) -> Iterator[str]:
    """Yield the names of the environment's alarms in ALARM, but for the one that says that the fleet is parked."""
    prefix = names.alarm(environment, "")
    strangers = tuple(f"{name}-" for name in others if name.startswith(prefix))
    for key, kind in (("MetricAlarms", "MetricAlarm"), ("CompositeAlarms", "CompositeAlarm")):
        for alarm in iterate_rows(
            clients.cloudwatch, "DescribeAlarms", key, f"alarms {prefix}*", AlarmNamePrefix=prefix, StateValue="ALARM",
            AlarmTypes=[kind],
        ):  # fmt: skip
            name = str(alarm["AlarmName"])
            if name != names.alarm(environment, "parked") and not name.startswith(strangers):
                yield name


def moment() -> datetime:
    """Return the time by this machine's clock."""
    return datetime.now(UTC)
