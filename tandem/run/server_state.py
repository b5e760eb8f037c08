"""State of a run's servers in the cluster, compared around each round and with the declaration.

Invariant: a figure is of one process on known devices, started as declared. A server without
devices is starting: its claim is compared once it has them. Additions of the Pod Identity webhook
to a pod are skipped by name; any other difference is named by its field.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tandem.declarations import names
from tandem.declarations.artifact_key import KEY_VARIABLE
from tandem.declarations.experiment import Variant
from tandem.declarations.images import pull_name
from tandem.declarations.quantity import spell_count, spell_gib
from tandem.declarations.server_command import build_server_command
from tandem.declarations.variant_key import compute_artifact_key
from tandem.run.cluster import Object
from tandem.run.fleet_nodes import find_device_attribute
from tandem.run.jobs import describe_waiting, list_container_statuses
from tandem.run.run_world import RunEndError, StepWork

# additions of amazon-eks-pod-identity-webhook (its pkg/handler, 2026): not declared, and no part of
# the server
WEBHOOK_VARIABLES = frozenset(
    {
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_DEFAULT_REGION",
        "AWS_REGION",
        "AWS_STS_REGIONAL_ENDPOINTS",
    }
)
SERVER_CONTAINER = "vllm"
ADMIT_CONTAINER = "admit"
SERVICE_LABEL = "kubernetes.io/service-name"
NAME_LABEL = "app.kubernetes.io/name"
ENDED_PHASES = frozenset({"Succeeded", "Failed"})
UNKNOWN_DEVICE = -1
NODE_GONE = "no ResourceSlice lists its devices: the node is gone, or its DRA driver is down"
UNALLOCATED = "its claim is not allocated"
MAX_VALUE_CHARACTERS = 120  # of a value in a sentence
LEAD_CHARACTERS = 30  # of what two values have in common, before they part


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """One server at one moment.

    Args:
        variant: its name.
        pod, uid, node: of its pod.
        restarts: of the server's container.
        is_ready: whether the pod is ready.
        image, words: of the container: its image, then command and arguments.
        claim: uid of the pod's resource claim; empty if it is not allocated, or if its node is
            gone.
        devices: ids of its devices, in order; UNKNOWN_DEVICE for one whose driver names none.
        endpoints: uids of the pods behind its Service that are ready; pods that leave are not among
            them.
        trouble: why the server does not serve, in Kubernetes' words or its container's.
    """

    variant: str
    pod: str
    uid: str
    node: str = ""
    restarts: int = 0
    is_ready: bool = False
    image: str = ""
    words: tuple[str, ...] = ()
    claim: str = ""
    devices: tuple[int, ...] = ()
    endpoints: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def is_serving(self) -> bool:
        """Whether the server has its devices, is ready, and its Service knows it, a bit later."""
        return self.is_ready and bool(self.endpoints) and bool(self.claim)

    @property
    def placement(self) -> str:
        """The part of its node on which the server runs, as every record has it."""
        if not self.devices:
            return "unknown"
        return f"devices {self.devices[0]}-{self.devices[-1]}"


def list_unfinished_pods(work: StepWork, variant: str) -> list[Object]:
    """Return the pods of a variant that have not ended, including those that are being deleted.

    Raises:
        ExternalError: Kubernetes failed.
    """
    return [pod for pod in _list_all_pods(work, variant) if not _has_ended(pod)]


def list_active_pods(work: StepWork, variant: str) -> list[Object]:
    """Return the same pods without those that are being deleted.

    Raises:
        ExternalError: Kubernetes failed.
    """
    return [pod for pod in _list_all_pods(work, variant) if _is_active(pod)]


def _list_all_pods(work: StepWork, variant: str) -> list[Object]:
    labels = {NAME_LABEL: variant, "app.kubernetes.io/component": "server"}
    return work.world.cluster.list_objects("pods", work.namespace, labels)


def _has_ended(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ENDED_PHASES


def _is_active(pod: Object) -> bool:
    """Tell whether a pod neither ended nor is being deleted: on a lost node that takes minutes."""
    return not _has_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def read_servers(work: StepWork) -> dict[str, ServerState]:
    """Return variant -> its server, without variants that have no pod that stays, or several.

    A pod that is being deleted is no server any more; its successor is one from its first moment.

    Raises:
        ExternalError: Kubernetes failed.
    """
    cluster = work.world.cluster
    claim_rows = cluster.list_objects("resourceclaims", work.namespace)
    claims = {claim["metadata"]["name"]: claim for claim in claim_rows}
    device_ids = _read_device_ids(cluster.list_objects("resourceslices"))
    slices = cluster.list_objects("endpointslices", work.namespace)
    servers = {}
    for arm in work.arms:
        pods = _list_all_pods(work, arm)
        staying = [pod for pod in pods if _is_active(pod)]
        if len(staying) == 1:
            server = _read_server(work, arm, staying[0], claims, device_ids)
            endpoints = tuple(sorted(_find_live_endpoints(slices, arm, pods)))
            servers[arm] = msgspec.structs.replace(server, endpoints=endpoints)
    return servers


def read_serving_servers(work: StepWork) -> dict[str, ServerState]:
    """Return variant -> its server once all of them serve; empty before that.

    Raises:
        ExternalError: Kubernetes failed.
    """
    servers = read_servers(work)
    is_complete = all(arm in servers and servers[arm].is_serving for arm in work.arms)
    return servers if is_complete else {}


def _read_server(
    work: StepWork,
    name: str,
    pod: Object,
    claims: dict[str, Object],
    device_ids: dict[tuple[str, str], int],
) -> ServerState:
    metadata = pod["metadata"]
    status = pod.get("status", {})
    container = find_container(pod["spec"], SERVER_CONTAINER)
    rows = [row for row in status.get("containerStatuses", []) if row["name"] == SERVER_CONTAINER]
    conditions = {row["type"]: row["status"] for row in status.get("conditions", [])}

    claim = _find_claim(pod, claims)
    allocation = claim.get("status", {}).get("allocation", {})
    results = allocation.get("devices", {}).get("results", [])
    places = [(row["pool"], row["device"]) for row in results]
    claim_uid = ""
    devices: tuple[int, ...] = ()
    trouble = NODE_GONE
    if all(place in device_ids for place in places):
        devices = tuple(sorted(device_ids[place] for place in places))
        trouble = _describe_trouble(work, pod)
        if devices:
            claim_uid = claim["metadata"]["uid"]
    return ServerState(
        variant=name,
        pod=metadata["name"],
        uid=metadata["uid"],
        node=pod["spec"].get("nodeName") or "",
        restarts=sum(row.get("restartCount", 0) for row in rows),
        is_ready=conditions.get("Ready") == "True",
        image=container.get("image", ""),
        words=(*container.get("command", []), *container.get("args", [])),
        claim=claim_uid,
        devices=devices,
        trouble=trouble,
    )


def _find_claim(pod: Object, claims: dict[str, Object]) -> Object:
    """Return the resource claim of a pod; an empty mapping as long as it has none."""
    rows = pod.get("status", {}).get("resourceClaimStatuses") or []
    claim_names = [row.get("resourceClaimName", "") for row in rows]
    for name in claim_names:
        if name in claims:
            return claims[name]
    return {}


def _describe_trouble(work: StepWork, pod: Object) -> str:
    """Return the last words of a pod's failed container, or why the container waits."""
    for row in list_container_statuses(pod):
        for state in (row.get("state", {}), row.get("lastState", {})):
            end = state.get("terminated") or {}
            exit_code = end.get("exitCode")
            if exit_code:
                text = f"{row['name']} ended with {exit_code}"
                words = str(end.get("message") or end.get("reason") or "").strip()
                if not words:
                    return text
                return f"{text}: {words.splitlines()[-1]}"
    return describe_waiting(work, [pod])


def _read_device_ids(slices: Sequence[Object]) -> dict[tuple[str, str], int]:
    """Return (pool, device) -> its node id, from deviceId (aws-neuron-sdk deploy/eks/dra.rst)."""
    ids = {}
    for row in slices:
        pool = row["spec"]["pool"]["name"]
        for device in row["spec"].get("devices") or []:
            attribute = find_device_attribute(device, "deviceId")
            ids[pool, device["name"]] = int(attribute.get("int", UNKNOWN_DEVICE))
    return ids


def require_single_servers(work: StepWork) -> None:
    """Check that no arm has a second pod, serving or waiting, and no Service a second endpoint.

    A pod that is being deleted is no second one: its successor is beside it at once, and a Service
    may list it a moment longer.

    Raises:
        RunEndError: one has, which voids the run, because it is unknown which pod answered.
        ExternalError: Kubernetes failed.
    """
    slices = work.world.cluster.list_objects("endpointslices", work.namespace)
    for arm in work.arms:
        pods = _list_all_pods(work, arm)
        pod_count = sum(map(_is_active, pods))
        endpoint_count = len(_find_live_endpoints(slices, arm, pods))
        if pod_count > 1 or endpoint_count > 1:
            reason = (
                f"{arm} has {pod_count} pods and {endpoint_count} endpoints,"
                " and must have one of each"
            )
            raise RunEndError(reason, "void")


def _find_live_endpoints(
    slices: Sequence[Object], service: str, pods: Sequence[Object]
) -> set[str]:
    """Return a Service's ready endpoints without leaving pods; one of an unknown pod counts."""
    leaving = {pod["metadata"]["uid"] for pod in pods if not _is_active(pod)}
    return set(_list_ready_endpoints(slices, service)) - leaving


def _list_ready_endpoints(slices: Sequence[Object], service: str) -> Iterator[str]:
    for row in slices:
        if row["metadata"].get("labels", {}).get(SERVICE_LABEL) != service:
            continue
        for endpoint in row.get("endpoints") or []:
            if endpoint.get("conditions", {}).get("ready", True):
                target = endpoint.get("targetRef") or {}
                yield str(target.get("uid", endpoint.get("addresses")))


def find_container(spec: Object, name: str) -> Object:
    """Return a container of a pod's spec by its name; an empty mapping if there is none."""
    containers: tuple[Object, ...] = (
        *(spec.get("initContainers") or []),
        *spec.get("containers", []),
    )
    for container in containers:
        if container["name"] == name:
            return container
    return {}


def list_differences(work: StepWork, variant: Variant, pod: Object) -> Iterator[str]:
    """Yield how a server's pod differs from its declaration: field, running, declared value."""
    declared = _declare_server(work, variant)
    for field, running in _read_pod(pod).items():
        if running != declared[field]:
            yield f"{field}: {spell_difference(running, declared[field])}"


def _declare_server(work: StepWork, variant: Variant) -> dict[str, Any]:
    """Return what a server's pod must have, by field."""
    world = work.world
    experiment = work.experiment
    catalogue = world.catalogue
    command = build_server_command(experiment, variant, catalogue)
    key = compute_artifact_key(experiment, variant, catalogue)
    reference = catalogue.runtimes[experiment.runtime].image.reference
    digest = catalogue.digests.find_digest(reference)
    return {
        "image": pull_name(reference, digest, world.environment.registry_mirrors),
        "command": command.command,
        "arguments": command.arguments,
        "environment": command.environment,
        "cpu": spell_count(experiment.serving.cpu),
        "memory": spell_gib(experiment.serving.memory_gib),
        "claims": 1,
        "artifact volume": names.artifact_volume_name(world.environment, experiment, key),
        "artifact key": names.key_config_map_name(key),
    }


def _read_pod(pod: Object) -> dict[str, Any]:
    """Return the same fields as a pod has them."""
    spec = pod["spec"]
    server = find_container(spec, SERVER_CONTAINER)
    requests = server.get("resources", {}).get("requests") or {}
    environment = {}
    for row in server.get("env") or []:
        if row["name"] not in WEBHOOK_VARIABLES:
            environment[row["name"]] = row.get("value", "")
    volumes = {row["name"]: row.get("persistentVolumeClaim") or {} for row in spec["volumes"]}
    admit_variables = find_container(spec, ADMIT_CONTAINER).get("env") or []
    sources = {row["name"]: row.get("valueFrom") or {} for row in admit_variables}
    key_source = sources.get(KEY_VARIABLE, {}).get("configMapKeyRef", {})
    return {
        "image": server.get("image"),
        "command": tuple(server.get("command") or ()),
        "arguments": tuple(server.get("args") or ()),
        "environment": environment,
        "cpu": requests.get("cpu"),
        "memory": requests.get("memory"),
        "claims": len(spec.get("resourceClaims") or []),
        "artifact volume": volumes.get("stored", {}).get("claimName"),
        "artifact key": key_source.get("name"),
    }


def spell_difference(running: Any, declared: Any) -> str:
    """Return two values from where they part: a list's first other item, a dict's other keys."""
    if isinstance(running, dict):
        running_items = running.items()
        running = dict(sorted(running_items - declared.items()))
        declared = dict(sorted(declared.items() - running_items))
    elif isinstance(running, tuple):
        begin = _count_common(running, declared)
        running = running[begin:]
        declared = declared[begin:]
    first = _write_value(running)
    second = _write_value(declared)
    hidden = _count_common(first, second) - LEAD_CHARACTERS
    if hidden > 0:
        first = f"...{first[hidden:]}"
        second = f"...{second[hidden:]}"
    return f"{_shorten(first)} runs, {_shorten(second)} is declared"


def _count_common(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return how many items two sequences have in common from their beginning."""
    pairs = zip(first, second, strict=False)
    return len(tuple(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def list_claim_faults(work: StepWork, server: ServerState) -> Iterator[str]:
    """Yield how a server's devices differ from their declaration; none while it has none."""
    if not server.claim:
        return
    serving = work.experiment.serving
    if len(server.devices) != serving.devices:
        yield f"devices: the claim has {len(server.devices)}, {serving.devices} are declared"
    size = serving.device_group
    if UNKNOWN_DEVICE in server.devices:
        yield (
            f"devices: the ResourceSlice of {server.node} has no deviceId,"
            " so their group is unknown"
        )
    elif size and len({device // size for device in server.devices}) > 1:
        yield (
            f"devices {_shorten(_write_value(server.devices))} are of more than one group of {size}"
        )
    # none: the server was restarted, and may be ready again
    if server.is_ready and server.endpoints not in {(), (server.uid,)}:
        yield (
            f"Service {server.variant} has {len(server.endpoints)} ready endpoints, and must have"
            " its own pod alone"
        )


def _write_value(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, default=list)


def _shorten(text: str) -> str:
    if len(text) <= MAX_VALUE_CHARACTERS:
        return text
    return f"{text[:MAX_VALUE_CHARACTERS]}..."
