"""The start: the only thing that raises a fleet, and only behind a lease and an armed stop.

Invariant: standard library and boto3 only. Whatever ends it at any step, no instance is left that no stop will end:
the lease and the one-shot stop are there before the raise, and a stop that came meanwhile has the last word. Whatever
keeps it asleep, it raises, deletes and takes back under its own lease alone (tandem/guard/ownership.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from tandem.guard.ownership import LeaseOwner
from tandem.guard.scaling import LAUNCH, read_scaling_groups, resume_launch
from tandem.guard.schedules import delete_unnamed_schedule, list_foreign_schedules
from tandem.shell_command import quote_command
from tandem.stop import (
    BLOCK_MARGIN,
    FENCE_KEY,
    LABELS,
    OWNER_TAG,
    POINTER_KEY,
    RAISED,
    RUN,
    STOP_PREFIX,
    Clients,
    Fence,
    Guarded,
    Lease,
    Pointer,
    RefusedError,
    Seen,
    WorldError,
    change_fence,
    code_of,
    end_pointer,
    lease_key,
    look,
    read_lease,
    read_our_labels,
    read_pointer,
    scale_to_zero,
    tell,
    words,
    write,
    write_lease,
)

LEAST_HOURS = 0.25  # a shorter lease could end before its nodes run
# The service's ARN for a call without a Lambda (EventBridge Scheduler user guide, "Using universal targets").
TARGET = "arn:aws:scheduler:::aws-sdk:eks:updateNodegroupConfig"
# Scheduler tries again for so long; a stop that came later could meet the fleet of another run.
RETRY = {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 100}
LATE = "the reaper fences it within minutes; then tandem stop --clear, and start again"


@dataclass(frozen=True, kw_only=True)
class Raised:
    """A fleet that may run until its lease's deadline.

    Args:
        nodes: the desired size that EKS took.
        present: whether it had been raised before, by the same run.
        schedule_arn: of the one-shot stop, as Scheduler reads it back.
    """

    lease: Lease
    nodes: int
    present: bool
    schedule_arn: str


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What `raise_fleet` was asked for."""

    lease: Lease
    nodes: int
    now: datetime


def raise_fleet(  # noqa: PLR0913 - each is a field of the lease, or a limit of the raise
    clients: Clients, guarded: Guarded, *, run: str, hours: float, experiment: str | None, nodes: int,
    label: Mapping[str, str], who: str, beats: bool, now: datetime, unarmed: Sequence[str] = (),
) -> Raised:  # fmt: skip
    """Raise the fleet for a run; the same run may ask again and gets what it has, with its first deadline.

    Args:
        run: its name, unique in the bucket; letters, digits, `-`, `_`, `.`, at most 59.
        hours: from `now` to the deadline.
        nodes: at most the node group's own limit.
        label: node labels, as names.raise_label and names.compile_label give them; those of another run go.
        who: a person's ARN, or the runner.
        beats: whether the run will write `runs/<run>/heartbeat.json`.
        unarmed: paths that are not armed, and that whoever starts accepts; people are told of them.

    Raises:
        RefusedError: a fence, another lease, a window or the node group forbids it; nothing was raised.
        WorldError: AWS failed; a raise that may have been taken was taken back, or its stop is armed.
    """
    require_sense(guarded, run=run, hours=hours, nodes=nodes)
    deadline = (now + timedelta(hours=hours)).replace(microsecond=0)
    wanted = Lease(
        run=run, who=who, experiment=experiment, node_label=dict(label), created=now, deadline=deadline, beats=beats,
        schedule=f"{STOP_PREFIX}{run}", nodes=nodes, unarmed=tuple(unarmed), prefix=guarded.prefix,
    )  # fmt: skip
    start = _Start(clients, guarded, _Asked(lease=wanted, nodes=nodes, now=now))
    start.require_allowed()
    start.take_lease()
    try:
        arn = start.arm()
        start.tell_unarmed()
        start.resume_launches()
    except (RefusedError, WorldError):
        start.give_lease_back()
        raise
    try:
        present = start.raised_already()
        if not present:
            start.raise_()
        start.require_last_word()
        start.drop_stray_labels()
    except RefusedError:
        start.disarm()
        raise
    return Raised(lease=start.lease, nodes=nodes, present=present, schedule_arn=arn)


def require_sense(guarded: Guarded, *, run: str, hours: float, nodes: int) -> None:
    """Make sure that what is asked for can be had at all; nobody is asked.

    Args:
        guarded: whose limits hold.
        run, hours, nodes: as of `raise_fleet`.

    Raises:
        RefusedError: it cannot.
    """
    if not RUN.fullmatch(run):
        raise RefusedError(f"{run!r} names no run", change="use 1 to 59 letters, digits, '-', '_' and '.'")
    if not LEAST_HOURS <= hours <= guarded.max_hours:
        raise RefusedError(f"{hours:g} hours are asked for", where=guarded.environment,
                           change=f"ask for {LEAST_HOURS:g} to {guarded.max_hours:g} (guard.max_hours)")  # fmt: skip
    if nodes < 1:
        raise RefusedError(f"{nodes} nodes are asked for", change="ask for at least 1")
    for name in ("schedule_group", "scheduler_role_arn", "dead_letter_arn"):
        if not getattr(guarded, name):
            raise RefusedError(f"{name} is not known, so no stop can be armed", where=guarded.environment,
                               change="deploy the Guard stack")  # fmt: skip


@contextmanager
def _foreseen(doing: str, where: str, change: str) -> Iterator[None]:
    try:
        yield
    except RAISED as error:
        raise WorldError(f"{doing} failed ({words(error)})", where=where, change=change) from error


class _Start:
    """One start at work."""

    def __init__(self, clients: Clients, guarded: Guarded, asked: _Asked) -> None:
        self.clients, self.guarded, self.asked, self.lease = clients, guarded, asked, asked.lease
        self.pointer = Pointer(prefix=guarded.prefix)
        self.seen = Seen(now=asked.now)
        self.began_s = clients.wall_s()
        self.armed_here = False  # whether this start made the schedule, not an earlier one of the same run
        self.may_be_raised = False  # whether nodes may stand for which this start asked
        self.owner = LeaseOwner(clients, guarded, self.pointer, self.lease)  # of the lease, once it is taken

    # may it

    def require_allowed(self) -> None:
        """Look at everything before anything is written."""
        self.seen = look(self.clients, self.guarded, self.asked.now)
        self._require_seen("fence", "lease", "node group", "instances")
        self._require_no_fence()
        self._require_no_other_lease()
        self._require_window()
        self._require_group()
        self._require_launches()
        self._require_own_schedules()

    def _require_seen(self, *sources: str) -> None:
        for source, why in self.seen.unknown.items():
            if source in sources:
                raise WorldError(f"{source} unknown ({why}), so nothing is raised", where=self.guarded.environment,
                                 change="allow it to this identity where it is denied, else try again")  # fmt: skip

    def _require_no_fence(self) -> None:
        fence, name = self.seen.fence, self.guarded.environment
        if fence is not None and fence.closed:
            raise RefusedError(
                f"fenced by {fence.who} at {fence.at:%Y-%m-%d %H:%M} UTC: {fence.why}",
                where=self.guarded.at_prefix(fence.prefix).url(FENCE_KEY),
                change=f"tandem status --env {name}; when the reason is gone, tandem stop --clear --env {name}",
            )  # fmt: skip

    def _require_no_other_lease(self) -> None:
        self.pointer = self.seen.pointer or self.pointer  # as it was when the lease was read
        lease, now, name = self.seen.lease, self.asked.now, self.guarded.environment
        if lease is None:
            return
        at = f"{lease.deadline:%Y-%m-%d %H:%M} UTC"
        where = self.guarded.at_prefix(lease.prefix).url(lease_key(lease.run))
        if lease.ending is not None and lease.deadline > now:
            raise RefusedError(
                f"run {lease.run} of {lease.who} ends since {lease.ending:%Y-%m-%d %H:%M} UTC", where=where,
                change=f"wait until tandem status --env {name} shows no lease; to finish it by hand: "
                f"tandem stop --end --env {name}",
            )  # fmt: skip
        if lease.deadline <= now:
            raise RefusedError(
                f"the lease of run {lease.run} ended at {at}", where=where,
                change=f"the reaper fences it within minutes; then tandem stop --clear --env {name}",
            )  # fmt: skip
        if lease.run != self.lease.run:
            raise RefusedError(
                f"run {lease.run} of {lease.who} has the fleet until {at}", where=where,
                change=f"wait, or end it: tandem stop --env {name}",
            )  # fmt: skip
        if (lease.experiment, lease.node_label) != (self.lease.experiment, self.lease.node_label):
            raise RefusedError(f"run {lease.run} was started for {lease.experiment or 'no experiment'}", where=where,
                               change="take another name for this run")  # fmt: skip
        if lease.nodes != self.lease.nodes:
            raise RefusedError(f"run {lease.run} was started for {lease.nodes} nodes", where=where,
                               change="ask for as many, or take another name for this run")  # fmt: skip
        self.lease = lease  # its own, from a start that did not come to its end; the deadline stays the first

    def _require_window(self) -> None:
        guarded, deadline = self.guarded, self.lease.deadline
        if self.seen.capacity_kind != "capacity-block":
            return
        # as declared or looked up by the caller, and as deployed: what both allow
        starts = max(filter(None, (guarded.block_starts, self.seen.block_starts)), default=None)
        ends = min(filter(None, (guarded.block_ends, self.seen.block_ends)), default=None)
        if starts is None or ends is None:
            raise RefusedError("the Capacity Block's start and end are not said", where=guarded.environment,
                               change="write capacity.block from the offer and deploy Fleet")  # fmt: skip
        if self.asked.now < starts or ends - BLOCK_MARGIN < deadline:
            raise RefusedError(
                f"the Capacity Block lasts from {starts:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC, and a run must "
                f"end 45 minutes before its end; asked: until {deadline:%Y-%m-%d %H:%M}", where=guarded.environment,
                change="ask for fewer hours, or renew the block: docs/runbook.md",
            )  # fmt: skip

    def _require_group(self) -> None:
        guarded, seen = self.guarded, self.seen
        if not seen.present:
            raise RefusedError("not there", where=guarded.group, change="deploy the Fleet stack")
        if not seen.owned:
            raise RefusedError(
                f"another's: without the tag {OWNER_TAG}={guarded.environment}", where=guarded.group,
                change="it is left alone; give one of the two another name",
            )  # fmt: skip
        again = seen.lease is not None
        if seen.desired != 0 and not again:
            raise RefusedError(f"already at {seen.desired}, without a lease", where=guarded.group,
                               change=f"tandem stop --env {guarded.environment}")  # fmt: skip
        if seen.instances and not again:
            ids = ", ".join(f"{one.id} ({one.state})" for one in seen.instances)
            raise RefusedError(
                f"instances without a lease: {ids}", where=guarded.group,
                change=f"wait until they are gone, or tandem stop --env {guarded.environment}",
            )  # fmt: skip
        with _foreseen("asking EKS", guarded.group, "try again; nothing was raised"):
            group = self._describe()
        limit = group.get("scalingConfig", {}).get("maxSize", 0)
        # DEGRADED is what a group stays after a lack of capacity, until it grows (aws/containers-roadmap#2326)
        if group.get("status") not in {"ACTIVE", "DEGRADED"} or limit < self.asked.nodes:
            raise RefusedError(
                f"{group.get('status')}, at most {limit} nodes; {self.asked.nodes} are asked for", where=guarded.group,
                change="wait until it is ACTIVE, and ask for no more than capacity.nodes",
            )  # fmt: skip

    def _require_launches(self) -> None:
        """Refuse where somebody else than a stop of ours keeps the Auto Scaling group from adding instances."""
        ours = self.seen.fence.suspended if self.seen.fence else ()
        with _foreseen("asking Auto Scaling", self.guarded.group, "try again; nothing was raised"):
            groups = read_scaling_groups(self.clients, self.seen.scaling_groups)
        for group in groups:
            if LAUNCH in group.suspended and group.name not in ours:
                command = quote_command(
                    "aws", "autoscaling", "resume-processes", "--auto-scaling-group-name", group.name,
                    "--scaling-processes", LAUNCH, "--region", self.guarded.region,
                )  # fmt: skip
                raise RefusedError("its launches are suspended, and no stop of Tandem wrote that it did so",
                                   where=f"Auto Scaling group {group.name}",
                                   change=f"find out why, then: {command}")  # fmt: skip

    def _require_own_schedules(self) -> None:
        """Refuse beside a schedule that no lease owns: it could end this run, or raise behind its end."""
        group = self.guarded.schedule_group
        with _foreseen("listing the schedules", f"schedule group {group}", "try again; nothing was raised"):
            strangers = list_foreign_schedules(self.clients, self.guarded, self.lease)
            ended = self.seen.fence.run if self.seen.fence else None
            if ended and any(schedule.name == f"{STOP_PREFIX}{ended}" for schedule in strangers):
                # a release of an older Tandem, or one that died, left the stop of the run that its fence ended
                delete_unnamed_schedule(self.clients, self.guarded, ended)
                strangers = list_foreign_schedules(self.clients, self.guarded, self.lease)
            pointer = read_pointer(self.clients, self.guarded) if strangers else Pointer()
        if any(schedule.name == f"{STOP_PREFIX}{pointer.run}" for schedule in strangers):
            raise RefusedError(f"run {pointer.run} has the fleet now", where=self.guarded.group,
                               change=f"tandem status --env {self.guarded.environment}")  # fmt: skip
        for schedule in strangers:
            command = quote_command(
                "aws", "scheduler", "delete-schedule", "--group-name", group, "--name", schedule.name, "--region",
                self.guarded.region,
            )  # fmt: skip
            raise RefusedError(f"no lease owns it, and it calls {schedule.target_arn}",
                               where=f"schedule {group}/{schedule.name}",
                               change=f"if no other start is under way: {command}")  # fmt: skip

    def _describe(self) -> Mapping[str, Any]:
        answer = self.clients.eks.describe_nodegroup(
            clusterName=self.guarded.cluster, nodegroupName=self.guarded.node_group
        )
        found: Mapping[str, Any] = answer["nodegroup"]
        return found

    # lease and stop

    def take_lease(self) -> None:
        """Write the lease, then point to it: the pointer decides between two starts, also of the same run."""
        place = self.guarded.at_prefix(self.pointer.prefix)
        url = place.url(lease_key(self.lease.run))
        with _foreseen("writing the lease", url, f"{self._again()}; nothing was raised"):
            if self.seen.lease is None:
                written = write_lease(self.clients, self.guarded, self.lease)
                self.lease = written or self._adopt_lease(url)
            elif self.asked.lease.unarmed != self.lease.unarmed:
                accepted = replace(self.lease, unarmed=self.asked.lease.unarmed)
                self.lease = write_lease(self.clients, self.guarded, accepted) or self.lease
            etag = write(self.clients, place, POINTER_KEY, {"run": self.lease.run}, etag=self.pointer.etag)
        if etag is None:
            raise RefusedError("another start or stop came first", where=place.url(POINTER_KEY),
                               change=f"tandem status --env {self.guarded.environment}")  # fmt: skip
        self.pointer = Pointer(run=self.lease.run, prefix=place.prefix, etag=etag)
        self.owner = LeaseOwner(self.clients, self.guarded, self.pointer, self.lease)

    def _adopt_lease(self, url: str) -> Lease:
        """Go on with a lease that a start of the same run wrote and died before it pointed to it."""
        lease, fault = read_lease(self.clients, self.guarded,
                                  Pointer(run=self.lease.run, prefix=self.guarded.prefix))  # fmt: skip
        mine = lease and replace(lease, created=self.lease.created, deadline=self.lease.deadline, etag="")
        if lease is None or mine != self.lease or lease.deadline <= self.asked.now:
            raise RefusedError(fault or f"run {self.lease.run} was started before", where=url,
                               change="take another name for this run")  # fmt: skip
        return lease

    def give_lease_back(self) -> None:
        """Let others start, where no stop could be armed and so nothing was raised."""
        if self.seen.lease is not None:
            return  # an earlier start of the same run may have raised under it
        with suppress(*RAISED):
            if end_pointer(self.clients, self.guarded, self.pointer):
                write_lease(self.clients, self.guarded, replace(self.lease, ending=self.asked.now))
            self.disarm()

    def arm(self) -> str:
        """Create the one-shot stop and read it back."""
        where = f"schedule {self.guarded.schedule_group}/{self.lease.schedule}"
        with _foreseen("arming the one-shot stop", where, "nothing was raised; try again, or deploy the Guard stack"):
            wanted = schedule(self.guarded, self.lease)
            self.owner.call_if_own(self._create_schedule, self._refuse)
            found = self.clients.scheduler.get_schedule(GroupName=self.guarded.schedule_group, Name=self.lease.schedule)
            target = {name: found["Target"].get(name) for name in wanted["Target"]}
            got, arn = (found["ScheduleExpression"], found.get("State", "ENABLED"), target), str(found["Arn"])
        if got != (wanted["ScheduleExpression"], wanted["State"], wanted["Target"]):
            raise WorldError(
                "it is not as it was asked for", where=where,
                change="delete it in the console of EventBridge Scheduler and take another name for this run",
            )  # fmt: skip
        return arn

    def _create_schedule(self) -> None:
        armed_before, self.armed_here = self.armed_here, True  # also where the answer is lost
        try:
            self.clients.scheduler.create_schedule(**schedule(self.guarded, self.lease))
        except ClientError as error:
            if code_of(error) != "ConflictException":
                raise
            self.armed_here = armed_before  # of an earlier start of the same run: read back like a new one

    def _refuse(self, loss: str) -> RefusedError:
        return RefusedError(f"stopped before the raise: {loss}; nothing was raised", where=self.guarded.group,
                            change=f"tandem status --env {self.guarded.environment}")  # fmt: skip

    def tell_unarmed(self) -> None:
        """Tell people which paths do not guard this run."""
        if not self.lease.unarmed:
            return
        name, paths = self.guarded.environment, ", ".join(self.lease.unarmed)
        text = (
            f"{name}: run {self.lease.run} starts although these paths would not stop its fleet: {paths}.\n"
            f"{self.lease.who} accepted that. The others end it, at the latest at its deadline "
            f"{self.lease.deadline:%Y-%m-%d %H:%M} UTC.\nLook: tandem status --env {name}; docs/runbook.md"
        )
        with _foreseen("telling people that paths are not armed", str(self.guarded.topic_arn),
                       "nothing was raised; mend the topic, or arm the paths"):  # fmt: skip
            tell(self.clients, self.guarded, "a start accepted unarmed paths", text)

    def resume_launches(self) -> None:
        """Let the Auto Scaling groups add instances again where a stop of ours suspended it, and forget that."""
        fence = self.seen.fence
        ours = set(fence.suspended if fence else ()) & set(self.seen.scaling_groups)
        for name in sorted(ours):
            with _foreseen(f"resuming the launches of Auto Scaling group {name}", self.guarded.group,
                           "nothing was raised; try again"):  # fmt: skip
                self.owner.call_if_own(lambda name=name: resume_launch(self.clients, name), self._refuse)  # type: ignore[misc]
        if ours:
            with _foreseen("writing what was resumed", self.guarded.url(FENCE_KEY), "nothing was raised; try again"):
                change_fence(self.clients, self.guarded, fence, _forget_suspended)

    # the raise

    def raised_already(self) -> bool:
        """Whether an earlier start of this run had been taken."""
        return self.seen.lease is not None and self.seen.desired == self.asked.nodes

    def raise_(self) -> None:
        """Ask EKS for the nodes, with the run's labels and without those of another."""
        if self._overslept():  # its one-shot stop has fired
            raise RefusedError(f"the lease's deadline {self.lease.deadline:%Y-%m-%d %H:%M} UTC has passed meanwhile",
                               where=self.guarded.group, change=LATE)  # fmt: skip
        try:
            labels = self._describe().get("labels", {})
            gone = [name for name in labels if name.startswith(LABELS) and name not in self.lease.node_label]
            change = {"addOrUpdateLabels": dict(self.lease.node_label), **({"removeLabels": gone} if gone else {})}
            self.owner.call_if_own(lambda: self._size_group(change), self._refuse)
        except RAISED as error:  # it may have been taken all the same
            raise WorldError(f"raising failed ({words(error)}); {self._take_back()}", where=self.guarded.group,
                             change=self._again()) from error  # fmt: skip

    def _size_group(self, labels: Mapping[str, Any]) -> None:
        self.may_be_raised = True
        self.clients.eks_once.update_nodegroup_config(
            clusterName=self.guarded.cluster, nodegroupName=self.guarded.node_group, labels=labels,
            scalingConfig={"minSize": 0, "desiredSize": self.asked.nodes},
        )  # fmt: skip

    def drop_stray_labels(self) -> None:
        """Take off labels that a relabel of another run, which slept until now, set beside this run's."""
        with suppress(*RAISED):  # the reaper sees them too
            labels = read_our_labels(self.clients, self.guarded)
            strays = [name for name in labels if name not in self.lease.node_label]
            if strays:
                self.owner.call_if_own(lambda: self.clients.eks_once.update_nodegroup_config(
                    clusterName=self.guarded.cluster, nodegroupName=self.guarded.node_group,
                    labels={"removeLabels": strays},
                ), self._refuse)  # fmt: skip

    def disarm(self) -> None:
        """Delete the one-shot stop of a lease that is over, where nothing stands for which it is needed."""
        if self.armed_here and not self.may_be_raised:
            with suppress(*RAISED):
                delete_unnamed_schedule(self.clients, self.guarded, self.lease.run)

    def require_last_word(self) -> None:
        """Read fence and lease again: a stop that came while the raise was under way has the last word."""
        try:
            loss = self.owner.find_loss()
        except RAISED as error:
            raise WorldError(f"the fence could not be read after the raise ({words(error)}); {self._take_back()}",
                             where=self.guarded.bucket, change=self._again()) from error  # fmt: skip
        if self._overslept():
            raise RefusedError(f"the lease's deadline passed while it was being raised; {self._take_back()}",
                               where=self.guarded.group, change=LATE)  # fmt: skip
        if loss:
            raise RefusedError(f"stopped while it was being raised ({loss}); {self._take_back()}",
                               where=self.guarded.group,
                               change=f"tandem status --env {self.guarded.environment}")  # fmt: skip

    def _again(self) -> str:
        return f"try again with the same run (--run {quote_command(self.lease.run)})"

    def _overslept(self) -> bool:
        """Whether the deadline has passed while this start was at work, as where the machine under it slept."""
        return self.asked.now + timedelta(seconds=self.clients.wall_s() - self.began_s) >= self.lease.deadline

    def _take_back(self) -> str:
        name = self.guarded.environment
        if not self.owner.may_take_back():
            return ("another start has the fleet now, or that cannot be read, so it is left alone; the reaper ends "
                    f"what goes beyond its lease: tandem status --env {name}")  # fmt: skip
        try:
            scale_to_zero(self.clients, self.guarded)
        except RAISED as error:
            return (f"taking the raise back failed too ({words(error)}): run tandem stop --env {name} now; its "
                    "one-shot stop is armed")  # fmt: skip
        self.may_be_raised = False
        return "the node group was set to 0 again"


def _forget_suspended(fence: Fence | None) -> Fence | None:
    return replace(fence, suspended=()) if fence and fence.suspended and not fence.closed else None


def schedule(guarded: Guarded, lease: Lease) -> dict[str, Any]:
    """Return the one-shot stop of a lease, as CreateSchedule takes it.

    The names in `Input` begin with a capital as in the CDK's own example of a universal target. Unverified: nobody has
    seen one fire with EKS in an account yet.
    """
    at = lease.deadline.astimezone(UTC)
    payload = {
        "ClusterName": guarded.cluster, "NodegroupName": guarded.node_group,
        "ScalingConfig": {"MinSize": 0, "DesiredSize": 0},
    }  # fmt: skip
    return {
        "GroupName": guarded.schedule_group, "Name": lease.schedule,
        "ScheduleExpression": f"at({at:%Y-%m-%dT%H:%M:%S})", "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"}, "ActionAfterCompletion": "DELETE", "State": "ENABLED",
        "Description": f"ends run {lease.run} of {guarded.environment}",
        "Target": {
            "Arn": TARGET, "RoleArn": guarded.scheduler_role_arn, "Input": json.dumps(payload),
            "DeadLetterConfig": {"Arn": guarded.dead_letter_arn}, "RetryPolicy": RETRY,
        },
    }  # fmt: skip
