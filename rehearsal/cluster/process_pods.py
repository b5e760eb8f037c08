"""Pods whose containers are processes here: init ones in order, probes, restarts, logs, stops.

Left out: images, users, limits of CPU and memory, networks and their policies, liveness probes,
lifecycle hooks, the deadline of a pod, and read-only mounts. Probes run every half second, whatever
their period is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rehearsal.cluster.pod_commands import ContainerCommand, PodHost, PodLayout, ServicePorts
from rehearsal.cluster.pods import FIRST_BACKOFF_S, LONGEST_BACKOFF_S, PodPhase, PodState
from rehearsal.cluster.store import ApiError, Object, ObjectStore
from rehearsal.loopback import HOST, is_listening

LOOK_S = 0.05
PROBE_S = 0.5
FILL_RETRY_S = 2.0
# a process that a signal ended has this and the signal's number as its exit code
_SIGNAL_EXIT = 128
# on Linux a container's first process ends when this process ends, even by a kill
_SETPRIV = shutil.which("setpriv")
_PARENT_WORDS = (_SETPRIV, "--pdeathsig", "KILL") if _SETPRIV else ()
# ends as a shell does; a kubelet cannot start it
_NO_PROGRAM = ("/bin/sh", "-c", "echo no such program; exit 127")
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(slots=True)
class ContainerRun:
    """The current state of one container; the thread of its pod changes it.

    Args:
        process: of the last run; None before the first.
    """

    process: subprocess.Popen[bytes] | None = None
    is_over: bool = False
    is_ready: bool = False
    exit_code: int | None = None
    restarts: int = 0
    waiting_reason: str = "PodInitializing"
    started_at: datetime | None = None
    finished_at: datetime | None = None

    def describe(self) -> PodState:
        """Return the state that the pod's status shows."""
        ended: PodPhase = "Failed" if self.exit_code else "Succeeded"
        return PodState(
            phase=ended if self.is_over else "Running",
            is_ready=self.is_ready,
            exit_code=self.exit_code,
            restarts=self.restarts,
            waiting_reason=self.waiting_reason,
            started_at=self.started_at,
            finished_at=self.finished_at,
        )


class ProcessPods:
    """Runs the pods of a rehearsed cluster as processes.

    Args:
        store: of the cluster; only the thread that starts pods reads it.
        folder: with a folder for each pod; logs stay there.
        host: see PodHost.
        backoff_scale: factor on the seconds between restarts.
    """

    def __init__(
        self, store: ObjectStore, folder: Path, host: PodHost, backoff_scale: float = 1.0
    ) -> None:
        self.ports = ServicePorts(store)
        self._store = store
        self._folder = folder
        self._host = host
        self._backoff_scale = backoff_scale
        self._pods: dict[str, ProcessPod] = {}

    def start_pod(self, pod: Object) -> None:
        """Start a pod; if an object that it names is not there, the pod waits for ever."""
        metadata = pod["metadata"]
        folder = self._folder / metadata.get("namespace", "") / metadata["name"]
        try:
            layout = PodLayout(self._store, pod, folder, self._host, self.ports)
        except (ApiError, KeyError) as error:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "error.txt").write_text(f"{type(error).__name__}: {error}\n")
            return
        self._pods[metadata["uid"]] = ProcessPod(pod, layout, self._backoff_scale)

    def look_at_pod(self, pod: Object) -> PodState:
        """Return the state of a pod now."""
        process_pod = self._pods.get(pod["metadata"]["uid"])
        if process_pod is None:
            return PodState(phase="Pending", waiting_reason="CreateContainerConfigError")
        return process_pod.describe()

    def stop_pod(self, pod: Object) -> bool:
        """Stop a pod, kill it after its grace period, and tell whether it is gone."""
        process_pod = self._pods.get(pod["metadata"]["uid"])
        return process_pod is None or process_pod.stop(
            float(pod["metadata"].get("deletionGracePeriodSeconds", 30))
        )

    def kill_pod(self, pod: Object) -> None:
        """End a pod's processes at once; its Service's port is free for the next pod."""
        self.ports.release(pod)
        process_pod = self._pods.get(pod["metadata"]["uid"])
        if process_pod is not None:
            process_pod.die()

    def read_log(self, pod: Object, container: str) -> str:
        """Return the output of a container's last run."""
        process_pod = self._pods.get(pod["metadata"]["uid"])
        return process_pod.read_log(container) if process_pod else ""

    def kill_containers(self, pod: Object) -> bool:
        """Send SIGKILL to a pod's running processes; return whether one ran."""
        process_pod = self._pods.get(pod["metadata"]["uid"])
        return process_pod is not None and process_pod.kill()

    def close(self) -> None:
        """Kill all processes that still run."""
        for process_pod in self._pods.values():
            process_pod.stop(0)
            process_pod.kill()


@dataclass(slots=True)
class ProcessPod:
    """One pod, with its own thread, which takes the pod through its life."""

    pod: Object
    layout: PodLayout
    backoff_scale: float
    runs: dict[str, ContainerRun] = field(init=False)
    is_initialized: bool = field(default=False, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _kill_s: float | None = field(default=None, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        """Start the thread."""
        self.runs = {name: ContainerRun() for name in self.layout.commands}
        (self.layout.folder / "logs").mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(
            target=self._live, daemon=True, name=self.pod["metadata"]["name"]
        )
        self._thread.start()

    def describe(self) -> PodState:
        """Return the pod's state."""
        spec = self.pod["spec"]
        states = {
            name: replace(run.describe(), log=self.read_log(name) if run.exit_code else "")
            for name, run in self.runs.items()
        }
        main = [states[box["name"]] for box in spec["containers"]]
        phase: PodPhase = "Running" if self.is_initialized else "Pending"
        if any(states[box["name"]].phase == "Failed" for box in spec.get("initContainers", [])):
            phase = "Failed"
        elif all(state.phase in {"Succeeded", "Failed"} for state in main):
            phase = "Failed" if any(state.phase == "Failed" for state in main) else "Succeeded"
        is_ready = phase == "Running" and all(state.is_ready for state in main)
        return PodState(phase=phase, is_ready=is_ready, containers=states)

    def stop(self, grace_s: float) -> bool:
        """Send SIGTERM, SIGKILL after the grace period; tell whether all processes are gone."""
        if self._kill_s is None:
            self._kill_s = time.monotonic() + grace_s
            self._stop.set()
            for run in self.runs.values():
                _send_signal(run.process, signal.SIGTERM)
        if time.monotonic() >= self._kill_s:
            self.kill()
        return not self._thread.is_alive()

    def die(self) -> None:
        """End everything by SIGKILL, and start nothing any more."""
        self._kill_s = 0.0
        self._stop.set()
        self.kill()

    def kill(self) -> bool:
        """Send SIGKILL to all running processes and their children; return whether one ran."""
        is_sent = [_send_signal(run.process, signal.SIGKILL) for run in self.runs.values()]
        return any(is_sent)

    def read_log(self, container: str) -> str:
        """Return the output of a container's last run."""
        path = self._log_path(container)
        return path.read_text(errors="replace") if path.exists() else ""

    def _log_path(self, container: str) -> Path:
        return self.layout.folder / "logs" / f"{container}.{self.runs[container].restarts}.log"

    def _live(self) -> None:
        """Fill the volumes, run init containers one by one, then containers side by side."""
        for fill in self.layout.fillers:
            while not self._stop.is_set() and not _try_fill(fill, self.layout.folder):
                self._stop.wait(FILL_RETRY_S)
        policy = self.pod["spec"].get("restartPolicy", "Always")
        for box in self.pod["spec"].get("initContainers", []):
            self._run_container(box, "Never" if policy == "Never" else "OnFailure")
            if self.runs[box["name"]].exit_code != 0:
                return
        self.is_initialized = not self._stop.is_set()
        boxes = self.pod["spec"]["containers"]
        threads = [
            threading.Thread(target=self._run_container, args=(box, policy), daemon=True)
            for box in boxes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run_container(self, box: Object, policy: str) -> None:
        """Run a container until it is over by the restart policy or the pod is stopped."""
        run = self.runs[box["name"]]
        delay_s = 0.0
        while not self._stop.is_set():
            self._run_once(box, run)
            is_last = policy == "Never" or (policy == "OnFailure" and run.exit_code == 0)
            if is_last or self._stop.is_set():
                run.is_over = True
                return
            run.waiting_reason = "CrashLoopBackOff"
            self._stop.wait(delay_s * self.backoff_scale)
            delay_s = min(delay_s * 2 or FIRST_BACKOFF_S, LONGEST_BACKOFF_S)
            run.restarts += 1

    def _run_once(self, box: Object, run: ContainerRun) -> None:
        command = self.layout.commands[box["name"]]
        ports = self.layout.ports
        has_started, is_ready = (
            _build_check(self.layout.localize, box, box.get(key, {}), command, ports)
            for key in ("startupProbe", "readinessProbe")
        )
        numbers = [ports[row["containerPort"]] for row in box.get("ports", [])]
        # the pod before it still ends
        while any(map(is_listening, numbers)) and not self._stop.is_set():
            time.sleep(LOOK_S)
        words = (
            command.words
            if shutil.which(command.words[0], path=command.variables["PATH"])
            else _NO_PROGRAM
        )
        with self._log_path(box["name"]).open("wb") as log:
            run.process = subprocess.Popen(
                [*_PARENT_WORDS, *words],
                env=command.variables,
                cwd=self.layout.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        run.started_at = datetime.now(UTC)
        run.finished_at = None
        run.waiting_reason = ""
        if self._stop.is_set():  # the stop came while the process began
            _send_signal(run.process, signal.SIGKILL if self._kill_s == 0 else signal.SIGTERM)
        is_started = False
        probe_s = 0.0
        while not _has_ended(run.process):
            if time.monotonic() >= probe_s:
                is_started = is_started or has_started()
                run.is_ready = is_started and is_ready()
                probe_s = time.monotonic() + PROBE_S
            time.sleep(LOOK_S)
        _send_signal(run.process, signal.SIGKILL)  # processes that it left behind in its session
        code = run.process.wait()
        run.is_ready, run.finished_at = False, datetime.now(UTC)
        run.exit_code = code if code >= 0 else _SIGNAL_EXIT - code


def _build_check(
    localize: Callable[[Object, str], str],
    box: Object,
    probe: Object,
    command: ContainerCommand,
    ports: Mapping[int, int],
) -> Callable[[], bool]:
    """Return a function that tries a probe once; kinds besides httpGet and exec succeed."""
    timeout_s = float(probe.get("timeoutSeconds", 1))
    if "exec" in probe:
        words = [localize(box, word) for word in probe["exec"]["command"]]
        return lambda: _succeeds(words, command.variables, timeout_s)
    if "httpGet" not in probe:
        return lambda: True
    named = {row.get("name"): row["containerPort"] for row in box.get("ports", [])}
    number = named.get(probe["httpGet"]["port"], probe["httpGet"]["port"])
    url = f"http://{HOST}:{ports.get(number, number)}{probe['httpGet'].get('path', '/')}"
    return lambda: _answers(url, timeout_s)


def _answers(url: str, timeout_s: float) -> bool:
    try:
        _OPENER.open(url, timeout=timeout_s).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


def _succeeds(words: list[str], variables: Mapping[str, str], timeout_s: float) -> bool:
    try:
        result = subprocess.run(
            words, env=dict(variables), timeout=timeout_s, capture_output=True, check=False
        )
    except (subprocess.TimeoutExpired, OSError):
        return False
    return result.returncode == 0


def _try_fill(fill: Callable[[], None], folder: Path) -> bool:
    """Fill a volume; write a fault next to the logs, and the pod waits, as for a CSI driver."""
    try:
        fill()
    except Exception as error:  # noqa: BLE001 - whatever the host's client raises
        (folder / "error.txt").write_text(f"{type(error).__name__}: {error}\n")
        return False
    return True


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether a process ended, its end unread, so that nobody else gets its number yet."""
    if not hasattr(os, "waitid"):  # macOS; there processes that an ended process left behind go on
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _send_signal(process: subprocess.Popen[bytes] | None, number: signal.Signals) -> bool:
    """Send a signal to a process, SIGKILL to its whole session; return whether there was one.

    A process whose end was read never gets a signal: the system may have given its number to
    another process.
    """
    if process is None or process.returncode is not None:
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
        return True
    return False
