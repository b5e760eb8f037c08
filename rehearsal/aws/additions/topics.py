# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""A topic's key, which plain MiniStack drops."""

from __future__ import annotations

from ministack.services import sns

NEEDS = {sns: ("_topics",)}

_KEY_ATTRIBUTE = "KmsMasterKeyId"


def install(handlers: dict) -> None:
    """Wrap create and update; GetTopicAttributes returns the attribute."""
    type_handlers = handlers["AWS::SNS::Topic"]
    create = type_handlers["create"]
    update = type_handlers["update"]

    def store_key(outcome, properties):
        attributes = sns._topics[outcome[0]]["attributes"]
        attributes.pop(_KEY_ATTRIBUTE, None)
        if properties.get(_KEY_ATTRIBUTE):
            attributes[_KEY_ATTRIBUTE] = properties[_KEY_ATTRIBUTE]
        return outcome

    type_handlers.update(
        create=lambda logical_id, properties, stack: store_key(
            create(logical_id, properties, stack), properties
        ),
        update=lambda physical_id, old, new, stack, logical_id=None: store_key(
            update(physical_id, old, new, stack, logical_id), new
        ),
    )
