# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""A topic's key, which plain MiniStack drops."""

from __future__ import annotations

from ministack.services import sns

from .handlers import wrap_changes

_KEY_ATTRIBUTE = "KmsMasterKeyId"


def install(handlers: dict) -> None:
    """Wrap create and update; GetTopicAttributes returns the attribute."""
    wrap_changes(handlers["AWS::SNS::Topic"], after=_store_key)


def _store_key(physical_id, _old, new, _attributes):
    attributes = sns._topics[physical_id]["attributes"]
    attributes.pop(_KEY_ATTRIBUTE, None)
    if new.get(_KEY_ATTRIBUTE):
        attributes[_KEY_ATTRIBUTE] = new[_KEY_ATTRIBUTE]
