# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""A role's permissions boundary, which plain MiniStack drops."""

from __future__ import annotations

from ministack.services import iam

from .handlers import wrap_changes


def install(handlers: dict) -> None:
    """Wrap create and update; GetRole returns the boundary."""
    wrap_changes(handlers["AWS::IAM::Role"], after=_store_boundary)


def _store_boundary(name, _old, new, _attributes):
    iam._roles[name]["PermissionsBoundary"] = new.get("PermissionsBoundary")
