"""Observation of a pass: fence, lease, heartbeat, group, instances and block, by S3, EKS, EC2.

Invariant: standard library and boto3 only, because a Lambda packs this file. Unreadable state is
unknown, and unknown is never taken for gone, for allowed or for alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from tandem.aws.faults import error_code
from tandem.guard.bucket import SCHEMA, parse_document, read_object
from tandem.guard.capacity_block import (
    NO_WINDOW,
    RESERVATION_TAG,
    BlockWindow,
    parse_planned_window,
    read_block_reservation,
)
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fence import read_fence
from tandem.guard.fleet_state import (
    CLOCK_TOLERANCE,
    FleetInstance,
    FleetState,
    StateSource,
)
from tandem.guard.lease import (
    heartbeat_key,
    lease_key,
    read_lease,
    read_pointer,
)
from tandem.guard.pager import iterate_pages
from tandem.guard.pass_metrics import INSTANCES_ALIVE, PASS_MINUTES
from tandem.guard.scaling_groups import SCALING_GROUP_TAG
from tandem.guard.values import (
    CALL_ERRORS,
    PARSE_ERRORS,
    describe_error,
    format_value,
    parse_timestamp,
    shorten_text,
)

# its value is the environment's name; tandem.declarations.names has the same
OWNER_TAG = "tandem:environment"
# likewise: Fleet may be deployed with a kind that Guard does not know
CAPACITY_KIND_TAG = "tandem:capacity-kind"
# EKS puts them on every instance of a group
CLUSTER_TAG = "eks:cluster-name"
NODE_GROUP_TAG = "eks:nodegroup-name"
# our own, which a new raise removes; as in tandem.declarations.names
LABEL_PREFIXES = ("raise.tandem/", "compile.tandem/")
# EKS scales down 40 minutes before a block's end, EC2 terminates at 30
BLOCK_MARGIN = timedelta(minutes=45)
# that CloudWatch's GetMetricStatistics returns at once (API reference)
MAX_STATISTICS_POINTS = 1440


def observe_fleet(clients: AwsClients, config: GuardConfig, now: datetime) -> FleetState:
    """Read fence, lease, heartbeat, node group, instances and the Capacity Block's reservation.

    Never raise for AWS: failures are in `unknown`.
    """
    look = _FleetLook(clients, config, now)
    fleet = FleetState(now=now, read_start_s=clients.wall_s())
    fleet = look.add_bucket(fleet)
    group = look.read_node_group()
    fleet = look.add_node_group(fleet, group)
    fleet = look.add_block(fleet, group)

    fleet = replace(fleet, unknown=look.unknown, faults=tuple(look.faults))
    if "lease" not in look.unknown or not fleet.own_instances:
        return fleet
    return replace(fleet, alive_since=_read_alive_since(clients, config, now))


class _FleetLook:
    """One look at work.

    Attributes:
        unknown: what could not be read, and why.
        faults: what was read and could not be parsed, each in a sentence.
    """

    def __init__(self, clients: AwsClients, config: GuardConfig, now: datetime) -> None:
        self.clients = clients
        self.config = config
        self.now = now
        self.unknown: dict[StateSource, str] = {}
        self.faults: list[str] = []

    @contextmanager
    def _record_failure(self, source: StateSource) -> Iterator[None]:
        try:
            yield
        except CALL_ERRORS as error:
            self.unknown[source] = describe_error(error)

    def _add_fault(self, fault: str | None) -> None:
        if fault:
            self.faults.append(fault)

    def add_bucket(self, fleet: FleetState) -> FleetState:
        """Return a state with the fence, the lease and its heartbeat."""
        fence = None
        with self._record_failure("fence"):
            fence = read_fence(self.clients, self.config)
            self._add_fault(fence.fault if fence else None)
        if "fence" in self.unknown:  # do not wait four times for a bucket that does not answer
            problem = self.unknown["fence"]
            self.unknown["lease"] = f"not read, because the bucket did not answer: {problem}"
            return fleet

        fleet = self._add_lease(replace(fleet, fence=fence))
        lease = fleet.lease
        if lease is None or not lease.beats:
            return fleet
        heartbeat = None
        with self._record_failure("heartbeat"):
            heartbeat, fault = _read_heartbeat(self.clients, self.config, lease.run, self.now)
            self._add_fault(fault)
        return replace(fleet, heartbeat=heartbeat)

    def _add_lease(self, fleet: FleetState) -> FleetState:
        """Return a state with the pointer and its lease."""
        pointer = None
        lease = None
        with self._record_failure("lease"):
            pointer = read_pointer(self.clients, self.config)
            lease, fault = read_lease(self.clients, self.config, pointer)
            if lease and lease.created > self.now + CLOCK_TOLERANCE:
                fault = (
                    f"{self.config.url(lease_key(lease.run))}:"
                    " written in the future, so it counts as no lease"
                )
                lease = None
            self._add_fault(fault)
        return replace(fleet, pointer=pointer, lease=lease)

    def read_node_group(self) -> Mapping[str, Any]:
        """Return the node group as EKS describes it, empty if there is none or if unknown."""
        with self._record_failure("node group"):
            return describe_node_group(self.clients, self.config)
        return {}

    def add_node_group(self, fleet: FleetState, group: Mapping[str, Any]) -> FleetState:
        """Return a state with the node group and its instances."""
        tags = group.get("tags", {})
        has_owner_tag = None
        if group:
            has_owner_tag = tags.get(OWNER_TAG) == self.config.environment
        instances: tuple[FleetInstance, ...] = ()
        with self._record_failure("instances"):
            instances = tuple(
                _build_instance(instance, self.config, has_owner_tag=has_owner_tag is True)
                for instance in list_instances(self.clients, self.config)
                if instance["State"]["Name"] != "terminated"
            )
        if has_owner_tag is False or any(not instance.is_ours for instance in instances):
            self.faults.append(_describe_missing_tag(self.config, instances))

        sizes = group.get("scalingConfig", {})
        return replace(
            fleet,
            desired_size=sizes.get("desiredSize"),
            min_size=sizes.get("minSize"),
            max_size=sizes.get("maxSize", 0),
            has_node_group=None if "node group" in self.unknown else bool(group),
            has_owner_tag=has_owner_tag,
            status=group.get("status", ""),
            labels=select_own_labels(group.get("labels", {})),
            capacity_kind=str(tags.get(CAPACITY_KIND_TAG, self.config.capacity_kind)),
            instances=instances,
            scaling_groups=_list_scaling_groups(group, instances),
        )

    def add_block(self, fleet: FleetState, group: Mapping[str, Any]) -> FleetState:
        """Return a state with the Capacity Block of the node group: its plan, and EC2's word."""
        planned_window, fault = _read_planned_window(group, self.config, fleet.capacity_kind)
        self._add_fault(fault)
        reservation_id = str(group.get("tags", {}).get(RESERVATION_TAG, ""))
        reservation = None
        if fleet.capacity_kind == "capacity-block" and reservation_id:
            with self._record_failure("reservation"):
                reservation = read_block_reservation(self.clients, reservation_id)

        window = reservation.window if reservation else NO_WINDOW
        return replace(
            fleet,
            block_starts=window.starts or planned_window.starts,
            block_ends=window.ends or planned_window.ends,
            planned_window=planned_window,
            reservation_id=reservation_id,
            reservation=reservation,
        )


def _list_scaling_groups(
    group: Mapping[str, Any], instances: tuple[FleetInstance, ...]
) -> tuple[str, ...]:
    """Return the names of the Auto Scaling groups: by EKS, else by our instances' tags."""
    resources = group.get("resources") or {}
    group_names = [resource["name"] for resource in resources.get("autoScalingGroups", [])]
    tagged_names = [
        instance.scaling_group
        for instance in instances
        if instance.is_ours and instance.scaling_group
    ]
    return tuple(group_names or dict.fromkeys(tagged_names))


def _describe_missing_tag(config: GuardConfig, instances: tuple[FleetInstance, ...]) -> str:
    problem = f"{config.node_group_description}: without the tag {OWNER_TAG}={config.environment}"
    if any(instance.is_ours for instance in instances):
        return (
            f"{problem}, though its instances carry it: it counts as ours; deploy the Fleet stack"
        )
    return f"{problem}, so it is another's and is left alone; give one of the two another name"


def _read_alive_since(clients: AwsClients, config: GuardConfig, now: datetime) -> datetime | None:
    """Return since when every figure of the passes counts an instance; None: unknown or never."""
    window = timedelta(hours=config.max_hours) + BLOCK_MARGIN
    window_start = now - window
    pass_time = timedelta(minutes=PASS_MINUTES)
    # the shortest period, of whole passes, with which GetMetricStatistics returns the window in one
    # call
    period_s = -(-window // (MAX_STATISTICS_POINTS * pass_time)) * PASS_MINUTES * 60
    try:
        answer = clients.cloudwatch.get_metric_statistics(
            Namespace=config.namespace,
            MetricName=INSTANCES_ALIVE,
            StartTime=window_start,
            EndTime=now,
            Period=period_s,
            Statistics=["Minimum"],
        )
        points = sorted(
            (point["Timestamp"], point["Minimum"]) for point in answer.get("Datapoints", [])
        )
    except CALL_ERRORS:
        return None
    last_empty_at = max((at for at, count in points if not count), default=window_start)
    return min((at for at, count in points if count and at > last_empty_at), default=None)


def _read_heartbeat(
    clients: AwsClients, config: GuardConfig, run: str, now: datetime
) -> tuple[datetime | None, str]:
    bucket_object = read_object(clients, config, heartbeat_key(run))
    if bucket_object is None:
        return None, ""
    url = config.url(heartbeat_key(run))
    try:
        beat = parse_timestamp(parse_document(bucket_object.body, SCHEMA)["at"])
    except PARSE_ERRORS as error:
        return None, f"{url}: not understood ({shorten_text(error)}), so it counts as no beat"
    if beat > now + CLOCK_TOLERANCE:
        return (
            None,
            f"{url}: its beat {format_value(beat)} lies in the future, so it counts as none",
        )
    return beat, ""


def describe_node_group(clients: AwsClients, config: GuardConfig) -> Mapping[str, Any]:
    """Return the node group as EKS describes it, empty if there is none."""
    try:
        answer = clients.eks.describe_nodegroup(
            clusterName=config.cluster, nodegroupName=config.node_group
        )
    except ClientError as error:
        if error_code(error) == "ResourceNotFoundException":
            return {}
        raise
    node_group: Mapping[str, Any] = answer["nodegroup"]
    return node_group


def _read_planned_window(
    group: Mapping[str, Any], config: GuardConfig, kind: str
) -> tuple[BlockWindow, str]:
    """Return the planned hours of the deployed node group's block, and the fault of its tags."""
    if kind != "capacity-block":
        return NO_WINDOW, ""
    declared_window = BlockWindow(starts=config.block_starts, ends=config.block_ends)
    try:
        return parse_planned_window(group.get("tags", {}), declared_window), ""
    except PARSE_ERRORS as error:
        fault = (
            f"{config.node_group_description}: unreadable tags of its Capacity Block"
            f" ({shorten_text(error)})"
        )
        return declared_window, fault


def list_instances(clients: AwsClients, config: GuardConfig) -> Iterator[Mapping[str, Any]]:
    """Yield every instance of the node group that EC2 lists, those that ended too.

    Raises:
        CALL_ERRORS: EC2 does not answer, or refuses.
    """
    tags = {CLUSTER_TAG: config.cluster, NODE_GROUP_TAG: config.node_group}
    filters = [{"Name": f"tag:{tag}", "Values": [value]} for tag, value in tags.items()]
    for page in iterate_pages(clients.ec2, "describe_instances", Filters=filters):
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def _build_instance(
    instance: Mapping[str, Any], config: GuardConfig, *, has_owner_tag: bool
) -> FleetInstance:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
    return FleetInstance(
        id=instance["InstanceId"],
        launched_at=instance["LaunchTime"].astimezone(UTC),
        is_ours=has_owner_tag or tags.get(OWNER_TAG) == config.environment,
        state=instance["State"]["Name"],
        scaling_group=tags.get(SCALING_GROUP_TAG, ""),
    )


def select_own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that Tandem sets, out of all labels of the nodes."""
    return {name: value for name, value in labels.items() if name.startswith(LABEL_PREFIXES)}


def read_label_change(
    clients: AwsClients, config: GuardConfig, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return EKS's change that leaves exactly these labels of ours; empty for none.

    Raises:
        CALL_ERRORS: EKS does not answer, or refuses.
    """
    current_labels = select_own_labels(describe_node_group(clients, config).get("labels", {}))
    stale_labels = [name for name in current_labels if name not in labels]
    if current_labels == labels:
        return {}
    return {
        "addOrUpdateLabels": dict(labels),
        **({"removeLabels": stale_labels} if stale_labels else {}),
    }


def read_capacity_kind(clients: AwsClients, config: GuardConfig) -> str:
    """Return the capacity kind of the deployed node group; as declared if EKS gives none."""
    try:
        node_group = describe_node_group(clients, config)
    except CALL_ERRORS:
        return config.capacity_kind
    return str(node_group.get("tags", {}).get(CAPACITY_KIND_TAG, config.capacity_kind))
