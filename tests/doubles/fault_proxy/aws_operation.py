"""Which AWS operation a request is, told by botocore's own service models and never by a list of
ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import parse_qsl

from botocore.exceptions import UnknownServiceError
from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel

_SCOPE = re.compile(r"(?:Credential=)?[^/,\s]+/\d{8}/[^/]+/([^/]+)/aws4_request")
_LABEL = re.compile(r"\{[^}+]+\}")
_GREEDY = re.compile(r"\{[^}]+\+\}")
_SMITHY = re.compile(r"/service/[^/]+/operation/(\w+)$")


def find_service(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """The service that a request is signed for, or `s3`, whose objects alone are read without a
    signature.

    Args:
        headers: by lower-case name.
        query: a presigned address carries its scope there.

    Returns:
        The signing name: `s3`, `eks`, `monitoring` for CloudWatch.
    """
    scope = _SCOPE.search(headers.get("authorization", "") or query.get("X-Amz-Credential", ""))
    return scope[1] if scope else "s3"


def find_operation(
    service: str, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> str:
    """The operation's name as the API reference spells it, or "" where the models know none.

    Args:
        service: what `find_service` says.
        method: of HTTP.
        path: decoded, without the query.
        query: decoded; with the fields of the body where that is a form, as in the query protocol.
        headers: by lower-case name.
    """
    if target := headers.get("x-amz-target"):
        return target.rpartition(".")[2]
    if action := query.get("Action"):
        return action
    if smithy := _SMITHY.search(path):
        return smithy[1]
    if not service:
        return ""
    candidates = [
        operation
        for operation in _list_operations(service)
        if operation.is_match(method, path, query, headers)
    ]
    return (
        max(candidates, key=lambda operation: operation.requirement_count).name
        if candidates
        else ""
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _RestOperation:
    """One operation of a REST service: what a request must have to be it."""

    name: str
    method: str
    path: re.Pattern[str]
    fixed_query: Mapping[str, str]
    query_names: frozenset[str]
    header_names: frozenset[str]

    @property
    def requirement_count(self) -> int:
        return len(self.fixed_query) + len(self.query_names) + len(self.header_names)

    def is_match(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> bool:
        return (
            method == self.method
            and self.path.fullmatch(path) is not None
            and all(query.get(name) == value for name, value in self.fixed_query.items())
            and self.query_names <= query.keys()
            and self.header_names <= headers.keys()
        )


@cache
def _list_operations(service: str) -> tuple[_RestOperation, ...]:
    """The operations of a REST service, those that are deprecated last, so that they win no tie."""
    try:
        # its own: S3's clients change paths in theirs
        description = Loader().load_service_model(service, "service-2")
    except UnknownServiceError:
        return ()
    model = ServiceModel(description, service)
    operation_models = [model.operation_model(name) for name in model.operation_names]
    return tuple(
        _build_operation(operation)
        for operation in sorted(
            operation_models, key=lambda operation_model: bool(operation_model.deprecated)
        )
    )


def _build_operation(model: OperationModel) -> _RestOperation:
    path, _, query = model.http["requestUri"].partition("?")
    return _RestOperation(
        name=model.name,
        method=model.http["method"],
        path=re.compile(_path_expression(path).rstrip("/") + "/?"),
        fixed_query=dict(parse_qsl(query, keep_blank_values=True)),
        query_names=frozenset(_list_required_names(model, "querystring")),
        header_names=frozenset(name.lower() for name in _list_required_names(model, "header")),
    )


def _path_expression(path: str) -> str:
    """A path of the model as an expression: a label is one segment, a greedy one all that is
    left."""
    pieces = re.split(r"(\{[^}]+\})", path)
    return "".join(
        (
            r".+"
            if _GREEDY.fullmatch(piece)
            else r"[^/]+"
            if _LABEL.fullmatch(piece)
            else re.escape(piece)
        )
        for piece in pieces
    )


def _list_required_names(model: OperationModel, location: str) -> Iterator[str]:
    shape = model.input_shape
    if shape is None:
        return
    for name in shape.required_members:
        serialization = shape.members[name].serialization
        if serialization.get("location") == location:
            yield serialization.get("name", name)
