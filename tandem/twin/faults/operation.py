"""Which AWS operation a request is, told by botocore's own service models and never by a list of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import parse_qsl

from botocore.exceptions import UnknownServiceError
from botocore.model import OperationModel
from botocore.session import get_session

_SCOPE = re.compile(r"(?:Credential=)?[^/,\s]+/\d{8}/[^/]+/([^/]+)/aws4_request")
_LABEL = re.compile(r"\{[^}+]+\}")
_GREEDY = re.compile(r"\{[^}]+\+\}")
_SMITHY = re.compile(r"/service/[^/]+/operation/(\w+)$")


def service_of(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """The service that a request is signed for, or `s3`, whose objects alone are read without a signature.

    Args:
        headers: by lower-case name.
        query: a presigned address carries its scope there.

    Returns:
        The signing name: `s3`, `eks`, `monitoring` for CloudWatch.
    """
    scope = _SCOPE.search(headers.get("authorization", "") or query.get("X-Amz-Credential", ""))
    return scope[1] if scope else "s3"


def operation_of(service: str, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """The operation's name as the API reference spells it, or "" where the models know none.

    Args:
        service: what `service_of` says.
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
    fitting = [known for known in _operations(service) if known.fits(method, path, query, headers)]
    return max(fitting, key=lambda known: known.demands).name if fitting else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Operation:
    """One operation of a REST service: what a request must have to be it."""

    name: str
    method: str
    path: re.Pattern[str]
    fixed: Mapping[str, str]
    query: frozenset[str]
    headers: frozenset[str]

    @property
    def demands(self) -> int:
        return len(self.fixed) + len(self.query) + len(self.headers)

    def fits(self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> bool:
        return (
            method == self.method
            and self.path.fullmatch(path) is not None
            and all(query.get(name) == value for name, value in self.fixed.items())
            and self.query <= query.keys()
            and self.headers <= headers.keys()
        )


@cache
def _operations(service: str) -> tuple[_Operation, ...]:
    """The operations of a REST service, those that are deprecated last, so that they win no tie."""
    try:
        model = get_session().get_service_model(service)
    except UnknownServiceError:
        return ()
    known = [model.operation_model(name) for name in model.operation_names]
    return tuple(_operation(operation) for operation in sorted(known, key=lambda one: bool(one.deprecated)))


def _operation(model: OperationModel) -> _Operation:
    path, _, query = model.http["requestUri"].partition("?")
    return _Operation(
        name=model.name,
        method=model.http["method"],
        path=re.compile(_expression(path).rstrip("/") + "/?"),
        fixed=dict(parse_qsl(query, keep_blank_values=True)),
        query=frozenset(_required(model, "querystring")),
        headers=frozenset(name.lower() for name in _required(model, "header")),
    )


def _expression(path: str) -> str:
    """A path of the model as an expression: a label is one segment, a greedy one all that is left."""
    pieces = re.split(r"(\{[^}]+\})", path)
    return "".join(
        r".+" if _GREEDY.fullmatch(piece) else r"[^/]+" if _LABEL.fullmatch(piece) else re.escape(piece)
        for piece in pieces
    )


def _required(model: OperationModel, location: str) -> Iterator[str]:
    shape = model.input_shape
    if shape is None:
        return
    for name in shape.required_members:
        said = shape.members[name].serialization
        if said.get("location") == location:
            yield said.get("name", name)
