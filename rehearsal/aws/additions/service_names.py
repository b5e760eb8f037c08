# ruff: noqa: SLF001 - MiniStack has no public interface
"""Tells that a name is an AWS service's without reading every model of botocore, which takes seconds of a processor."""

from __future__ import annotations

from functools import cache

from botocore.loaders import Loader
from ministack.core import router

NEEDS = {router: ("_is_aws_service_name",)}


@cache
def _list_services() -> frozenset[str]:
    """Return the names of the models as most services sign with them: service-quotas signs as servicequotas."""
    return frozenset(name.replace("-", "") for name in Loader().list_available_services("service-2"))


def install(_handlers: dict) -> None:
    """Look among the names of the models first; MiniStack reads all models for a name that is only in one of them."""
    is_known = router._is_aws_service_name

    def is_service_name(scope: str) -> bool:
        return scope.replace("-", "") in _list_services() or is_known(scope)

    router._is_aws_service_name = is_service_name
