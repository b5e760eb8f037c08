"""Read every page of a list of AWS, within bounds: a list that never ends must not keep a stop from its work.

Invariant: standard library and boto3 only, because the Lambdas pack this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError

MAX_PAGES = 200
TOKEN_NAME = "NextToken"  # noqa: S105 - the usual name of a page's token


class PagingError(BotoCoreError):  # type: ignore[misc]  # botocore is untyped
    """A list that does not end: a token came twice, or there are too many pages."""

    fmt = "the list does not end: {why}"


def iterate_pages(
    list_page: Callable[..., Mapping[str, Any]],
    *,
    token_name: str = TOKEN_NAME,
    max_pages: int = MAX_PAGES,
    **request: Any,
) -> Iterator[Mapping[str, Any]]:
    """Yield each page that `list_page` returns.

    Args:
        list_page: a list operation of a boto3 client.
        token_name: the name of the next page's token, in the request and in the answer.
        max_pages: pages, at the most.
        request: the operation's other arguments.

    Raises:
        PagingError: a token came twice, or a page follows the last one that is allowed.
        BotoCoreError, ClientError: as `list_page` raises.
    """
    tokens: set[str] = set()
    token_parameters: dict[str, str] = {}
    for _ in range(max_pages):
        page = list_page(**request, **token_parameters)
        yield page
        next_token = page.get(token_name)
        if not next_token:
            return
        if next_token in tokens:
            raise PagingError(why=f"{token_name} came twice")
        tokens.add(next_token)
        token_parameters = {token_name: next_token}
    raise PagingError(why=f"more than {max_pages} pages")
