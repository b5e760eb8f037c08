# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""A topic's key, which plain MiniStack drops."""

from __future__ import annotations

from ministack.services import sns

NEEDS = {sns: ("_topics",)}

_KEY = "KmsMasterKeyId"


def install(handlers: dict) -> None:
    """Wrap create and update; the attribute is what GetTopicAttributes returns."""
    own = handlers["AWS::SNS::Topic"]
    create, update = own["create"], own["update"]

    def keyed(outcome, properties):
        attributes = sns._topics[outcome[0]]["attributes"]
        attributes.pop(_KEY, None)
        if properties.get(_KEY):
            attributes[_KEY] = properties[_KEY]
        return outcome

    own.update(
        create=lambda logical_id, properties, stack: keyed(create(logical_id, properties, stack), properties),
        update=lambda physical_id, old, new, stack, logical_id=None: keyed(
            update(physical_id, old, new, stack, logical_id), new
        ),
    )
