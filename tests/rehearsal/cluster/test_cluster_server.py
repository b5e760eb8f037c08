"""The API over HTTP: paths, answers, users and faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import ClientSession

from rehearsal.cluster.server import ClusterFault, ClusterServer, ClusterUser
from rehearsal.cluster.store import ObjectStore

JOBS = "/apis/batch/v1/namespaces/post/jobs"
SCALE = "/apis/apps/v1/namespaces/post/deployments/server/scale"
JOB = {"metadata": {"name": "compile", "labels": {"arm": "fused"}}, "spec": {"template": {}}}
RUNNER = ClusterUser(
    "system:serviceaccount:runner-system:runner",
    cluster_rules=[{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}],
    rules={
        "post": [
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]},
            {
                "apiGroups": ["apps"],
                "resources": ["deployments/scale"],
                "verbs": ["*"],
                "resourceNames": ["server"],
            },
        ]
    },
)
Talk = Callable[..., Awaitable[tuple[int, Any]]]


class Conversation:
    """A server, and a client that asks it."""

    def __init__(self, **users: ClusterUser) -> None:
        self.store = ObjectStore(lambda: datetime(2026, 11, 24, tzinfo=UTC))
        self.server = ClusterServer(self.store, users)

    def hold(self, talk: Callable[[Talk], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            await self.server.start()
            try:
                async with ClientSession(f"http://127.0.0.1:{self.server.port}") as session:

                    async def ask(
                        method: str, path: str, body: Any = None, **headers: str
                    ) -> tuple[int, Any]:
                        data = None if body is None else json.dumps(body)
                        async with session.request(
                            method, path, data=data, headers=headers
                        ) as response:
                            text = await response.text()
                            is_json = response.content_type == "application/json"
                            return response.status, json.loads(text) if is_json else text

                    return await talk(ask)
            finally:
                await self.server.stop()

        return asyncio.run(run())

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        return self.hold(lambda ask: ask(method, path, body, **headers))


@pytest.fixture
def conversation():
    return Conversation()


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", f"{JOBS}/compile", None, (404, "NotFound")),
        ("GET", "/apis/apps/v1/namespaces/post/jobs", None, (404, "NotFound")),
        ("OPTIONS", JOBS, None, (405, "MethodNotAllowed")),
        ("GET", f"{JOBS}?watch=1", None, (405, "MethodNotAllowed")),
        ("POST", f"{JOBS}/compile/eviction", {}, (404, "NotFound")),
        ("GET", f"{JOBS}?labelSelector=a%20in%20b", None, (400, "BadRequest")),
    ],
    ids=["name", "group", "method", "watch", "eviction", "selector"],
)
def test_what_is_not_served_is_a_status(conversation, method, path, body, expected):
    status, answer = conversation.ask(method, path, body)
    assert (status, answer["kind"], answer["reason"]) == (expected[0], "Status", expected[1])


POD = "/api/v1/namespaces/post/pods/pod"


def own_pod(conversation: Conversation) -> dict[str, Any]:
    job = conversation.store.create_object("jobs", "post", JOB)
    owner = {"kind": "Job", "name": "compile", "uid": job["metadata"]["uid"]}
    pod = {"metadata": {"name": "pod", "ownerReferences": [owner]}, "spec": {}}
    conversation.store.create_object("pods", "post", pod)
    return job


def test_a_jobs_deletion_that_says_nothing_leaves_its_pods(conversation):
    own_pod(conversation)
    conversation.ask("DELETE", f"{JOBS}/compile")
    assert conversation.store.get_object("pods", "post", "pod")["metadata"]["ownerReferences"] == []


def add_logged_pod(conversation: Conversation, state: dict[str, Any], **row) -> None:
    """Add a pod on a node, whose one container has the state."""
    conversation.store.create_object("nodes", "", {"metadata": {"name": "node"}, "spec": {}})
    rows = [{"name": "main", "state": state, "lastState": {}, **row}]
    status = {"log": "one\ntwo\n", "containerStatuses": rows}
    spec = {"nodeName": "node", "containers": [{"name": "main"}]}
    conversation.store.create_object(
        "pods", "post", {"metadata": {"name": "pod"}, "spec": spec, "status": status}
    )


@pytest.mark.parametrize(
    ("state", "row"),
    [
        ({"running": {}}, {}),
        ({"terminated": {"exitCode": 1}}, {}),
        (
            {"waiting": {"reason": "CrashLoopBackOff"}},
            {"lastState": {"terminated": {"exitCode": 1}}},
        ),
    ],
    ids=["running", "ended", "between-runs"],
)
def test_log_of_a_container_that_has_run_is_plain_text(conversation, state, row):
    add_logged_pod(conversation, state, **row)
    assert conversation.ask("GET", f"{POD}/log?tailLines=1") == (200, "two\n")


def test_log_of_a_waiting_container_is_refused(conversation):
    add_logged_pod(conversation, {"waiting": {"reason": "ContainerCreating"}})
    status, answer = conversation.ask("GET", f"{POD}/log")
    words = 'container "main" in pod "pod" is waiting to start: ContainerCreating'
    assert (status, answer["reason"], answer["message"]) == (400, "BadRequest", words)


def test_log_of_a_dead_kubelet_is_an_error(conversation):
    add_logged_pod(conversation, {"running": {}})
    conversation.server._has_kubelet = lambda _: False
    status, answer = conversation.ask("GET", f"{POD}/log")
    assert (status, "containerLogs/post/pod/main" in answer["message"]) == (500, True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nodes", 200),
        ("GET", "/api/v1/namespaces/post/pods", 403),
        ("POST", JOBS, 201),
        ("GET", JOBS, 403),
        ("GET", SCALE.replace("server", "other"), 403),
        ("GET", SCALE, 404),
    ],
)
def test_a_user_may_what_his_rules_say(method, path, status):
    conversation = Conversation(secret=RUNNER)
    body = JOB if method == "POST" else None
    assert conversation.ask(method, path, body, Authorization="Bearer secret")[0] == status


def test_a_fault_answers_as_often_as_ordered(conversation):
    conversation.server.faults.append(ClusterFault(503, calls=2))

    async def talk(ask: Talk) -> list[int]:
        return [(await ask("GET", path))[0] for path in ("/api/v1/nodes", JOBS, JOBS)]

    assert conversation.hold(talk) == [503, 503, 200]


def test_account_without_a_binding_is_forbidden():
    conversation = Conversation(secret=RUNNER)
    conversation.server._find_account = lambda _: "other"
    assert conversation.ask("GET", JOBS, Authorization="Bearer bound")[0] == 403
