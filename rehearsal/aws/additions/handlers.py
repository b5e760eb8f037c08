# ruff: noqa: SLF001, ANN001, ANN002, ANN201, ANN202 - MiniStack is untyped and has no public interface
"""Handlers of resource types for MiniStack's CloudFormation, and outcomes of service answers."""

from __future__ import annotations

import json

from ministack.services.cloudformation import provisioners

ERROR_STATUS = 400  # HTTP: from here on the service said no
NOT_FOUND_STATUS = 404


def wrap_changes(type_handlers: dict, *, before=None, after=None) -> None:
    """Let a function act before and after each create and update of a type.

    Args:
        type_handlers: the type's record.
        before: returns the properties to use, or raises; called as `before(properties)`.
        after: called as `after(physical_id, old, new, attributes)`; `old` is empty at a create.
    """
    create = type_handlers["create"]
    update = type_handlers["update"]
    prepare = before or (lambda properties: properties)
    finish = after or (lambda *_: None)

    def create_wrapped(logical_id, properties, stack):
        new = prepare(properties)
        physical_id, attributes = create(logical_id, new, stack)
        finish(physical_id, {}, new, attributes)
        return physical_id, attributes

    def update_wrapped(former_id, old, properties, stack, *logical_id):
        new = prepare(properties)
        physical_id, attributes = update(former_id, old, new, stack, *logical_id)
        finish(physical_id, old if physical_id == former_id else {}, new, attributes)
        return physical_id, attributes

    type_handlers.update(create=create_wrapped, update=update_wrapped)


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


def add_stack_tags(*types: str) -> None:
    """Let stack tags reach these types too, as on AWS."""
    for type_ in types:
        provisioners._STACK_TAG_PROPERTY[type_] = ("Tags", "list")
