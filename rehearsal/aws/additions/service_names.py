# ruff: noqa: SLF001 - MiniStack has no public interface
"""Tells an AWS service's name without reading every botocore model, which takes CPU seconds."""

from __future__ import annotations

from functools import cache

from botocore.loaders import Loader
from ministack.core import router


@cache
def _list_services() -> frozenset[str]:
    """Return the models' names as most services sign: service-quotas as servicequotas."""
    return frozenset(
        name.replace("-", "") for name in Loader().list_available_services("service-2")
    )


def install(_handlers: dict) -> None:
    """Look among the models' names first; for a name within one, MiniStack reads all models."""
    is_known = router._is_aws_service_name

    def is_service_name(scope: str) -> bool:
        return scope.replace("-", "") in _list_services() or is_known(scope)

    router._is_aws_service_name = is_service_name
