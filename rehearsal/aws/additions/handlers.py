# ruff: noqa: SLF001, ANN001, ANN201, ANN202 - MiniStack is untyped and has no public interface
"""Handlers of resource types for MiniStack's CloudFormation, and outcomes of service answers."""

from __future__ import annotations

import json

from ministack.services.cloudformation import provisioners

ERROR_STATUS = 400  # HTTP: from here on the service said no
NOT_FOUND_STATUS = 404
NEEDS = {provisioners: ("_RESOURCE_HANDLERS", "_STACK_TAG_PROPERTY")}


def build_handler(create, update, delete) -> dict:
    """Return a type's record; `update` is called as `update(id, old, new, stack, logical_id)`."""
    return {"create": create, "update": update, "update_with_logical_id": True, "delete": delete}


def require_success(answer: tuple) -> bytes:
    """Return the body of a service's answer.

    Raises:
        ValueError: the service refused; CloudFormation shows its words as the reason of the failed
            resource.
    """
    status, _headers, body = answer
    if status >= ERROR_STATUS:
        raise ValueError(body.decode() if isinstance(body, bytes) else str(body))
    return body


def parse_answer(answer: tuple) -> dict:
    """Return the body of a service's answer, parsed as JSON."""
    return json.loads(require_success(answer) or b"{}")


def build_replacing_update(create, update_tags=None):
    """Return an update for a type in which every property except the tags needs a new resource.

    CloudFormation deletes the predecessor when it sees the new physical id.
    """

    def update(physical_id, old, new, stack, logical_id=None):
        changes = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        if changes <= {"Tags"} and update_tags is not None:
            return update_tags(physical_id, old, new, stack, logical_id)
        return create(logical_id or physical_id, new, stack)

    return update


def add_stack_tags(*types: str, shape: str = "list") -> None:
    """Let stack tags reach these types too, as on AWS."""
    for type_ in types:
        provisioners._STACK_TAG_PROPERTY[type_] = ("Tags", shape)
