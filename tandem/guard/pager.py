"""Read every page of a list of AWS, within bounds: a list that never ends must not keep a stop from its work.

Invariant: standard library and boto3 only, because the Lambdas pack this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError

MOST_PAGES = 200
TOKEN = "NextToken"  # noqa: S105 - the usual name of a page's token


class PagingError(BotoCoreError):  # type: ignore[misc]  # botocore is untyped
    """A list that does not end: a token came twice, or there are too many pages."""

    fmt = "the list does not end: {why}"


def iterate_pages(
    ask: Callable[..., Mapping[str, Any]], *, token: str = TOKEN, most: int = MOST_PAGES, **request: Any
) -> Iterator[Mapping[str, Any]]:
    """Yield each page that `ask` returns.

    Args:
        ask: a list operation of a boto3 client.
        token: the name of the next page's token, in the request and in the answer.
        most: pages, at the most.
        request: the operation's other arguments.

    Raises:
        PagingError: a token came twice, or a page follows the last one that is allowed.
        BotoCoreError, ClientError: as `ask` raises.
    """
    tokens: set[str] = set()
    more: dict[str, str] = {}
    for _ in range(most):
        page = ask(**request, **more)
        yield page
        following = page.get(token)
        if not following:
            return
        if following in tokens:
            raise PagingError(why=f"{token} came twice")
        tokens.add(following)
        more = {token: following}
    raise PagingError(why=f"more than {most} pages")
