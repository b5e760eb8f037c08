# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Two types whose describe answer plain MiniStack gets wrong.

A Lambda's network and dead-letter queue, and a role's permissions boundary.
"""

from __future__ import annotations

from ministack.services import iam, lambda_svc

from .handlers import wrap_changes


def install(handlers: dict) -> None:
    """Wrap the handlers of functions and roles."""
    wrap_changes(handlers["AWS::Lambda::Function"], after=_store_function_fields)
    wrap_changes(handlers["AWS::IAM::Role"], after=_store_boundary)


def _store_function_fields(name, _old, new, _attributes):
    config = lambda_svc._functions[name]["config"]
    config["VpcConfig"] = lambda_svc._vpc_config_with_id(new.get("VpcConfig"))
    config.pop("DeadLetterConfig", None)
    if new.get("DeadLetterConfig"):
        config["DeadLetterConfig"] = new["DeadLetterConfig"]


def _store_boundary(name, _old, new, _attributes):
    iam._roles[name]["PermissionsBoundary"] = new.get("PermissionsBoundary")
