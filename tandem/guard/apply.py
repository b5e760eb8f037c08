"""The stop: a fence in the bucket, a node group at 0, passes until EC2 lists no instance.

A pass looks, does the due work and returns. All of its state is in `stop.json`
(tandem/guard/fence.py), so it may die anywhere and the next one goes on. It reads AWS only, never
Kubernetes. Invariant: standard library and boto3 only, because a Lambda packs this file; nothing
without the environment's own tag is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from tandem.guard.bucket import MAX_ATTEMPTS
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fence import FENCE_KEY, MAX_PASSES, Fence, FenceState, change_fence, read_fence
from tandem.guard.fleet_state import CLOCK_TOLERANCE, FleetState
from tandem.guard.lease import read_lease, read_pointer
from tandem.guard.notify import CHANGE_TEXTS, notify_subscribers
from tandem.guard.observe import observe_fleet
from tandem.guard.ownership import call_if_allowed, is_fresh
from tandem.guard.pass_metrics import METRIC_UNITS, PASS_MINUTES, STOP_FAILURES
from tandem.guard.plan import StopPlan, plan_stop
from tandem.guard.scaling_groups import LAUNCH_PROCESS, ScalingGroup, read_scaling_groups
from tandem.guard.schedules import list_foreign_schedules
from tandem.guard.values import CALL_ERRORS, describe_error, format_value, shorten_sentence

MAX_OBSERVATIONS = 3  # of a pass, if the lease changes while it looks
REMINDER_INTERVAL = timedelta(hours=1)
REAPER = "reap"


@dataclass(frozen=True, kw_only=True)
class PassReport:
    """Observations and actions of a pass.

    Args:
        actions: each a sentence.
        failures: due actions or readings that failed; the next pass tries again.
        messages: those that were sent to the topic.
    """

    fleet: FleetState
    plan: StopPlan
    actions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the report for a log line or `--json`: times in ISO 8601, UTC."""
        fence = self.fleet.fence
        return {
            "at": format_value(self.fleet.now),
            "why": list(self.plan.reasons),
            "fence": fence.state if fence else None,
            "desired": self.fleet.desired_size,
            "instances": {instance.id: instance.state for instance in self.fleet.instances},
            "done": list(self.actions),
            "failed": list(self.failures),
            "told": list(self.messages),
            "unknown": dict(self.fleet.unknown),
            "faults": list(self.fleet.faults),
            "metrics": dict(self.metrics),
        }


@dataclass
class _StopPass:
    """One pass: fence, scale down, terminate, publish, notify. AWS's faults go to `failures`.

    Args:
        who: name for the fence, if there is none yet.
        run: the run to stop; None takes the lease's.
    """

    clients: AwsClients
    config: GuardConfig
    fleet: FleetState
    plan: StopPlan
    who: str
    run: str | None = None
    actions: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    terminated_ids: tuple[str, ...] = ()
    suspended_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Take the beginning of the look as the time of the last reading of the fence."""
        self.read_at_s = self.fleet.read_start_s

    def stop(self) -> None:
        """Fence, set 0, end by id; write to a silent bucket last, so that it delays nothing."""
        is_fence_unknown = "fence" in self.fleet.unknown
        was_closed_before = self.fleet.is_fenced
        planned_scale_down = self.plan.scale_down
        if not is_fence_unknown:
            self._write_fence()
        self.failures.extend(self.plan.failures)
        # a new fence: a start between the look and the fence was allowed to raise, and reads the
        # fence only afterwards
        if self.plan.scale_down or (
            (planned_scale_down or not was_closed_before) and self.fleet.can_scale
        ):
            with self._record_failure(f"setting {self.config.node_group_description} to 0"):
                scale_down = partial(scale_to_zero, self.clients, self.config)
                if not call_if_allowed(
                    self.clients, self._find_release, scale_down, needs_fresh_reading=False
                ):
                    self.actions.append(f"{self.config.node_group_description} set to 0")
        if self.plan.hold_scaling_groups and not self._find_release(force_read=True):
            # the third lever: EKS refuses 0, or does not do it
            with self._record_failure(
                f"reading the Auto Scaling groups of {self.config.node_group_description}"
            ):
                for group in read_scaling_groups(self.clients, self.fleet.scaling_groups):
                    with self._record_failure(f"holding Auto Scaling group {group.name} at 0"):
                        self._hold_scaling_group(group)
        if self.plan.terminate_ids:  # by id, so it cannot end another run's
            self._terminate_instances()
        if is_fence_unknown:
            self._write_fence()
        if was_closed_before and self.fleet.desired_size and "lease" not in self.fleet.unknown:
            # a schedule that no lease owns may be the one that raises behind the fence
            schedule_group = self.config.schedule_group
            with self._record_failure(f"listing the schedules of {schedule_group}"):
                self.failures += [
                    f"schedule {schedule.name} of group {schedule_group} is no lease's and calls "
                    f"{schedule.target_arn}; delete it if nobody knows it"
                    for schedule in list_foreign_schedules(
                        self.clients, self.config, self.fleet.lease
                    )
                ]

    def _find_release(self, *, force_read: bool = False) -> str:
        """Return a sentence if the fence was released, as another run may have started.

        Args:
            force_read: whether to read the fence in any case, not only if the clock moved since the
                last reading.
        """
        if not force_read and is_fresh(self.clients, self.read_at_s):
            return ""
        start_s = self.clients.wall_s()
        try:
            fence = read_fence(self.clients, self.config)
        except CALL_ERRORS:
            return ""  # a stop does not wait for S3
        self.read_at_s = start_s
        if (fence is not None and fence.is_closed) or not self.fleet.is_fenced:
            return ""
        release = "the fence was released meanwhile, so nothing more is stopped"
        self.actions.append(release)
        return release

    def finish(self, *, publishes_metrics: bool) -> PassReport:
        """Publish, notify and record the results of this pass.

        Args:
            publishes_metrics: whether CloudWatch counts the pass; only the guard's functions may
                publish there.
        """
        # the rest is the reaper's alone: their absence shows its silence, and money and idle
        # minutes are summed
        reaper_metrics = self.plan.metrics if self.who == REAPER else {}
        metrics = {**reaper_metrics, STOP_FAILURES: float(bool(self.failures))}
        if not self.plan.reasons:
            self.failures += [
                f"{source} unknown: {outcome}" for source, outcome in self.fleet.unknown.items()
            ]
        is_unseen = bool(self.fleet.unknown and self.fleet.own_instances)
        is_blind = not self.plan.reasons and is_unseen and self.who == REAPER
        change: str = self.plan.fence_state or ""
        if is_blind:
            change = "blind"
        elif metrics[STOP_FAILURES]:
            change = "failed"
        outcome = self._notify(change) if self.plan.reasons or is_blind else False
        if publishes_metrics:
            data = [
                {
                    "MetricName": name,
                    "Value": value,
                    "Unit": METRIC_UNITS[name],
                    "Timestamp": self.fleet.now,
                }
                for name, value in metrics.items()
            ]
            with self._record_failure(f"publishing to {self.config.namespace}"):
                self.clients.cloudwatch.put_metric_data(
                    Namespace=self.config.namespace, MetricData=data
                )
        if self.plan.reasons:
            self._update_fence(change, notification_ok=outcome)
        return PassReport(
            fleet=self.fleet,
            plan=self.plan,
            actions=tuple(self.actions),
            failures=tuple(self.failures),
            messages=tuple(self.messages),
            metrics=metrics,
        )

    @contextmanager
    def _record_failure(self, step: str) -> Iterator[None]:
        try:
            yield
        except CALL_ERRORS as error:
            self.failures.append(f"{step} failed: {describe_error(error)}")

    def _write_fence(self) -> None:
        """Write the fence, or keep an existing one: two stops agree on the first."""
        why = shorten_sentence("; ".join(self.plan.reasons))
        run = self.run or (self.fleet.lease.run if self.fleet.lease else None)
        new_fence = Fence(state="stopping", who=self.who, why=why, run=run, at=self.fleet.now)

        def close_fence(fence: Fence | None) -> Fence | None:
            if fence and fence.is_closed and not fence.fault:
                return None
            # kept until a start has resumed them
            suspended_groups = fence.suspended if fence else ()
            return replace(
                new_fence,
                suspended=tuple(dict.fromkeys((*suspended_groups, *self.suspended_groups))),
            )

        was_closed_before = self.fleet.is_fenced
        start_s = self.clients.wall_s()
        known_etag = self.fleet.fence.etag if self.fleet.fence else ""
        with self._record_failure(f"writing {self.config.url(FENCE_KEY)}"):
            fence = change_fence(self.clients, self.config, self.fleet.fence, close_fence)
            if fence is None:
                self.failures.append(
                    f"{self.config.url(FENCE_KEY)}: others wrote it {MAX_ATTEMPTS} times in between"
                )
                return
            self.fleet = replace(self.fleet, fence=fence)
            self.plan = plan_stop(self.fleet, self.config)
            if fence.etag != known_etag:
                self.read_at_s = start_s
            if not was_closed_before:
                self.actions.append(f"fenced: {fence.why}")

    def _hold_scaling_group(self, group: ScalingGroup) -> None:
        if LAUNCH_PROCESS not in group.suspended_processes:
            self.suspended_groups = (*self.suspended_groups, group.name)
            # before the call, so that a start may resume them
            self._change_fence(self._add_suspended_groups)
            processes = [LAUNCH_PROCESS]
            self.clients.autoscaling.suspend_processes(
                AutoScalingGroupName=group.name, ScalingProcesses=processes
            )
            self.actions.append(
                f"Auto Scaling group {group.name}: launches suspended (unproven on a real account)"
            )
        if (group.desired_size, group.min_size) != (0, 0):
            resize = self.clients.autoscaling.update_auto_scaling_group
            resize(AutoScalingGroupName=group.name, MinSize=0, DesiredCapacity=0)
            self.actions.append(
                f"Auto Scaling group {group.name} set to 0 (unproven on a real account)"
            )

    def _add_suspended_groups(self, fence: Fence | None) -> Fence | None:
        if (
            fence is None
            or not fence.is_closed
            or set(self.suspended_groups) <= set(fence.suspended)
        ):
            return None
        return replace(
            fence, suspended=tuple(dict.fromkeys((*fence.suspended, *self.suspended_groups)))
        )

    def _change_fence(self, change: Callable[[Fence | None], Fence | None]) -> None:
        with self._record_failure(f"writing {self.config.url(FENCE_KEY)}"):
            fence = change_fence(self.clients, self.config, self.fleet.fence, change)
            self.fleet = replace(self.fleet, fence=fence or self.fleet.fence)

    def _terminate_instances(self) -> None:
        """Terminate the instances one by one: EC2 ends none of a call if it refuses one.

        If EC2 does not answer, each call would take half a minute of the pass, which must also
        notify and write.
        """
        for number, instance_id in enumerate(self.plan.terminate_ids, 1):
            try:
                self.clients.ec2.terminate_instances(InstanceIds=[instance_id])
                self.terminated_ids = (*self.terminated_ids, instance_id)
            except CALL_ERRORS as error:
                self.failures.append(f"terminating {instance_id} failed: {describe_error(error)}")
                untried = ", ".join(self.plan.terminate_ids[number:])
                if untried and not isinstance(error, ClientError):
                    self.failures.append(
                        f"terminating {untried} was not tried: EC2 gave the call before no answer"
                    )
                    break
        if self.terminated_ids:
            self.actions.append(f"terminated by id: {', '.join(self.terminated_ids)}")

    def _notify(self, change: str) -> bool:
        """Notify people of a change, and of a failure every hour; return whether they know."""
        fence = self.fleet.fence
        now = self.fleet.now
        # without a record of messages: the first pass of each hour
        if fence is None or not fence.is_closed:
            is_new = now.minute < PASS_MINUTES or self.who != REAPER
        elif (
            fence.told_at is None
            or fence.told_at - CLOCK_TOLERANCE <= now < fence.told_at + REMINDER_INTERVAL
        ):
            is_new = change != fence.told
        else:
            is_new = change != fence.told or change == "failed"
        if not is_new:
            return False
        instance_ids = ", ".join(instance.id for instance in self.fleet.instances) or "none"
        lines = [
            f"{self.config.environment}: the fleet is {CHANGE_TEXTS[change]}.",
            *(f"Why: {why}" for why in self.plan.reasons),
            (
                "Instances that EC2 lists:"
                f" {'unknown' if 'instances' in self.fleet.unknown else instance_ids}"
            ),
            *(f"Done: {sentence}" for sentence in self.actions),
            *(f"Failed: {sentence}" for sentence in self.failures),
            f"Look: tandem status --env {self.config.environment}; docs/runbook.md",
        ]
        message = "\n".join(lines)
        failure_count = len(self.failures)
        with self._record_failure(f"telling {self.config.topic_arn}"):
            notify_subscribers(self.clients, self.config, f"fleet {CHANGE_TEXTS[change]}", message)
            self.messages.append(message)
        return len(self.failures) == failure_count

    def _update_fence(self, change: str, *, notification_ok: bool) -> None:
        """Write the results of this pass into the fence; write nothing if nothing is new."""
        state: FenceState = self.plan.fence_state or "stopping"
        was_terminating = self.fleet.fence is not None and self.fleet.fence.state == "terminating"
        if state == "terminating" and not self.terminated_ids and not was_terminating:
            state = "stopping"  # instances are terminating only if EC2 took the order by id

        def add_pass(current_fence: Fence | None) -> Fence | None:
            if current_fence is None or not current_fence.is_closed:
                return None  # the fence was lifted meanwhile, or could never be written
            instance_ids = tuple(instance.id for instance in self.fleet.instances)
            if "instances" in self.fleet.unknown:
                instance_ids = current_fence.instances
            new_fence = replace(
                current_fence,
                state=state,
                etag="",
                instances=instance_ids,
                terminated=tuple(dict.fromkeys((*current_fence.terminated, *self.terminated_ids))),
                suspended=tuple(dict.fromkeys((*current_fence.suspended, *self.suspended_groups))),
                told=change if notification_ok else current_fence.told,
                told_at=self.fleet.now if notification_ok else current_fence.told_at,
            )
            if new_fence.state == "stopped" and new_fence == replace(current_fence, etag=""):
                return None
            return replace(
                new_fence,
                passes=min(current_fence.passes + 1, MAX_PASSES),
                last_look=self.fleet.now,
            )

        if self.fleet.is_fenced:
            self._change_fence(add_pass)


def scale_to_zero(clients: AwsClients, config: GuardConfig) -> None:
    """Set the node group to 0 nodes in EKS.

    Raises:
        CALL_ERRORS: EKS does not answer, or refuses.
    """
    size = {"minSize": 0, "desiredSize": 0}
    clients.eks_once.update_nodegroup_config(
        clusterName=config.cluster, nodegroupName=config.node_group, scalingConfig=size
    )


def run_reaper_pass(clients: AwsClients, config: GuardConfig, now: datetime) -> PassReport:
    """Make one pass of the reaper.

    The lease is read again before the pass acts: a start or an end may have come during the look.
    """
    for _ in range(MAX_OBSERVATIONS):
        fleet = observe_fleet(clients, config, now)
        plan = plan_stop(fleet, config)
        is_settled = not plan.reasons or fleet.is_fenced or "lease" in fleet.unknown
        if is_settled or _is_lease_unchanged(clients, config, fleet):
            break
    stop_pass = _StopPass(clients, config, fleet, plan, REAPER)
    if plan.reasons:
        stop_pass.stop()
    return stop_pass.finish(publishes_metrics=True)


def _is_lease_unchanged(clients: AwsClients, config: GuardConfig, fleet: FleetState) -> bool:
    """Whether the lease is still the one that was read; unreadable counts as unchanged."""
    try:
        pointer = read_pointer(clients, config)
        etags = [
            lease.etag if lease else ""
            for lease in (read_lease(clients, config, pointer)[0], fleet.lease)
        ]
    except CALL_ERRORS:
        return True
    return pointer == fleet.pointer and etags[0] == etags[1]


def stop_fleet(  # noqa: PLR0913 - each is a field of the fence
    clients: AwsClients,
    config: GuardConfig,
    *,
    who: str,
    why: str,
    run: str | None,
    now: datetime,
    publishes_metrics: bool = False,
) -> PassReport:
    """Stop the fleet: fence it, set the node group to 0. The reaper's passes do the rest.

    Args:
        who: as for Fence.
        why: in a sentence; an existing fence keeps its own.
        run: the run to stop; None takes the lease's, if there is one.
        publishes_metrics: whether CloudWatch counts the pass; a person sees failures in the report.

    Never raises for AWS: actions that failed are in the report's `failures`.
    """
    fleet = observe_fleet(clients, config, now)
    plan = replace(
        plan_stop(fleet, config), reasons=(shorten_sentence(why),), scale_down=fleet.can_scale
    )
    run = shorten_sentence(run) if run else None
    stop_pass = _StopPass(clients, config, fleet, plan, shorten_sentence(who), run)
    stop_pass.stop()
    return stop_pass.finish(publishes_metrics=publishes_metrics)
