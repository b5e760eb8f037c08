"""The runtime of a rehearsed cluster's pods: the protocol, and pods by script in virtual time.

Left out of pods by script: init containers (the scheduler counts their requests, nothing runs
them), a separate state for each of several containers, probes, and the deadline of a pod.
`process_pods` runs init containers and probes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

Object = dict[str, Any]
PodPhase = Literal["Pending", "Running", "Succeeded", "Failed"]
FIRST_BACKOFF_S = 10.0
LONGEST_BACKOFF_S = 300.0
CALM_RUN_S = 600.0  # the kubelet forgets its back-off after a run of twice the longest
CRASH_EXIT_CODE = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PodState:
    """The state of a pod, or of one of its containers, from a runtime.

    Args:
        phase: as status.phase.
        is_ready: whether the pod answers requests.
        exit_code: of the container's last run that ended; None before.
        restarts: how often the container was started again.
        log: all that the container wrote.
        waiting_reason: why no container runs, such as CrashLoopBackOff; empty while one runs.
        started_at, finished_at: of the last run; None for the moment of the look at the pod.
        containers: the state of each container by name, init containers too; one that is not there
            shares the pod's.
    """

    phase: PodPhase
    is_ready: bool = False
    exit_code: int | None = None
    restarts: int = 0
    log: str = ""
    waiting_reason: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    containers: Mapping[str, PodState] = field(default_factory=dict)


class PodRuntime(Protocol):
    """The part that starts, watches and stops pods, as a kubelet does."""

    def start_pod(self, pod: Object) -> None:
        """Start a pod that is bound to a node; called once for each pod."""

    def look_at_pod(self, pod: Object) -> PodState:
        """Return the state of a pod now."""

    def stop_pod(self, pod: Object) -> bool:
        """Stop a pod and tell whether it is gone; called in each pass until the pod is removed."""

    def kill_pod(self, pod: Object) -> None:
        """End a pod's processes at once, with no signal before, like a machine's power cut."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodScript:
    """The life of a pod, in seconds of virtual time.

    Args:
        start_s: from the pod's start until its container runs: images and volumes.
        run_s: how long each run lasts; None for ever.
        exit_code: of a run that ends by itself.
        ready_after_s: from the start of a run until the pod is ready.
        crashes: so many runs end with exit code 1 at the moment at which they would become ready.
        stop_s: from the request to stop until the pod is gone; its grace period cuts it short.
        log: what the container wrote.
    """

    start_s: float = 0.0
    run_s: float | None = None
    exit_code: int = 0
    ready_after_s: float = 0.0
    crashes: int = 0
    stop_s: float = 0.0
    log: str = ""


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """One run of a container, in seconds since the start of its pod; `end_s` None for no end."""

    start_s: float
    end_s: float | None
    exit_code: int


class VirtualPods:
    """Pods that follow scripts; their state is computed from the elapsed time, nothing sleeps.

    Args:
        now: the cluster's clock.
        choose_script: returns the script of a pod. By default each pod is ready at once and runs
            for ever.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        choose_script: Callable[[Object], PodScript] = lambda _: PodScript(),
    ) -> None:
        self._now = now
        self._choose_script = choose_script
        self._starts: dict[str, datetime] = {}
        self._stops: dict[str, datetime] = {}

    def start_pod(self, pod: Object) -> None:
        """Start a pod now; a second call changes nothing."""
        self._starts.setdefault(pod["metadata"]["uid"], self._now())

    def look_at_pod(self, pod: Object) -> PodState:
        """Return the state that the script gives a pod now."""
        start = self._starts.get(pod["metadata"]["uid"])
        script = self._choose_script(pod)
        elapsed_s = -1.0 if start is None else (self._now() - start).total_seconds()
        if start is None or elapsed_s < script.start_s:
            return PodState(phase="Pending", waiting_reason="ContainerCreating")
        policy = pod["spec"].get("restartPolicy", "Always")
        begun = [run for run in list_runs(script, policy, elapsed_s) if run.start_s <= elapsed_s]
        return _describe_runs(script, policy, begun, start, elapsed_s)

    def stop_pod(self, pod: Object) -> bool:
        """Tell whether the pod is gone: `stop_s`, or its grace period, after the first call."""
        uid = pod["metadata"]["uid"]
        asked = self._stops.setdefault(uid, self._now())
        grace_s = float(pod["metadata"].get("deletionGracePeriodSeconds", 30))
        is_over = uid in self._starts and self.look_at_pod(pod).phase in {"Succeeded", "Failed"}
        wait_s = (
            0.0
            if is_over or uid not in self._starts
            else min(self._choose_script(pod).stop_s, grace_s)
        )
        return (self._now() - asked).total_seconds() >= wait_s

    def kill_pod(self, pod: Object) -> None:
        """Forget a pod: a dead kubelet never looks at it again."""
        self._starts.pop(pod["metadata"]["uid"], None)


def list_runs(script: PodScript, policy: str, until_s: float) -> Iterator[ContainerRun]:
    """Yield the runs of a container in order, the last the first one that starts after `until_s`.

    As with a kubelet the first restart follows at once; the ones after it wait 10, 20, 40 ... 300
    s.

    Args:
        script: what the pod does.
        policy: restartPolicy of the pod: Always, OnFailure or Never.
        until_s: seconds since the start of the pod.
    """
    start_s = script.start_s
    delay_s = 0.0
    crashes = script.crashes
    while True:
        length_s = script.ready_after_s if crashes > 0 else script.run_s
        exit_code = CRASH_EXIT_CODE if crashes > 0 else script.exit_code
        end_s = None if length_s is None else start_s + length_s
        yield ContainerRun(start_s, end_s, exit_code)
        is_last = policy == "Never" or (policy == "OnFailure" and exit_code == 0)
        if end_s is None or length_s is None or is_last or start_s > until_s:
            return
        if length_s >= CALM_RUN_S:
            delay_s = 0.0
        start_s = end_s + delay_s
        crashes = crashes - 1
        delay_s = min(delay_s * 2 or FIRST_BACKOFF_S, LONGEST_BACKOFF_S)


def _describe_runs(
    script: PodScript, policy: str, runs: list[ContainerRun], start: datetime, elapsed_s: float
) -> PodState:
    """Return the state after the runs that have begun."""
    run = runs[-1]
    started_at = start + timedelta(seconds=run.start_s)
    if run.end_s is None or elapsed_s < run.end_s:
        last_code = runs[-2].exit_code if len(runs) > 1 else None
        return PodState(
            phase="Running",
            is_ready=elapsed_s >= run.start_s + script.ready_after_s,
            exit_code=last_code,
            restarts=len(runs) - 1,
            log=script.log,
            started_at=started_at,
        )
    is_last = policy == "Never" or (policy == "OnFailure" and run.exit_code == 0)
    final: PodPhase = "Succeeded" if run.exit_code == 0 else "Failed"
    return PodState(
        phase=final if is_last else "Running",
        exit_code=run.exit_code,
        restarts=len(runs) - 1,
        log=script.log,
        waiting_reason="" if is_last else "CrashLoopBackOff",
        started_at=started_at,
        finished_at=start + timedelta(seconds=run.end_s),
    )
