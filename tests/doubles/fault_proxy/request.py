"""What the proxy logs of a request."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ProxyMoment = Literal["asked", "done"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyRequest:
    """One request in the log.

    Args:
        number: in the order of arrival, from 1.
        ended_s: seconds since the proxy was made, when the last of the answer left or the
            connection ended; None while it is under way.
        service: signing name.
        operation: as the API reference spells it; "" where botocore knows none.
        method: of HTTP.
        path: decoded, without the query; of S3 `/bucket/key`.
        query: decoded.
        headers: by lower-case name; credentials are "...".
        answer_bytes: of the body, as far as it was sent.
        status: what the endpoint said, or the fault in its place; None where neither did.
    """

    number: int
    ended_s: float | None = None
    service: str
    operation: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    answer_bytes: int = 0
    status: int | None = None

    @property
    def done(self) -> bool:
        """Whether the endpoint did it, even where the answer was lost."""
        return self.status is not None and self.status < http.client.BAD_REQUEST
