"""Lists of AWS as rows, whatever a service calls the token of its next page.

Invariant: a list ends. A service, or what answers in its place, may send the same token for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from botocore import xform_name
from botocore.loaders import create_loader

from tandem.errors import ExternalError
from tandem.guard.pager import PagingError, iterate_pages
from tandem.ops.faults import call_operation

MAX_PAGES = 10_000  # of a bucket's versions, a thousand a page
_TOKENS = "next_tokens"  # S3 has two, so they travel as one text


def iterate_rows(client: Any, operation: str, key: str, where: str, **parameters: Any) -> Iterator[Any]:
    """Yield what stands under `key` of every page of a list.

    Args:
        client: of boto3.
        operation: as the API reference spells it.
        key: of the rows in an answer.
        where: what it is about, for the message.
        parameters: of the call.

    Raises:
        ExternalError: a page failed, or the list does not end; a service's own refusal is in `__cause__`.
    """
    if not client.can_paginate(xform_name(operation)):
        yield from call_operation(client, operation, where, **parameters).get(key) or []
        return
    config = _read_paginators(client.meta.service_model.service_name)[operation]

    def read_page(*, next_tokens: str = "{}", **request: Any) -> Mapping[str, Any]:
        answer = call_operation(client, operation, where, **request, **json.loads(next_tokens))
        return {"rows": answer.get(key) or [], _TOKENS: _collect_tokens(config, answer)}

    try:
        for page in iterate_pages(read_page, token_name=_TOKENS, max_pages=MAX_PAGES, **parameters):
            yield from page["rows"]
    except PagingError as error:
        raise ExternalError(f"{operation}: {error}", where=where,
                       change="see what answers in the place of AWS (a proxy), then try again") from error  # fmt: skip


def _collect_tokens(config: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Return the parameters of the next page as JSON; empty on the last page."""
    if "more_results" in config and not answer.get(config["more_results"]):
        return ""
    pairs = zip(_list_names(config["input_token"]), _list_names(config["output_token"]), strict=True)
    tokens = {request_name: answer[response_name] for request_name, response_name in pairs if answer.get(response_name)}
    return json.dumps(tokens) if tokens else ""


def _list_names(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@lru_cache
def _read_paginators(service: str) -> dict[str, dict[str, Any]]:
    """Return how botocore pages a service's lists: the names of tokens, by operation."""
    pagination: dict[str, dict[str, Any]] = create_loader().load_service_model(service, "paginators-1")["pagination"]
    return pagination
