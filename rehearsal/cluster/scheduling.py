"""The scheduler: chooses a pod's node and its claims' devices (DRA, resource.k8s.io/v1).

Left out: preemption and priorities, sidecars, pod affinity, topology spread and volumes. A pod with
node affinity is never placed. Of resource claims: claims named by resourceClaimName,
DeviceClass objects (a device is of the class that has its driver's name), allocationMode All,
firstAvailable, adminAccess, device taints, shared counters, slices without nodeName, and older pool
generations. Of CEL only equalities of attributes, joined by &&, work: other expressions match no
device.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from rehearsal.cluster.claims import find_claims
from rehearsal.cluster.quantities import parse_quantity
from rehearsal.cluster.statuses import (
    has_condition,
    is_active,
    is_unfinished,
    record_event,
    set_condition,
    write_status,
)
from rehearsal.cluster.store import Object, ObjectStore, copy_object

_EQUALITY = re.compile(
    r"""device\.attributes\[["']([^"']+)["']\]\.(\w+)\s*==\s*("[^"]*"|'[^']*'|\w+)"""
)


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """A node's device: driver, pool, name, and attributes by qualified name (`domain/name`)."""

    driver: str
    pool: str
    name: str
    attributes: Mapping[str, Any]


@dataclass(slots=True)
class NodeRoom:
    """A node and its free room.

    Args:
        node: the object.
        used: requests of its pods by resource.
        devices: those that no claim holds.
    """

    node: Object
    used: dict[str, Fraction] = field(default_factory=dict)
    devices: list[NodeDevice] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the node's name."""
        return str(self.node["metadata"]["name"])

    def find_shortage(self, requests: Mapping[str, Fraction]) -> str:
        """Return the first resource of which too little is left, or an empty text."""
        allocatable = self.node.get("status", {}).get("allocatable", {})
        for resource, amount in requests.items():
            if amount and self.used.get(resource, 0) + amount > parse_quantity(
                allocatable.get(resource, "0")
            ):
                return resource
        return ""

    def compute_fullness(self, requests: Mapping[str, Fraction]) -> Fraction:
        """Return the mean share of cpu and memory in use once the pod is there."""
        allocatable = self.node.get("status", {}).get("allocatable", {})
        sizes = {
            resource: parse_quantity(allocatable.get(resource, "0"))
            for resource in ("cpu", "memory")
        }
        taken = [
            (self.used.get(name, Fraction(0)) + requests.get(name, Fraction(0))) / size
            for name, size in sizes.items()
            if size
        ]
        return sum(taken, Fraction(0)) / 2


def schedule_pods(store: ObjectStore, allocation_s: float = 0.0) -> None:
    """Bind each pod that waits to the fullest node that takes it; if no node does, say why.

    Args:
        store: the cluster.
        allocation_s: from a pod's last claim until the scheduler allocates it, in seconds. A pod
            whose claims do not exist yet is left alone, as by PreEnqueue of a real scheduler.
    """
    pods = store.view_objects("pods")
    waiting = [
        copy_object(pod) for pod in pods if is_active(pod) and not pod["spec"].get("nodeName")
    ]
    if not waiting:
        return
    rooms = measure_nodes(store)
    for pod in sorted(waiting, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
        claims = find_claims(store, pod)
        if claims is None or any(store.measure_age(claim) < allocation_s for claim in claims):
            continue
        _place_pod(store, pod, claims, rooms)


def measure_nodes(store: ObjectStore) -> list[NodeRoom]:
    """Return the free room of each node."""
    rooms = {node["metadata"]["name"]: NodeRoom(node) for node in store.view_objects("nodes")}
    for pod in store.view_objects("pods"):
        if is_unfinished(pod) and pod["spec"].get("nodeName") in rooms:
            _add_amounts(rooms[pod["spec"]["nodeName"]].used, sum_requests(pod))
    held = {
        (result["driver"], result["pool"], result["device"])
        for claim in store.view_objects("resourceclaims")
        for result in (
            claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        )
    }
    for row in store.view_objects("resourceslices"):
        spec = row["spec"]
        devices = (_read_device(spec, device) for device in spec.get("devices", []))
        if spec.get("nodeName") in rooms:
            rooms[spec["nodeName"]].devices += [
                device
                for device in devices
                if (device.driver, device.pool, device.name) not in held
            ]
    return list(rooms.values())


def find_obstacle(pod: Object, room: NodeRoom, requests: Mapping[str, Fraction]) -> str:
    """Return why a node refuses a pod, devices aside, in the scheduler's words; else empty."""
    spec = room.node.get("spec", {})
    conditions = room.node.get("status", {}).get("conditions", [])
    if not has_condition(conditions, "Ready"):
        return "node(s) were not ready"
    if spec.get("unschedulable"):
        return "node(s) were unschedulable"
    for taint in spec.get("taints", []):
        tolerations = pod["spec"].get("tolerations", [])
        if taint["effect"] != "PreferNoSchedule" and not any(
            is_tolerated(taint, row) for row in tolerations
        ):
            return "node(s) had untolerated taint(s)"  # Kubernetes 1.36 names none
    if not is_node_selected(pod, room.node["metadata"].get("labels", {})):
        return "node(s) didn't match Pod's node affinity/selector"
    shortage = room.find_shortage(requests)
    return f"Insufficient {shortage}" if shortage else ""


def is_tolerated(taint: Mapping[str, str], toleration: Mapping[str, str]) -> bool:
    """Tell whether a toleration covers a taint."""
    is_same_effect = toleration.get("effect", "") in {"", taint["effect"]}
    is_same_key = toleration.get("key", "") in {"", taint["key"]}
    if toleration.get("operator", "Equal") == "Exists":
        return is_same_effect and is_same_key
    is_same_value = toleration.get("value", "") == taint.get("value", "")
    return is_same_effect and toleration.get("key") == taint["key"] and is_same_value


def is_node_selected(pod: Object, labels: Mapping[str, str]) -> bool:
    """Tell whether a node's labels match the pod's nodeSelector; no node matches an affinity."""
    has_affinity = "nodeAffinity" in pod["spec"].get("affinity", {})
    return not has_affinity and pod["spec"].get("nodeSelector", {}).items() <= labels.items()


def sum_requests(pod: Object) -> dict[str, Fraction]:
    """Return a pod's use of each resource: all containers, or the largest init one if more."""
    total = dict[str, Fraction]()
    largest = dict[str, Fraction]()
    for container in pod["spec"].get("initContainers", []):
        largest |= {
            name: max(amount, largest.get(name, amount))
            for name, amount in _read_requests(container).items()
        }
    for container in pod["spec"]["containers"]:
        _add_amounts(total, _read_requests(container))
    return total | {name: max(amount, total.get(name, amount)) for name, amount in largest.items()}


def choose_devices(claim: Object, devices: list[NodeDevice]) -> list[tuple[str, NodeDevice]] | None:
    """Return a claim's devices, each with its request's name; None if there are too few."""
    spec = claim["spec"].get("devices", {})
    slots = [
        (request["name"], request["exactly"])
        for request in spec.get("requests", [])
        for _ in range(request["exactly"].get("count", 1))
    ]
    constraints = [row for row in spec.get("constraints", []) if "matchAttribute" in row]
    return next(_fill_slots(slots, devices, constraints, []), None)


def _place_pod(
    store: ObjectStore, pod: Object, claims: list[Object], rooms: list[NodeRoom]
) -> None:
    requests = sum_requests(pod)
    obstacles = Counter[str]()
    for room in sorted(rooms, key=lambda room: (-room.compute_fullness(requests), room.name)):
        obstacle = find_obstacle(pod, room, requests)
        choices = None if obstacle else _choose_all(claims, room)
        if choices is None:
            obstacles[obstacle or "cannot allocate all claims"] += 1
            continue
        for claim, results in zip(claims, choices, strict=True):
            _allocate_claim(store, claim, room, results)
        _add_amounts(room.used, requests)
        _bind_pod(store, pod, room.name)
        return
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(obstacles.items()))
    _refuse_pod(store, pod, f"0/{len(rooms)} nodes are available: {reasons or 'no nodes'}.")


def _choose_all(claims: list[Object], room: NodeRoom) -> list[list[tuple[str, NodeDevice]]] | None:
    """Return the devices of each claim; None if one claim cannot have its devices."""
    left = list(room.devices)
    choices = list[list[tuple[str, NodeDevice]]]()
    for claim in claims:
        results = choose_devices(claim, left)
        if results is None:
            return None
        choices.append(results)
        left = _list_left(left, results)
    return choices


def _list_left(
    devices: list[NodeDevice], choices: list[tuple[str, NodeDevice]]
) -> list[NodeDevice]:
    chosen = [device for _, device in choices]
    return [device for device in devices if device not in chosen]


def _allocate_claim(
    store: ObjectStore,
    claim: Object,
    room: NodeRoom,
    choices: list[tuple[str, NodeDevice]],
) -> None:
    results = [
        {"request": request, "driver": device.driver, "pool": device.pool, "device": device.name}
        for request, device in choices
    ]
    write_status(store, "resourceclaims", claim, {"allocation": {"devices": {"results": results}}})
    room.devices = _list_left(room.devices, choices)


def _bind_pod(store: ObjectStore, pod: Object, node_name: str) -> None:
    metadata = pod["metadata"]
    status = pod.get("status", {})
    store.patch_object(
        "pods", metadata["namespace"], metadata["name"], {"spec": {"nodeName": node_name}}
    )
    set_condition(store, status, "PodScheduled")
    write_status(store, "pods", pod, {"phase": "Pending"} | status)


def _refuse_pod(store: ObjectStore, pod: Object, message: str) -> None:
    """Write why no node takes the pod into its status and an event."""
    status = pod.get("status", {})
    set_condition(
        store, status, "PodScheduled", value=False, reason="Unschedulable", message=message
    )
    write_status(store, "pods", pod, {"phase": "Pending"} | status)
    record_event(store, pod, "FailedScheduling", message, component="default-scheduler")


def _fill_slots(
    slots: list[tuple[str, Object]],
    devices: list[NodeDevice],
    constraints: list[Object],
    chosen: list[tuple[str, NodeDevice]],
) -> Iterator[list[tuple[str, NodeDevice]]]:
    """Yield each way to fill the slots; a request's devices keep their order: others are equal."""
    if len(chosen) == len(slots):
        yield chosen
        return
    request, wish = slots[len(chosen)]
    taken = [device for _, device in chosen]
    first = devices.index(chosen[-1][1]) + 1 if chosen and chosen[-1][0] == request else 0
    for device in devices[first:]:
        grown = [*chosen, (request, device)]
        if device not in taken and _is_wanted(wish, device) and _is_consistent(grown, constraints):
            yield from _fill_slots(slots, devices, constraints, grown)


def _is_wanted(wish: Object, device: NodeDevice) -> bool:
    expressions = [row["cel"]["expression"] for row in wish.get("selectors", [])]
    return wish["deviceClassName"] == device.driver and all(
        _match_equalities(row, device) for row in expressions
    )


def _match_equalities(expression: str, device: NodeDevice) -> bool:
    """Tell whether a device has all attributes an expression names; other forms never match."""
    matches = [_EQUALITY.fullmatch(part.strip()) for part in expression.split("&&")]
    return all(
        match
        and json.dumps(device.attributes.get(f"{match[1]}/{match[2]}"))
        == match[3].replace("'", '"')
        for match in matches
    )


def _is_consistent(chosen: list[tuple[str, NodeDevice]], constraints: list[Object]) -> bool:
    """Tell whether devices share the required attributes; a device without one shares none."""
    for constraint in constraints:
        names = constraint.get("requests") or [request for request, _ in chosen]
        devices = [device for request, device in chosen if request in names]
        values = {
            json.dumps(device.attributes.get(constraint["matchAttribute"])) for device in devices
        }
        if len(values) > 1 or "null" in values:
            return False
    return True


def _read_device(spec: Object, device: Object) -> NodeDevice:
    attributes = {
        key if "/" in key else f"{spec['driver']}/{key}": next(iter(value.values()))
        for key, value in device.get("attributes", {}).items()
    }
    return NodeDevice(spec["driver"], spec["pool"]["name"], device["name"], attributes)


def _read_requests(container: Object) -> dict[str, Fraction]:
    """Return a container's requests; the API takes the limit if a request is missing."""
    resources = container.get("resources", {})
    amounts = resources.get("limits", {}) | resources.get("requests", {})
    return {name: parse_quantity(amount) for name, amount in amounts.items()}


def _add_amounts(total: dict[str, Fraction], amounts: Mapping[str, Fraction]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, Fraction(0)) + amount
