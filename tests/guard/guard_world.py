# ruff: noqa: N803 - arguments have the names of boto3
"""An account in memory, in virtual time: what tandem.guard calls of S3, EKS, EC2, Scheduler and
SNS.

It knows no more than they ask for, and refuses what AWS refuses of it: conditions on objects, sizes
out of order, a second schedule of one name. What AWS is believed to do and nobody recorded is said
beside it. At the local AWS endpoint they are held by test_guard_paths_deployed.py; here they cost
microseconds. Invariant: nothing but `advance` moves the clock, and every call goes
through `_call`, where faults and others come in.
"""

from __future__ import annotations

import io
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError

from tandem.guard.capacity_block import BLOCK_ENDS_TAG, BLOCK_STARTS_TAG, RESERVATION_TAG
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.observe import (
    CAPACITY_KIND_TAG,
    CLUSTER_TAG,
    MAX_STATISTICS_POINTS,
    NODE_GROUP_TAG,
    OWNER_TAG,
)
from tandem.guard.scaling_groups import SCALING_GROUP_TAG

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
GUARDED = GuardConfig(
    environment="home",
    account="111122223333",
    region="us-east-2",
    cluster="tandem-home",
    node_group="home-trn2",
    bucket="tandem-home-111122223333",
    topic_arn="arn:aws:sns:us-east-2:111122223333:people",
    namespace="Tandem/Guard/home",
    nodes=2,
    max_hours=8,
    idle_minutes=30,
    usd_per_hour=36,
    capacity_kind="on-demand",
    schedule_group="tandem-home",
    scheduler_role_arn="arn:aws:iam::111122223333:role/stop",
    dead_letter_arn="arn:aws:sqs:us-east-2:111122223333:dead",
)
SCALING_GROUP = "eks-home-trn2"
LABEL = {"raise.tandem/fast": "first"}
ALIVE = ("pending", "running", "shutting-down")
# EC2 user guide: a terminated instance is listed for about an hour
FORGOTTEN_AFTER = timedelta(hours=1)
# from EC2's end of an instance to the end of Auto Scaling's activity
ACTIVITY_LAG = timedelta(seconds=30)
RESERVATION = "cr-0123456789abcdef0"
# EC2 user guide: before a block's end its instances are terminated
EC2_TAKES = timedelta(minutes=30)
# EKS user guide: so long before the end that EKS knew when it made its action
EKS_SCALES_DOWN = timedelta(minutes=40)
# bytes that S3 and SNS take
LONGEST_KEY = 1024
LONGEST_MESSAGE = 262144


class Crash(BaseException):
    """The process of whoever called is gone."""


def refused(code: str, operation: str, message: str = "as told") -> ClientError:
    """What boto3 raises where AWS refuses."""
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


def aws_operation(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have a method of the world be an operation of AWS, in which faults and others come in."""

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, **request: self._call(name, lambda: method(self, **request))

    return decorate


@dataclass
class Machine:
    """One instance; `due` is when its state changes by itself."""

    id: str
    launch_time: datetime
    tags: dict[str, str]
    state: str = "pending"
    due: datetime | None = None
    protected: bool = False  # by DisableApiTermination
    ended: datetime | None = None  # when it began to end; from there on nobody pays
    gone: datetime | None = None  # when it was terminated

    def move(self, now: datetime) -> None:
        """Go from pending to running, or from shutting-down to terminated."""
        self.due = None
        self.state = {"pending": "running", "shutting-down": "terminated"}[self.state]
        if self.state == "terminated":
            self.gone = now

    def fail(self, now: datetime) -> None:
        """Be terminated at once, as an instance is whose host fails."""
        self.state = "terminated"
        self.due = None
        self.ended = self.gone = now


def _describe_end(machine: Machine) -> str:
    """Return when an instance began to end, as EC2 says it."""
    return f"User initiated ({machine.ended:%Y-%m-%d %H:%M:%S} GMT)" if machine.ended else ""


@dataclass
class Block:
    """A Capacity Block as EC2 has it, and EKS's own scheduled action for its end.

    Nobody has seen whether EKS moves that action when the block is extended: it stays, until a test
    moves it.
    """

    starts: datetime
    ends: datetime
    id: str = RESERVATION
    state: str = "active"
    scale_down_at: datetime | None = None

    def is_open(self, now: datetime) -> bool:
        """Whether EC2 launches an instance from it."""
        return self.state == "active" and self.starts <= now < self.ends - EC2_TAKES


@dataclass
class Paginator:
    """What boto3 reads a list with."""

    list_page: Callable[..., Any]

    def paginate(self, **request: Any) -> Iterator[Any]:
        """Yield page after page."""
        page = self.list_page(**request)
        yield page
        while token := page.get("NextToken"):
            page = self.list_page(**request, NextToken=token)
            yield page


@dataclass(kw_only=True)
class World:
    """One account with one node group.

    Args:
        now: the time.
        start_s, stop_s: how long an instance is pending, and shutting down.
        ignores: EKS answers well and changes no size.
        keeps: sizes are taken, and the group ends no instance; by id it goes.
        suspended: processes of the Auto Scaling group that do nothing.
        scaling: sizes of the Auto Scaling group; EKS hands its own on.
        immortal: nothing ends an instance.
        no_capacity: no instance starts.
        fires: whether Scheduler does its work.
        down: services or operations (`s3`, `eks.update_nodegroup_config`) that cannot be reached.
        refuses: operation -> the codes of its next answers; an empty one is a good answer.
        odds: operation or `*` -> how likely a call of it is throttled, by `chance`.
        loses: how likely a call that was done is not answered, by `chance`.
        dies_after: the process of the caller ends after so many calls, the last one done; None: it
            does not.
        between: is called before each call, and may act on the world in the meantime.
        block: the Capacity Block that EC2 knows; the node group's tags name it once it is deployed.
    """

    now: datetime = START
    start_s: float = 120
    stop_s: float = 120
    ignores: bool = False
    keeps: bool = False
    suspended: set[str] = field(default_factory=set)
    scaling: dict[str, int] = field(default_factory=lambda: {"MinSize": 0, "DesiredCapacity": 0})
    immortal: bool = False
    no_capacity: bool = False
    fires: bool = True
    down: set[str] = field(default_factory=set)
    refuses: dict[str, list[str]] = field(default_factory=dict)
    odds: dict[str, float] = field(default_factory=dict)
    loses: float = 0
    chance: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - no secret
    dies_after: int | None = None
    between: Callable[[str], None] | None = None
    block: Block | None = None
    objects: dict[str, tuple[bytes, str, datetime]] = field(default_factory=dict)
    group: dict[str, Any] | None = field(
        default_factory=lambda: {
            "status": "ACTIVE",
            "tags": {OWNER_TAG: "home"},
            "labels": {"workload": "neuron-inference"},
            "scalingConfig": {"minSize": 0, "maxSize": 2, "desiredSize": 0},
        }
    )
    machines: list[Machine] = field(default_factory=list)
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    measured: list[tuple[datetime, str, float]] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    fired_names: list[str] = field(default_factory=list)
    _number: Any = field(default_factory=lambda: itertools.count(1))

    # the clients

    @property
    def clients(self) -> AwsClients:
        """What stands in for boto3's clients."""
        return AwsClients(
            s3=SimpleNamespace(get_object=self._get, put_object=self._put),
            eks=SimpleNamespace(describe_nodegroup=self._describe),
            eks_once=SimpleNamespace(update_nodegroup_config=self._update),
            ec2=SimpleNamespace(
                get_paginator=lambda _: Paginator(self._list),
                terminate_instances=self._terminate,
                describe_capacity_reservations=self._describe_reservations,
            ),
            sns=SimpleNamespace(publish=self._publish),
            cloudwatch=SimpleNamespace(
                put_metric_data=self._measure, get_metric_statistics=self._figures
            ),
            scheduler=SimpleNamespace(
                create_schedule=self._create,
                get_schedule=self._schedule,
                delete_schedule=self._delete,
                get_paginator=lambda _: Paginator(self._schedules),
            ),
            autoscaling=SimpleNamespace(
                describe_auto_scaling_groups=self._scaling_groups,
                suspend_processes=self._suspend,
                resume_processes=self._resume,
                update_auto_scaling_group=self._size_scaling_group,
                get_paginator=lambda _: Paginator(self._activities),
            ),
            wall_s=self._wall_s,
            pause=lambda _: None,
        )

    def _wall_s(self) -> float:
        return self.now.timestamp()

    def _call(self, operation: str, effect: Callable[[], Any]) -> Any:
        if self.between:
            self.between(operation)
        self.calls[operation] += 1
        if self.dies_after is not None and self.dies_after <= 0:
            raise Crash
        service = operation.partition(".")[0]
        if self.down & {service, operation}:
            raise EndpointConnectionError(endpoint_url=f"https://{service}.example.com")
        waiting = self.refuses.get(operation)
        code = waiting.pop(0) if waiting else ""
        odds = self.odds.get(operation, self.odds.get("*", 0))
        if code or (odds and self.chance.random() < odds):
            raise refused(code or "ThrottlingException", operation)
        answer = None
        refusal = None
        try:
            answer = effect()
        except ClientError as error:
            refusal = error
        if self.loses and self.chance.random() < self.loses:
            raise EndpointConnectionError(endpoint_url=f"https://{service}.example.com")
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after <= 0:
                raise Crash
        if refusal:
            raise refusal
        return answer

    # S3

    @aws_operation("s3.get_object")
    def _get(self, *, Bucket: str, Key: str) -> Any:
        assert Bucket == GUARDED.bucket
        if len(Key.encode()) > LONGEST_KEY:  # what is no UTF-8 boto3 cannot send
            raise refused("KeyTooLongError", "GetObject")
        if Key not in self.objects:
            raise refused("NoSuchKey", "GetObject")
        body, etag, last_modified = self.objects[Key]
        return {"Body": io.BytesIO(body), "ETag": etag, "LastModified": last_modified}

    @aws_operation("s3.put_object")
    def _put(
        self, *, Bucket: str, Key: str, Body: bytes, ContentType: str, **condition: str
    ) -> Any:
        assert (Bucket, ContentType, len(condition)) == (GUARDED.bucket, "application/json", 1)
        result = self.objects.get(Key)
        if "IfMatch" in condition and result is None:
            raise refused("NoSuchKey", "PutObject")
        if result and result[1] != condition.get("IfMatch"):
            raise refused("PreconditionFailed", "PutObject")
        return {"ETag": self.put(Key, Body)}

    def put(self, key: str, body: bytes | dict[str, Any]) -> str:
        """Write an object as anybody may, without a condition; its ETag."""
        etag = f'"{next(self._number)}"'
        self.objects[key] = (
            body if isinstance(body, bytes) else json.dumps(body).encode(),
            etag,
            self.now,
        )
        return etag

    def read(self, key: str) -> Any:
        """What an object says, None where there is none."""
        return json.loads(self.objects[key][0]) if key in self.objects else None

    def change(self, key: str, **fields: Any) -> None:
        """Write an object with other fields, as anybody may."""
        self.put(key, self.read(key) | fields)

    # EKS

    def _mine(self, cluster: str, name: str, operation: str) -> dict[str, Any]:
        if self.group is None or (cluster, name) != (GUARDED.cluster, GUARDED.node_group):
            raise refused("ResourceNotFoundException", operation)
        return self.group

    @aws_operation("eks.describe_nodegroup")
    def _describe(self, *, clusterName: str, nodegroupName: str) -> Any:
        group = json.loads(json.dumps(self._mine(clusterName, nodegroupName, "DescribeNodegroup")))
        return {
            "nodegroup": {
                **group,
                "resources": {"autoScalingGroups": [{"name": SCALING_GROUP}]},
            }
        }

    @aws_operation("eks.update_nodegroup_config")
    def _update(
        self,
        *,
        clusterName: str,
        nodegroupName: str,
        scalingConfig: dict[str, int] | None = None,
        labels: Any = None,
    ) -> Any:
        group = self._mine(clusterName, nodegroupName, "UpdateNodegroupConfig")
        if scalingConfig:
            self.size(scalingConfig)
        for name in (labels or {}).get("removeLabels", []):
            group["labels"].pop(name, None)
        group["labels"].update((labels or {}).get("addOrUpdateLabels", {}))
        return {"update": {"status": "InProgress"}}

    def size(self, sizes: dict[str, int]) -> None:
        """Set sizes as EKS does, whoever asks: a person, a deploy, a schedule."""
        assert self.group is not None
        new = {**self.group["scalingConfig"], **sizes}
        if not new["minSize"] <= new["desiredSize"] <= new["maxSize"]:
            raise refused("InvalidParameterException", "UpdateNodegroupConfig")
        if not self.ignores:
            self.group["scalingConfig"] = new
            self.scaling = {"MinSize": new["minSize"], "DesiredCapacity": new["desiredSize"]}
            self._reconcile()

    def want(self, nodes: int) -> None:
        """Let somebody ask for so many nodes, and for none at least."""
        self.size({"minSize": 0, "desiredSize": nodes})

    @property
    def desired_size(self) -> int:
        """How many nodes the node group is to have; 0 where there is no group."""
        return self.group["scalingConfig"]["desiredSize"] if self.group else 0

    # Auto Scaling

    @aws_operation("autoscaling.describe_auto_scaling_groups")
    def _scaling_groups(self, *, AutoScalingGroupNames: list[str]) -> Any:
        matches = [SCALING_GROUP] if self.group and SCALING_GROUP in AutoScalingGroupNames else []
        return {
            "AutoScalingGroups": [
                {
                    "AutoScalingGroupName": name,
                    **self.scaling,
                    "SuspendedProcesses": [
                        {"ProcessName": process} for process in sorted(self.suspended)
                    ],
                }
                for name in matches
            ]
        }

    @aws_operation("autoscaling.describe_scaling_activities")
    def _activities(self, *, AutoScalingGroupName: str, NextToken: str = "0") -> Any:
        """List launches and ends, the newest first; an end has its EndTime once Auto Scaling saw
        that it is over."""
        if not self.group or AutoScalingGroupName != SCALING_GROUP:
            raise refused(
                "ValidationError",
                "DescribeScalingActivities",
                "AutoScalingGroup name not found",
            )
        rows = []
        for machine in self.machines:
            launch = {
                "Description": f"Launching a new EC2 instance: {machine.id}",
                "StartTime": machine.launch_time,
            }
            rows.append(launch)
            if machine.ended:
                row = {
                    "Description": f"Terminating EC2 instance: {machine.id}",
                    "StartTime": machine.ended,
                }
                over = machine.gone and machine.gone + ACTIVITY_LAG
                rows.append(row | ({"EndTime": over} if over and over <= self.now else {}))
        rows.sort(key=lambda row: row["StartTime"], reverse=True)
        start = int(NextToken)
        more = {"NextToken": str(start + 1)} if len(rows) > start + 1 else {}
        return {"Activities": rows[start : start + 1], **more}

    @aws_operation("autoscaling.suspend_processes")
    def _suspend(self, *, AutoScalingGroupName: str, ScalingProcesses: list[str]) -> Any:
        assert AutoScalingGroupName == SCALING_GROUP
        self.suspended |= set(ScalingProcesses)
        return {}

    @aws_operation("autoscaling.resume_processes")
    def _resume(self, *, AutoScalingGroupName: str, ScalingProcesses: list[str]) -> Any:
        assert AutoScalingGroupName == SCALING_GROUP
        self.suspended -= set(ScalingProcesses)
        self._reconcile()
        return {}

    @aws_operation("autoscaling.update_auto_scaling_group")
    def _size_scaling_group(
        self, *, AutoScalingGroupName: str, MinSize: int, DesiredCapacity: int
    ) -> Any:
        assert AutoScalingGroupName == SCALING_GROUP
        self.scaling = {"MinSize": MinSize, "DesiredCapacity": DesiredCapacity}
        self._reconcile()
        return {}

    # EC2

    def _reconcile(self) -> None:
        """What an Auto Scaling group does: start what is missing, end what is too much."""
        if self.group is None:
            return
        desired_size = self.scaling["DesiredCapacity"]
        up = [entry for entry in self.machines if entry.state in {"pending", "running"}]
        for item in [] if self.keeps else up[desired_size:]:
            self._end(item)
        is_block_over = self.block is not None and not self.block.is_open(self.now)
        for _ in range(
            0
            if self.no_capacity or is_block_over or "Launch" in self.suspended
            else desired_size - len(up)
        ):
            tags = {
                CLUSTER_TAG: GUARDED.cluster,
                NODE_GROUP_TAG: GUARDED.node_group,
                SCALING_GROUP_TAG: SCALING_GROUP,
            }
            owner = self.group["tags"].get(OWNER_TAG)  # Fleet's launch template has the same tag
            self.machines.append(
                Machine(
                    f"i-{next(self._number):017x}",
                    self.now,
                    {**tags, **({OWNER_TAG: owner} if owner else {})},
                    due=self.now + timedelta(seconds=self.start_s),
                )
            )

    def _end(self, machine: Machine) -> None:
        if not self.immortal and machine.state in {"pending", "running"}:
            machine.state, machine.due = "shutting-down", self.now + timedelta(seconds=self.stop_s)
            machine.ended = self.now

    @aws_operation("ec2.describe_instances")
    def _list(self, *, Filters: list[dict[str, Any]], NextToken: str = "0") -> Any:
        assert {Filter["Name"] for Filter in Filters} == {
            f"tag:{CLUSTER_TAG}",
            f"tag:{NODE_GROUP_TAG}",
        }
        wanted_by_name = {
            Filter["Name"].removeprefix("tag:"): Filter["Values"][0] for Filter in Filters
        }
        machines = [
            item
            for item in self.machines
            if not item.gone or self.now - item.gone < FORGOTTEN_AFTER
        ]
        result = [item for item in machines if wanted_by_name.items() <= item.tags.items()]
        # one a page: nobody may read the first page only
        start = int(NextToken)
        page = 1
        return {
            "Reservations": [
                {
                    "Instances": [
                        {
                            "InstanceId": item.id,
                            "LaunchTime": item.launch_time,
                            "State": {"Name": item.state},
                            "StateTransitionReason": _describe_end(item),
                            "Tags": [
                                {"Key": key, "Value": value} for key, value in item.tags.items()
                            ],
                        }
                    ]
                }
                for item in result[start : start + page]
            ],
            **({"NextToken": str(start + page)} if len(result) > start + page else {}),
        }

    @aws_operation("ec2.terminate_instances")
    def _terminate(self, *, InstanceIds: list[str]) -> Any:
        meant = [entry for entry in self.machines if entry.id in InstanceIds]
        # then none of the call's ends (EC2 API reference)
        if any(entry.protected for entry in meant):
            raise refused("OperationNotPermitted", "TerminateInstances")
        for item in meant:
            self._end(item)
        return {}

    @aws_operation("ec2.describe_capacity_reservations")
    def _describe_reservations(self, *, CapacityReservationIds: list[str]) -> Any:
        if self.block is None or CapacityReservationIds != [self.block.id]:
            raise refused("InvalidCapacityReservationId.NotFound", "DescribeCapacityReservations")
        row = {"CapacityReservationId": self.block.id, "State": self.block.state}
        return {
            "CapacityReservations": [
                row | {"StartDate": self.block.starts, "EndDate": self.block.ends}
            ]
        }

    def deploy_block(self, starts: datetime, ends: datetime, id_: str = RESERVATION) -> None:
        """Buy a Capacity Block and deploy Fleet for it, whose tags are the plan; EKS makes its
        scheduled action."""
        assert self.group is not None
        self.block = Block(starts, ends, id_, scale_down_at=ends - EKS_SCALES_DOWN)
        self.group["tags"] |= {
            CAPACITY_KIND_TAG: "capacity-block",
            RESERVATION_TAG: id_,
            BLOCK_STARTS_TAG: starts.isoformat(),
            BLOCK_ENDS_TAG: ends.isoformat(),
        }

    def _end_block(self) -> None:
        """What EKS and EC2 do before the end of the block; nothing of it asks the guard."""
        block = self.block
        if block is None:
            return
        if block.scale_down_at and block.scale_down_at <= self.now:
            block.scale_down_at = None
            self.size({"minSize": 0, "desiredSize": 0})
        if block.ends - EC2_TAKES <= self.now:
            for machine in self.machines:
                self._end(machine)

    @property
    def alive(self) -> list[Machine]:
        """What EC2 lists and is not terminated."""
        return [item for item in self.machines if item.state in ALIVE]

    # Scheduler

    @aws_operation("scheduler.create_schedule")
    def _create(self, **schedule: Any) -> Any:
        if schedule["Name"] in self.schedules:
            raise refused("ConflictException", "CreateSchedule")
        self.schedules[schedule["Name"]] = schedule
        return {"ScheduleArn": f"arn:{schedule['Name']}"}

    @aws_operation("scheduler.get_schedule")
    def _schedule(self, *, GroupName: str, Name: str) -> Any:
        if Name not in self.schedules or self.schedules[Name]["GroupName"] != GroupName:
            raise refused("ResourceNotFoundException", "GetSchedule")
        return {**self.schedules[Name], "Arn": f"arn:{Name}"}

    @aws_operation("scheduler.list_schedules")
    def _schedules(self, *, GroupName: str, NextToken: str = "0") -> Any:
        result = sorted(
            name for name, schedule in self.schedules.items() if schedule["GroupName"] == GroupName
        )
        start = int(NextToken)
        more = {"NextToken": str(start + 1)} if len(result) > start + 1 else {}
        rows = [
            {
                "Name": name,
                "State": "ENABLED",
                "Target": {"Arn": self.schedules[name]["Target"]["Arn"]},
            }
            for name in result[start : start + 1]
        ]
        return {"Schedules": rows, **more}

    @aws_operation("scheduler.delete_schedule")
    def _delete(self, *, GroupName: str, Name: str) -> Any:
        if Name not in self.schedules or self.schedules[Name]["GroupName"] != GroupName:
            raise refused("ResourceNotFoundException", "DeleteSchedule")
        del self.schedules[Name]
        return {}

    def _fire(self) -> None:
        for name, item in list(self.schedules.items()):
            at = datetime.fromisoformat(item["ScheduleExpression"][3:-1]).replace(tzinfo=UTC)
            if at <= self.now and self.fires:
                document = json.loads(item["Target"]["Input"])
                del self.schedules[name]  # ActionAfterCompletion
                if self.group is None or {"eks", "eks.update_nodegroup_config"} & self.down:
                    # it would be tried again for an hour, and then stand in the dead-letter queue
                    continue
                sizes = {
                    key[0].lower() + key[1:]: value
                    for key, value in document["ScalingConfig"].items()
                }
                self.size(sizes)
                self.fired_names.append(name)

    # people

    @aws_operation("sns.publish")
    def _publish(self, *, TopicArn: str, Subject: str, Message: str) -> Any:
        assert TopicArn == GUARDED.topic_arn
        assert len(Subject) < 100
        assert "\n" not in Subject
        if len(Message.encode()) > LONGEST_MESSAGE:
            raise refused("InvalidParameter", "Publish")
        self.messages.append({"subject": Subject, "text": Message})
        return {}

    @aws_operation("cloudwatch.put_metric_data")
    def _measure(self, *, Namespace: str, MetricData: list[dict[str, Any]]) -> Any:
        assert Namespace == GUARDED.namespace
        self.metrics.append({item["MetricName"]: item["Value"] for item in MetricData})
        self.measured += [(self.now, item["MetricName"], item["Value"]) for item in MetricData]
        return {}

    @aws_operation("cloudwatch.get_metric_statistics")
    def _figures(
        self,
        *,
        Namespace: str,
        MetricName: str,
        StartTime: datetime,
        EndTime: datetime,
        Period: int,
        Statistics: list[str],
    ) -> Any:
        assert (Namespace, Statistics) == (GUARDED.namespace, ["Minimum"])
        assert 0 < (EndTime - StartTime).total_seconds() / Period <= MAX_STATISTICS_POINTS
        lowest: dict[datetime, float] = {}
        for at, name, value in self.measured:
            if name == MetricName and StartTime <= at < EndTime:
                begin = datetime.fromtimestamp(at.timestamp() // Period * Period, UTC)
                lowest[begin] = min(value, lowest.get(begin, value))
        return {"Datapoints": [{"Timestamp": at, "Minimum": value} for at, value in lowest.items()]}

    # others

    def interrupt(self, act: Callable[[], object], operation: str = "", *, skip: int = 0) -> None:
        """Let others act before the first call of an operation, or of any, but for so many."""
        left = skip

        def between(called: str) -> None:
            nonlocal left
            if operation in {"", called}:
                left -= 1
                if left < 0:
                    self.between = None
                    act()

        self.between = between

    # time

    def advance(self, minutes: float) -> None:
        """Let time pass; what falls due in between happens in its order."""
        until = self.now + timedelta(minutes=minutes)
        while True:
            dues = [entry.due for entry in self.machines if entry.due]
            dues += [
                datetime.fromisoformat(schedule["ScheduleExpression"][3:-1]).replace(tzinfo=UTC)
                for schedule in self.schedules.values()
                if self.fires
            ]
            if self.block:
                moments = (self.block.scale_down_at, self.block.ends - EC2_TAKES)
                dues += [moment for moment in moments if moment and self.now < moment]
            upcoming = min((due for due in dues if due <= until), default=until)
            self.now = max(self.now, upcoming)
            for item in self.machines:
                if item.due and item.due <= self.now:
                    item.move(self.now)
            self._fire()
            self._end_block()
            self._reconcile()
            if upcoming >= until:
                return
