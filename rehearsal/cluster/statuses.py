"""What controllers read from and write into statuses: phases, conditions, and events of a pod."""

from __future__ import annotations

from collections.abc import Iterable

from rehearsal.cluster.store import ENDED_PHASES, Object, ObjectStore, format_time


def is_active(pod: Object) -> bool:
    """Tell whether a pod has neither ended nor been deleted."""
    return is_unfinished(pod) and "deletionTimestamp" not in pod["metadata"]


def is_unfinished(pod: Object) -> bool:
    """Tell whether a pod may still use its node."""
    return pod.get("status", {}).get("phase") not in ENDED_PHASES


def has_condition(conditions: Iterable[Object], type_: str) -> bool:
    """Tell whether a condition is there and true."""
    return any(row["type"] == type_ and row["status"] == "True" for row in conditions)


def set_condition(
    store: ObjectStore, status: Object, type_: str, *, value: bool = True, **details: str
) -> None:
    """Set a condition of a status; its transition time moves only with its value."""
    rows = status.get("conditions", [])
    old: Object = next((row for row in rows if row["type"] == type_), {})
    text = "True" if value else "False"
    moment = old["lastTransitionTime"] if old.get("status") == text else format_time(store.now())
    new = {"type": type_, "status": text, "lastTransitionTime": moment, **details}
    kept = [new if row is old else row for row in rows]
    status["conditions"] = kept if old else [*rows, new]


def write_status(store: ObjectStore, plural: str, body: Object, status: Object) -> None:
    """Replace the status of an object; the same one costs no copy, and most passes change none."""
    metadata = body["metadata"]
    namespace = metadata.get("namespace", "")
    name = metadata["name"]
    if store.view_object(plural, namespace, name).get("status") != status:
        store.replace_object(plural, namespace, name, {"status": status}, subresource="status")


def record_event(
    store: ObjectStore, pod: Object, reason: str, message: str, *, component: str
) -> None:
    """Write an event of a pod; the same reason again counts, at most once a second."""
    metadata = pod["metadata"]
    namespace = metadata["namespace"]
    now = format_time(store.now())
    name = f"{metadata['name']}.{metadata['uid'][:8]}.{reason.lower()}"
    events = store.view_objects("events", namespace, field_selector=f"metadata.name={name}")
    if not events:
        subject = {"kind": "Pod", "apiVersion": "v1"}
        subject |= {key: metadata[key] for key in ("namespace", "name", "uid")}
        event: Object = {"metadata": {"name": name}, "involvedObject": subject, "reason": reason}
        event |= {"type": "Warning", "message": message, "source": {"component": component}}
        event |= {"count": 1, "firstTimestamp": now, "lastTimestamp": now}
        store.create_object("events", namespace, event)
    elif events[0]["lastTimestamp"] != now:
        change = {"message": message, "count": events[0]["count"] + 1, "lastTimestamp": now}
        store.patch_object("events", namespace, name, change)
