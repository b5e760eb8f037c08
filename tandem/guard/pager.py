"""Pages of an AWS list, within bounds: an endless list must not stop a stop.

Invariant: standard library and boto3 only, because the Lambdas pack this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import PaginationError

MAX_PAGES = 200


def iterate_pages(
    client: Any, operation: str, *, max_pages: int = MAX_PAGES, **request: Any
) -> Iterator[Mapping[str, Any]]:
    """Yield each page of a list.

    Args:
        client: of boto3.
        operation: its method, which pages.
        max_pages: the most pages.
        request: the operation's arguments.

    Raises:
        PaginationError: the same token came twice in a row, or there are more than `max_pages`
            pages.
        BotoCoreError, ClientError: AWS does not answer, or refuses.
    """
    for number, page in enumerate(client.get_paginator(operation).paginate(**request)):
        if number >= max_pages:
            raise PaginationError(message=f"more than {max_pages} pages")
        yield page
