"""Whether a server speaks the other scheme than its URL says: https for http, or the reverse.

Invariant: a server is said to speak a scheme only if it did so just now; nothing is sent but a
handshake, or a request for the root that no server counts.

The two ends show little by themselves: a TLS server answers a plain request with an alert, with a
page of 400, or closes; a plain server may leave a handshake without an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from urllib.parse import SplitResult, urlsplit

from tandem.bench.plan.server_access import DEFAULT_PORTS

TIMEOUT_S = 5.0
# what OpenSSL says of bytes that are no TLS
_NO_TLS_REASONS = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"})
_ANSWER_BYTES = 4096
_STATUS_BYTES = 16  # of "HTTP/1.1 400 Bad"


async def find_other_scheme(url: str) -> str | None:
    """Return the URL with the other scheme if the server speaks that one; None if it does not.

    Args:
        url: of a server with which a connection or a request failed.
    """
    parts = urlsplit(url)
    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
        async with asyncio.timeout(TIMEOUT_S):
            speaks_other = _speaks_tls if parts.scheme == "http" else _speaks_http
            if await speaks_other(parts):
                other_scheme = "https" if parts.scheme == "http" else "http"
                return parts._replace(scheme=other_scheme, netloc=_write_port(parts)).geturl()
    return None


async def _speaks_tls(parts: SplitResult) -> bool:
    """Return whether a server answers a handshake, whatever its certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(parts.hostname, _read_port(parts), ssl=context)
    except ssl.SSLError as error:
        return error.reason not in _NO_TLS_REASONS
    writer.close()
    return True


async def _speaks_http(parts: SplitResult) -> bool:
    """Return whether a server answers a request without TLS, and not that it wants TLS."""
    reader, writer = await asyncio.open_connection(parts.hostname, _read_port(parts))
    request = f"GET / HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
    writer.write(request.encode())
    await writer.drain()
    answer = await reader.read(_ANSWER_BYTES)
    if b" 400 " in answer[:_STATUS_BYTES]:
        answer += await reader.read(_ANSWER_BYTES)
    writer.close()
    # nginx, Apache and Go say HTTPS where they want TLS
    return answer.startswith(b"HTTP/") and b"HTTPS" not in answer


def _read_port(parts: SplitResult) -> int:
    return parts.port or DEFAULT_PORTS[parts.scheme]


def _write_port(parts: SplitResult) -> str:
    """Return host and port, written out: the other scheme has another default."""
    return parts.netloc if parts.port else f"{parts.netloc}:{_read_port(parts)}"
