"""The cluster's API over HTTP: paths, verbs, selectors, scale, rights and faults.

It answers the runner's calls. Left out: discovery, watches, evictions, all patches but merge
patches, dry runs, and TLS. A list is served whole, whatever its `limit`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from aiohttp import web

from rehearsal.cluster.store import KINDS, ApiError, Object, ObjectStore, ResourceKind, is_selected

_PATH = re.compile(
    r"/(api|apis/(?P<group>[^/]+))/v1(/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(/(?P<name>[^/]+))?(/(?P<subresource>[^/]+))?"
)
_MERGE = "application/merge-patch+json"
_SUBRESOURCES = {"", "log", "scale", "status"}


@dataclass(frozen=True, slots=True)
class ClusterUser:
    """The user of a bearer token, and the user's permissions.

    Args:
        name: as RBAC has it, such as system:serviceaccount:runner-system:runner.
        cluster_rules: rules of ClusterRoles, bound in every namespace, as RBAC writes them.
        rules: rules of Roles, by namespace.
    """

    name: str
    cluster_rules: Sequence[Mapping[str, Any]] = ()
    rules: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def may(self, call: ApiCall) -> bool:
        """Tell whether a rule admits a call."""
        rules = (*self.cluster_rules, *self.rules.get(call.namespace, ()))
        resource = (
            f"{call.kind.plural}/{call.subresource}" if call.subresource else call.kind.plural
        )
        return any(
            _admits(rule.get("apiGroups", ()), call.kind.group)
            and _admits(rule.get("resources", ()), resource)
            and _admits(rule.get("verbs", ()), call.verb)
            and (not rule.get("resourceNames") or call.name in rule["resourceNames"])
            for rule in rules
        )


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request, as RBAC sees it."""

    verb: str
    kind: ResourceKind
    namespace: str
    name: str
    subresource: str


@dataclass(slots=True)
class ClusterFault:
    """An answer in place of the real one, for the next calls.

    Args:
        status: of HTTP, such as 503; 429 carries Retry-After and plain text, as the API's own
            limits do.
        calls: how many calls the fault answers.
    """

    status: int
    calls: int = 1


class ClusterServer:
    """The API of one store, on a port of this machine.

    Args:
        store: the served objects.
        users: token -> user; empty admits everyone to everything.
        read_log: returns the output of a pod's container; without it the log is that of the pod's
            status.
        has_kubelet: tells whether the kubelet of a node answers.
        find_account: returns the key of `users` for a token, or raises 401; without it the token is
            the key.

    Attributes:
        faults: those still to come.
        calls: every answered call, with its user and status.
    """

    def __init__(
        self,
        store: ObjectStore,
        users: Mapping[str, ClusterUser] | None = None,
        read_log: Callable[[Object, str], str] | None = None,
        has_kubelet: Callable[[str], bool] = lambda _: True,
        find_account: Callable[[str], str] = str,
    ) -> None:
        self.store = store
        self.users = users or {}
        self._read_log = read_log or (lambda pod, _: str(pod.get("status", {}).get("log", "")))
        self._has_kubelet = has_kubelet
        self._find_account = find_account
        self.faults: list[ClusterFault] = []
        self.calls: list[tuple[str, ApiCall, int]] = []
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1; 0 takes a free port, which is then in `port`."""
        application = web.Application()
        application.router.add_route("*", "/{path:apis?/.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            call = parse_call(request)
        except ApiError as error:
            return _build_status(error)
        user = ClusterUser("system:anonymous")
        try:
            user = self._find_user(request)
            response = await self._answer_user(request, call, user)
        except ApiError as error:
            response = _build_status(error)
        except ValueError as error:  # the body is no JSON, or a selector has another form
            response = _build_status(ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", str(error)))
        self.calls.append((user.name, call, response.status))
        return response

    async def _answer_user(
        self, request: web.Request, call: ApiCall, user: ClusterUser
    ) -> web.Response:
        fault = next((fault for fault in self.faults if fault.calls > 0), None)
        if fault is not None:
            fault.calls -= 1
            return _build_fault(fault.status)
        if self.users and not user.may(call):
            raise ApiError(HTTPStatus.FORBIDDEN, "Forbidden", _describe_refusal(user, call))
        return await self._perform(request, call)

    def _find_user(self, request: web.Request) -> ClusterUser:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self.users:
            return ClusterUser("system:admin")
        account = self._find_account(token)
        if account not in self.users and account == token:
            raise ApiError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
        # an account without a binding may do nothing
        return self.users.get(account, ClusterUser(account))

    async def _perform(self, request: web.Request, call: ApiCall) -> web.Response:
        body = json.loads(await request.read() or b"{}") if request.can_read_body else {}
        if call.subresource == "log":
            return self._answer_log(
                request, self.store.get_object("pods", call.namespace, call.name)
            )
        status = HTTPStatus.CREATED if call.verb == "create" else HTTPStatus.OK
        return _build_answer(self._change_or_read(request, call, body), status)

    def _answer_log(self, request: web.Request, pod: Object) -> web.Response:
        """Answer the log of one container, or why the kubelet has none.

        Source: pkg/registry/core/pod/strategy.go (LogLocation, validateContainer),
        pkg/kubelet/kubelet_pods.go (validateContainerLogStatus). A kubelet that is dead gives 500
        at once; a real API server waits up to 30 s for it.
        """
        name = _choose_container(pod, request.query.get("container", ""))
        node_name = pod["spec"].get("nodeName")
        if not node_name:
            return web.Response(status=HTTPStatus.NO_CONTENT)
        if not self.store.list_objects("nodes", field_selector=f"metadata.name={node_name}"):
            message = f'pods "{node_name}" not found'  # the API server names the node so
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", message)
        if not self._has_kubelet(node_name):
            metadata = pod["metadata"]
            path = f"containerLogs/{metadata['namespace']}/{metadata['name']}/{name}"
            fault = (
                f'Get "https://{node_name}:10250/{path}": dial tcp {node_name}:10250: i/o timeout'
            )
            raise ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "", fault)

        obstacle = find_log_obstacle(pod, name)
        if obstacle:
            raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", obstacle)
        lines = self._read_log(pod, name).splitlines(keepends=True)
        count = request.query.get("tailLines")
        first = 0 if count is None else len(lines) - min(int(count), len(lines))
        return web.Response(text="".join(lines[first:]))

    def _change_or_read(self, request: web.Request, call: ApiCall, body: Object) -> Object:
        if call.verb == "patch" and request.content_type != _MERGE:
            message = f"{request.content_type}: a rehearsed cluster takes {_MERGE} alone"
            raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
        if call.subresource == "scale":
            return self._scale(call, body)
        place = call.kind.plural, call.namespace
        answers: dict[str, Callable[[], Object]] = {
            "list": lambda: self._list(request, call),
            "get": lambda: self.store.get_object(*place, call.name),
            "create": lambda: self.store.create_object(*place, body),
            "update": lambda: self.store.replace_object(
                *place, call.name, body, subresource=call.subresource
            ),
            "patch": lambda: self.store.patch_object(
                *place, call.name, body, subresource=call.subresource
            ),
            "delete": lambda: self._delete(request, call, body),
        }
        return answers[call.verb]()

    def _list(self, request: web.Request, call: ApiCall) -> Object:
        labels = request.query.get("labelSelector", "")
        fields = request.query.get("fieldSelector", "")
        is_selected({"metadata": {}}, labels, fields)  # refuses one of another form
        items = self.store.list_objects(
            call.kind.plural, call.namespace or None, label_selector=labels, field_selector=fields
        )
        metadata = {"resourceVersion": str(self.store.version)}
        return {
            "apiVersion": call.kind.api_version,
            "kind": f"{call.kind.kind}List",
            "metadata": metadata,
            "items": items,
        }

    def _delete(self, request: web.Request, call: ApiCall, options: Object) -> Object:
        """Delete an object; a Job without propagation policy leaves its pods, as batch/v1."""
        default = "Orphan" if call.kind.plural == "jobs" else "Background"
        propagation = (
            options.get("propagationPolicy") or request.query.get("propagationPolicy") or default
        )
        uid = options.get("preconditions", {}).get("uid")
        found = self.store.get_object(call.kind.plural, call.namespace, call.name)
        if uid not in (None, found["metadata"]["uid"]):
            message = f"the UID in the precondition ({uid}) does not match the UID in record"
            raise ApiError(HTTPStatus.CONFLICT, "Conflict", message)
        return self.store.delete_object(
            call.kind.plural,
            call.namespace,
            call.name,
            propagation=propagation,
            grace_s=options.get("gracePeriodSeconds"),
        )

    def _scale(self, call: ApiCall, body: Object) -> Object:
        """Answer the subresource; a scale of 0 has no `replicas`: the API leaves zeros out."""
        place = call.kind.plural, call.namespace, call.name
        if call.verb != "get":
            replicas = body.get("spec", {}).get("replicas", 0)
            self.store.patch_object(*place, {"spec": {"replicas": replicas}})
        found = self.store.get_object(*place)
        metadata = {
            key: found["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")
        }
        wanted = found["spec"].get("replicas", 1)
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": metadata,
            "spec": {"replicas": wanted} if wanted else {},
            "status": {"replicas": 0},
        }


def parse_call(request: web.Request) -> ApiCall:
    """Return the call that a request makes.

    Raises:
        ApiError: 404 for a path that is not served, 405 for a method that is not.
    """
    match = _PATH.fullmatch(request.path)
    kind = KINDS.get(match["plural"]) if match else None
    is_served = (
        match is not None
        and kind is not None
        and kind.group == (match["group"] or "")
        and (match["subresource"] or "") in _SUBRESOURCES
    )
    if match is None or kind is None or not is_served:
        raise ApiError(
            HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource"
        )
    namespace, name, subresource = (
        match[part] or "" for part in ("namespace", "name", "subresource")
    )
    verbs = {
        "GET": "get" if name else "list",
        "POST": "create",
        "PUT": "update",
        "PATCH": "patch",
        "DELETE": "delete",
    }
    is_watch = request.query.get("watch") in ("1", "true")
    if request.method not in verbs or is_watch:
        message = "the server does not allow this method on the requested resource"
        raise ApiError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    return ApiCall(verbs[request.method], kind, namespace, name, subresource)


def _choose_container(pod: Object, name: str) -> str:
    """Return the container whose log a call wants.

    Raises:
        ApiError: 400 if the pod has no such container, or several and none is named.
    """
    spec = pod["spec"]
    boxes = [box["name"] for box in spec.get("containers", [])]
    all_boxes = [box["name"] for box in spec.get("initContainers", [])] + boxes
    pod_name = pod["metadata"]["name"]
    if name in all_boxes:
        return name
    if name:
        message = f"container {name} is not valid for pod {pod_name}"
    elif len(boxes) == 1:
        return str(boxes[0])
    else:
        message = f"a container name must be specified for pod {pod_name}"
        if boxes:
            message += f", choose one of: [{' '.join(all_boxes)}]"
    raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def find_log_obstacle(pod: Object, name: str) -> str:
    """Return why a container has no log yet, in the kubelet's words; empty if it has one."""
    subject = f'container "{name}" in pod "{pod["metadata"]["name"]}"'
    status = pod.get("status", {})
    rows = [*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])]
    row = next((row for row in rows if row["name"] == name), None)
    if row is None:
        return f"{subject} is not available"
    has_run = {"running", "terminated"} & row["state"].keys() or "terminated" in row.get(
        "lastState", {}
    )
    if has_run:
        return ""
    return f"{subject} is waiting to start: {row['state'].get('waiting', {}).get('reason', '')}"


def _admits(values: Sequence[str], value: str) -> bool:
    return value in values or "*" in values


def _build_fault(status: int) -> web.Response:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        headers = {"Retry-After": "1"}
        return web.Response(
            status=status, text="Too many requests, please try again later.\n", headers=headers
        )
    error = ApiError(
        HTTPStatus(status), HTTPStatus(status).phrase.replace(" ", ""), "a fault of the rehearsal"
    )
    return _build_status(error)


def _build_status(error: ApiError) -> web.Response:
    return _build_answer(_describe_status(error), error.status)


def _build_answer(body: Object, status: int) -> web.Response:
    """Return JSON as the API server: no charset, as lightkube compares the whole content type."""
    return web.Response(
        body=json.dumps(body).encode(), status=status, content_type="application/json"
    )


def _describe_status(error: ApiError) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason,
        "code": error.status,
    }


def _describe_refusal(user: ClusterUser, call: ApiCall) -> str:
    resource = f"{call.kind.plural}/{call.subresource}" if call.subresource else call.kind.plural
    where = f' in the namespace "{call.namespace}"' if call.namespace else " at the cluster scope"
    name = f' "{call.name}"' if call.name else ""
    return (
        f'{resource}{name} is forbidden: User "{user.name}" cannot {call.verb} resource'
        f' "{resource}" in API group "{call.kind.group}"{where}'
    )
