"""Pods whose containers are processes: order, restarts, volumes, addresses, probes, logs and
stops."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from process_end import has_ended
from server_objects import add_node

from rehearsal.cluster.cluster import RehearsalCluster, WallClock
from rehearsal.cluster.pod_commands import ContainerCommand
from rehearsal.cluster.process_pods import ProcessPods
from rehearsal.cluster.store import ObjectStore

SLEEP = "import time; time.sleep(60)"
SERVE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


class PythonHost:
    """Every image is this Python; a claim's volume gets the file `weights`."""

    def choose_program(self, pod, container, command):  # noqa: ARG002
        words = (sys.executable, *command.words)
        return ContainerCommand(
            words=words, variables={"PATH": os.environ["PATH"], **command.variables}
        )

    def list_fillers(self, pod, volume, folder) -> list[Callable[[], None]]:  # noqa: ARG002
        return [lambda: (folder / "weights").write_text("w")]


class LiveCluster:
    """A cluster whose pods are processes, on one node."""

    def __init__(self, folder) -> None:
        self.store = ObjectStore(WallClock().now)
        self.pods = ProcessPods(self.store, folder, PythonHost(), backoff_scale=0.01)
        self.cluster = RehearsalCluster(WallClock(), lambda _: self.pods, self.store)
        add_node(self.store)

    def start(
        self, *containers, init=(), labels=None, volumes=(), policy="Never", **metadata
    ) -> None:
        """Start a pod; a container is its Python program, or the fields that it has."""
        boxes, init_boxes = (
            [
                {
                    "name": f"{name}{number}",
                    **({"args": ["-c", box]} if isinstance(box, str) else box),
                }
                for number, box in enumerate(group)
            ]
            for name, group in (("main", containers), ("init", init))
        )
        spec = {
            "restartPolicy": policy,
            "containers": boxes,
            "initContainers": init_boxes,
            "volumes": list(volumes),
        }
        body = {"metadata": {"name": "pod", "labels": labels or {}, **metadata}, "spec": spec}
        self.store.create_object("pods", "post", body)

    @property
    def status(self) -> dict[str, Any]:
        return self.store.get_object("pods", "post", "pod").get("status", {})

    def until(self, check: Callable[[dict[str, Any]], Any], seconds: float = 10) -> dict[str, Any]:
        """Let the cluster work until its pod's status is as wanted."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.cluster.settle()
            if check(self.status):
                return self.status
            time.sleep(0.02)
        raise AssertionError(self.status)

    def log(self, container: str = "main0") -> str:
        return self.pods.read_log(self.store.get_object("pods", "post", "pod"), container)


@pytest.fixture
def live(tmp_path):
    cluster = LiveCluster(tmp_path)
    yield cluster
    cluster.pods.close()


def is_over(status: dict[str, Any]) -> bool:
    return status.get("phase") in {"Succeeded", "Failed"}


def is_ready(status: dict[str, Any]) -> bool:
    return any(
        row["type"] == "Ready" and row["status"] == "True" for row in status.get("conditions", [])
    )


def test_init_containers_run_one_after_another_and_first(live):
    mount = [{"name": "work", "mountPath": "/work"}]
    boxes = [
        {"args": ["-c", f"open('/work/log', 'a').write('{name}')"], "volumeMounts": mount}
        for name in "abc"
    ]
    live.start(boxes[2], init=boxes[:2], volumes=[{"name": "work", "emptyDir": {}}])
    live.until(is_over)
    (log,) = live.pods._folder.rglob("volumes/work/log")
    assert log.read_text() == "abc"


def test_last_words_are_the_message_where_the_policy_asks(live):
    words = {"args": ["-c", "raise SystemExit('why')"]}
    live.start(words, {**words, "terminationMessagePolicy": "FallbackToLogsOnError"})
    rows = live.until(is_over)["containerStatuses"]
    messages = [row["state"]["terminated"].get("message") for row in rows]
    assert messages == [None, "why\n"]


def test_an_init_container_that_fails_keeps_the_others_from_running(live):
    live.start("print('ran')", init=["raise SystemExit(2)"])
    status = live.until(is_over)
    (row,) = status["initContainerStatuses"]
    assert (status["phase"], row["state"]["terminated"]["exitCode"], live.log()) == (
        "Failed",
        2,
        "",
    )


def test_a_pod_that_names_an_absent_object_waits(live):
    live.start("pass", volumes=[{"name": "specs", "configMap": {"name": "absent"}}])
    live.cluster.settle()
    (row,) = live.status["containerStatuses"]
    assert row["state"]["waiting"]["reason"] == "CreateContainerConfigError"


def test_a_crash_loop_is_told(live):
    live.pods._backoff_scale = 1.0
    live.start("raise SystemExit(1)", policy="Always")
    status = live.until(lambda row: row.get("containerStatuses", [{}])[0].get("restartCount") == 1)
    status = live.until(lambda row: "waiting" in row["containerStatuses"][0]["state"])
    row = status["containerStatuses"][0]
    last_code = row["lastState"]["terminated"]["exitCode"]
    assert (row["state"]["waiting"]["reason"], last_code) == ("CrashLoopBackOff", 1)


def add_service(live: LiveCluster) -> int:
    spec = {
        "selector": {"app": "server"},
        "ports": [{"name": "http", "port": 8000, "targetPort": "http"}],
    }
    live.store.create_object("services", "post", {"metadata": {"name": "server"}, "spec": spec})
    return live.pods.ports.find_port("post", "server", 8000)


SERVER = {
    "args": ["-c", SERVE, "--port", "8000"],
    "ports": [{"name": "http", "containerPort": 8000}],
    "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
}


@pytest.mark.parametrize(
    ("change", "is_shared"),
    [("none", False), ("deleted", True), ("lost", True)],
)
def test_second_pod_has_the_services_port_only_after_the_first(live, change, is_shared):
    port = add_service(live)
    spec = {"nodeName": "node", "containers": []}
    bodies = [
        {"metadata": {"name": name, "labels": {"app": "server"}}, "spec": spec} for name in "ab"
    ]
    first, second = (live.store.create_object("pods", "post", body) for body in bodies)
    ports = [live.pods.ports.take_port(first, SERVER["ports"][0])]
    if change == "deleted":
        live.store.delete_object("pods", "post", "a")
    elif change == "lost":
        live.pods.kill_pod(first)
    ports.append(live.pods.ports.take_port(second, SERVER["ports"][0]))
    assert (ports[0], ports[1] == port) == (port, is_shared)


@pytest.mark.parametrize(
    ("text", "is_local"),
    [
        ("http://server:8000/v1", True),
        ("http://server.post.svc.cluster.local:8000/v1", True),
        ("http://server.other.svc:8000/v1", False),
        ("http://example.com:8000/v1", False),
    ],
)
def test_addresses_of_services_lead_to_this_machine(live, text, is_local):
    port = add_service(live)
    url = live.pods.ports.localize_urls(text, "post")
    assert url == (f"http://127.0.0.1:{port}/v1" if is_local else text)


def start_server(live: LiveCluster, probe_code: int) -> None:
    """Start a server whose startup probe ends with this code."""
    probe = {"exec": {"command": [sys.executable, "-c", f"raise SystemExit({probe_code})"]}}
    add_service(live)
    live.start({**SERVER, "startupProbe": probe}, labels={"app": "server"}, policy="Always")


def test_a_server_is_ready_after_its_startup_probe(live):
    start_server(live, probe_code=0)
    live.until(is_ready)


def test_a_startup_probe_comes_before_readiness(live, monkeypatch):
    monkeypatch.setattr("rehearsal.cluster.process_pods.PROBE_S", 0.05)
    start_server(live, probe_code=1)
    live.until(lambda row: row.get("phase") == "Running")
    time.sleep(0.4)
    live.cluster.settle()
    assert not is_ready(live.status)


def test_sigterm_comes_first(live):
    program = (
        "import signal, sys, time; signal.signal(15, lambda *_: (print('asked'), sys.exit(0)));"
        " print('up', flush=True)"
    )
    live.start(program + "; time.sleep(60)")
    live.until(lambda _: "up" in live.log())
    pod = live.store.get_object("pods", "post", "pod")
    live.store.delete_object("pods", "post", "pod")
    wait_gone(live)
    assert live.pods.read_log(pod, "main0") == "up\nasked\n"


def test_sigkill_comes_after_the_grace_period(live):
    live.start(
        "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); " + SLEEP
    )
    live.until(lambda _: "up" in live.log())
    live.store.delete_object("pods", "post", "pod", grace_s=1)
    begin_s = time.monotonic()
    wait_gone(live)
    assert 1 <= time.monotonic() - begin_s < 3


def wait_gone(live: LiveCluster) -> None:
    for _ in range(500):
        live.cluster.settle()
        if not live.store.list_objects("pods", "post"):
            return
        time.sleep(0.02)
    raise AssertionError(live.status)


def test_a_process_that_has_ended_is_never_signalled_again(live, monkeypatch):
    live.start("pass")
    live.until(is_over)
    monkeypatch.setattr("os.killpg", lambda *_: pytest.fail("the number may be another process's"))
    assert not live.pods.kill_containers(live.store.get_object("pods", "post", "pod"))


def test_lost_node_ends_processes_without_a_word_and_its_pod_stays_ready(live):
    program = (
        "import signal, time; signal.signal(15, lambda *_: print('asked', flush=True)); print('up',"
        " flush=True)"
    )
    live.start(program + "; time.sleep(60)", policy="Always")
    live.until(lambda row: "up" in live.log() and is_ready(row))
    status = live.status
    run = next(iter(live.pods._pods.values())).runs["main0"]
    live.cluster.lose_node("node")
    assert has_ended(run.process.pid)
    live.cluster.settle()
    assert (live.status, live.log()) == (status, "up\n")


def test_pod_that_is_removed_by_force_is_stopped(live):
    live.start(SLEEP)
    live.until(lambda row: "running" in row.get("containerStatuses", [{}])[0].get("state", {}))
    run = next(iter(live.pods._pods.values())).runs["main0"]
    live.store.delete_object("pods", "post", "pod", grace_s=0)
    live.cluster.settle()
    assert has_ended(run.process.pid)


def test_what_a_process_started_ends_with_it(live):
    program = (
        f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}]);"
        " print(child.pid)"
    )
    live.start(program)
    live.until(is_over)
    assert has_ended(int(live.log()))
