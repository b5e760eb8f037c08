"""The cluster's API over HTTP: paths, verbs, selectors, watches, apply, scale, rights and faults.

Left out: discovery, JSON patches, strategic patches of lists, dry runs, and TLS. A list is served
whole, whatever its `limit`.
"""

from __future__ import annotations

import asyncio
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
WATCH_LOOK_S = 0.02
BOOKMARK_S = 1.0
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"


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
    """An answer in place of the real one, for the next calls that fit.

    Args:
        status: of HTTP, such as 503; 429 carries Retry-After and plain text, as the API's own
            limits do.
        calls: how many calls the fault answers.
        verb, plural: of the calls; empty for any.
    """

    status: int
    calls: int = 1
    verb: str = ""
    plural: str = ""

    def takes(self, call: ApiCall) -> bool:
        """Tell whether the fault answers a call, and count the call if so."""
        fits = (
            self.calls > 0
            and self.verb in ("", call.verb)
            and self.plural in ("", call.kind.plural)
        )
        self.calls -= fits
        return fits


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
        """Close the port and every watch."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = ClusterUser("system:anonymous")
        call = None
        try:
            call = _parse_known_call(request)  # a refused one is recorded too
            user = self._find_user(request)
            call = call or parse_call(request)
            fault = next((fault for fault in self.faults if fault.takes(call)), None)
            if fault is not None:
                response: web.StreamResponse = _build_fault(fault.status)
            elif self.users and not user.may(call):
                response = _build_status(
                    ApiError(HTTPStatus.FORBIDDEN, "Forbidden", _describe_refusal(user, call))
                )
            else:
                response = await self._perform(request, call)
        except ApiError as error:
            response = _build_status(error)
        except ValueError as error:  # the body is no JSON, or a selector has another form
            response = _build_status(ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", str(error)))
        if call is not None:
            self.calls.append((user.name, call, response.status))
        return response

    def _find_user(self, request: web.Request) -> ClusterUser:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self.users:
            return ClusterUser("system:admin")
        account = self._find_account(token)
        if account not in self.users and account == token:
            raise ApiError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
        # an account without a binding may do nothing
        return self.users.get(account, ClusterUser(account))

    async def _perform(self, request: web.Request, call: ApiCall) -> web.StreamResponse:
        if call.verb == "watch":
            return await self._watch(request, call)
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
        if call.subresource == "scale":
            return self._scale(call, body)
        if call.subresource == "eviction":
            return self._evict(call, body)
        place = call.kind.plural, call.namespace
        answers: dict[str, Callable[[], Object]] = {
            "list": lambda: self._list(request, call),
            "get": lambda: self.store.get_object(*place, call.name),
            "create": lambda: self.store.create_object(*place, body),
            "update": lambda: self.store.replace_object(
                *place, call.name, body, subresource=call.subresource
            ),
            "patch": lambda: self._patch(request, call, body),
            "delete": lambda: self._delete(request, call, body),
        }
        return answers[call.verb]()

    def _list(self, request: web.Request, call: ApiCall) -> Object:
        labels, fields = _read_selectors(request)
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

    def _patch(self, request: web.Request, call: ApiCall, body: Object) -> Object:
        place = call.kind.plural, call.namespace
        # then both patches are the same
        is_plain = request.content_type == _STRATEGIC and not _has_lists(body)
        if request.content_type == _MERGE or is_plain:
            return self.store.patch_object(*place, call.name, body, subresource=call.subresource)
        if request.content_type != _APPLY:
            message = f"{request.content_type}: a rehearsed cluster takes {_MERGE}, {_APPLY}, "
            message += f"and {_STRATEGIC} without lists and directives"
            raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
        manager = request.query.get("fieldManager", "")
        if not manager:
            raise ApiError(
                HTTPStatus.BAD_REQUEST,
                "BadRequest",
                "PatchOptions: fieldManager: required for apply patch",
            )
        body.setdefault("metadata", {})["name"] = call.name
        return self.store.apply_object(
            *place, body, manager=manager, force=request.query.get("force") == "true"
        )

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

    def _evict(self, call: ApiCall, body: Object) -> Object:
        """Evict a pod; with no PodDisruptionBudgets here, no eviction is refused with 429."""
        if call.kind.plural != "pods" or call.verb != "create":
            raise ApiError(
                HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource"
            )
        if body.get("metadata", {}).get("name") != call.name:
            message = "name in URL does not match name in Eviction object"
            raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", message)
        grace_s = (body.get("deleteOptions") or {}).get("gracePeriodSeconds")
        self.store.evict_pod(call.namespace, call.name, grace_s=grace_s)
        return {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Success",
            "code": HTTPStatus.CREATED,
        }

    def _scale(self, call: ApiCall, body: Object) -> Object:
        """Answer the subresource; a scale of 0 has no `replicas`: the API leaves zeros out."""
        place = call.kind.plural, call.namespace, call.name
        if call.verb != "get":
            replicas = body.get("spec", {}).get("replicas", 0)
            version = body.get("metadata", {}).get("resourceVersion")
            patch = {
                "spec": {"replicas": replicas},
                "metadata": {"resourceVersion": version} if version else {},
            }
            self.store.patch_object(*place, patch)
        found = self.store.get_object(*place)
        metadata = {
            key: found["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")
        }
        wanted = found["spec"].get("replicas", 1)
        current = found.get("status", {}).get("replicas", 0)
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": metadata,
            "spec": {"replicas": wanted} if wanted else {},
            "status": {"replicas": current},
        }

    async def _watch(self, request: web.Request, call: ApiCall) -> web.StreamResponse:
        """Stream changes, a line each; for forgotten ones an ERROR event 410 after status 200."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        end = loop.time() + float(request.query.get("timeoutSeconds") or 3600)
        bookmark = loop.time() + BOOKMARK_S
        version = int(request.query.get("resourceVersion") or 0)
        names = (call.namespace, call.name)
        labels_fields = _read_selectors(request)
        if version == 0:
            for body in self.store.list_objects(call.kind.plural, call.namespace or None):
                if _is_watched(body, names, labels_fields):
                    await _send_event(response, "ADDED", body)
            version = self.store.version
        while loop.time() < end:
            try:
                changes = list(self.store.list_changes(call.kind.plural, version))
            except ApiError as error:
                await _send_event(response, "ERROR", _describe_status(error))
                break
            version = self.store.version
            for change in changes:
                if _is_watched(change.body, names, labels_fields):
                    await _send_event(response, change.type, change.body)
            if request.query.get("allowWatchBookmarks") == "true" and loop.time() >= bookmark:
                bookmark = loop.time() + BOOKMARK_S
                mark = {"apiVersion": call.kind.api_version, "kind": call.kind.kind}
                await _send_event(
                    response, "BOOKMARK", mark | {"metadata": {"resourceVersion": str(version)}}
                )
            await asyncio.sleep(WATCH_LOOK_S)
        await response.write_eof()
        return response


def parse_call(request: web.Request) -> ApiCall:
    """Return the call that a request makes.

    Raises:
        ApiError: 404 for a path that is not served, 405 for a method that is not.
    """
    match = _PATH.fullmatch(request.path)
    kind = KINDS.get(match["plural"]) if match else None
    if match is None or kind is None or kind.group != (match["group"] or ""):
        raise ApiError(
            HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource"
        )
    namespace, name, subresource = (
        match[part] or "" for part in ("namespace", "name", "subresource")
    )
    watches = request.query.get("watch") in ("1", "true")
    verbs = {
        "GET": "get" if name else "list",
        "POST": "create",
        "PUT": "update",
        "PATCH": "patch",
        "DELETE": "delete",
    }
    if request.method not in verbs:
        message = (
            f"{request.method}: the server does not allow this method on the requested resource"
        )
        raise ApiError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    verb = "watch" if watches and request.method == "GET" else verbs[request.method]
    return ApiCall(verb, kind, namespace, name, subresource)


def _parse_known_call(request: web.Request) -> ApiCall | None:
    """Return the call of a request, None if it has a path or a method that is not served."""
    try:
        return parse_call(request)
    except ApiError:
        return None


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


def _has_lists(patch: Any) -> bool:
    """Tell whether a strategic patch has a list or directive, which merge patches treat apart."""
    if isinstance(patch, dict):
        return any(key.startswith("$") or _has_lists(part) for key, part in patch.items())
    return isinstance(patch, list)


def _admits(values: Sequence[str], value: str) -> bool:
    return value in values or "*" in values


def _read_selectors(request: web.Request) -> tuple[str, str]:
    """Return the selectors for labels and for fields.

    Raises:
        ValueError: one is not of the form.
    """
    labels = request.query.get("labelSelector", "")
    fields = request.query.get("fieldSelector", "")
    is_selected({"metadata": {}}, labels, fields)
    return labels, fields


def _is_watched(body: Object, names: tuple[str, str], selectors: tuple[str, str]) -> bool:
    namespace, name = names
    metadata = body["metadata"]
    is_here = namespace in ("", metadata.get("namespace", "")) and name in ("", metadata["name"])
    return is_here and is_selected(body, *selectors)


async def _send_event(response: web.StreamResponse, type_: str, body: Object) -> None:
    await response.write(json.dumps({"type": type_, "object": body}).encode() + b"\n")


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
