"""Connections that know whether a byte came since a request was written, and what a failed TLS connection means.

Invariant: a connection that is not known to have been silent counts as one that has answered. The system's error number
is never shown: OpenSSL's own numbers are no errno, and 1 reads as "Operation not permitted".

aiohttp tells a connection that died before an answer from one that died inside its head only where the end was clean; a
reset hides what came before it. So each connection marks its reads itself.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler

_TRUST = (
    "to trust it, export SSL_CERT_FILE=FILE, where FILE holds the certificate of its authority or, where it is "
    "self-signed, the certificate itself"
)
_NAME = "use a name that the certificate holds, or give the server a certificate for this name"
_CHANGES = {  # X509_V_ERR_... in openssl/x509_vfy.h
    9: "see whether the clocks of this machine and of the server are right",
    10: "renew the server's certificate, and see whether this machine's clock is right",
    18: _TRUST,
    19: _TRUST,
    20: _TRUST,
    21: _TRUST,
    62: _NAME,
    64: _NAME,
}


def describe_tls_error(error: aiohttp.ClientSSLError) -> tuple[str, str]:
    """Return the error's word, `certificate` or `connect`, and what a person should know and change."""
    address, cause = f"{error.host}:{error.port}", error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        problem = f"the certificate of {address} is not accepted: {cause.verify_message.rstrip('.')}"
        change = _CHANGES.get(cause.verify_code)
        return "certificate", f"{problem}; {change}" if change else problem
    reason = (getattr(cause, "reason", None) or str(cause)).replace("_", " ").lower()
    return "connect", f"{address}: no TLS connection: {reason}; where the server has no TLS, use http://"


class MarkedConnection(ResponseHandler):
    """A client's connection that marks that something was read from it."""

    was_read = False

    def data_received(self, data: bytes) -> None:
        """Mark, then take the bytes as aiohttp does."""
        self.was_read = True
        super().data_received(data)


def create_connector(**options: Any) -> aiohttp.TCPConnector:
    """Return a connector whose connections are marked; `options` are those of `aiohttp.TCPConnector`."""
    connector = aiohttp.TCPConnector(ttl_dns_cache=None, **options)
    make: Callable[..., ResponseHandler] = MarkedConnection
    connector._factory = functools.partial(make, loop=asyncio.get_running_loop())  # noqa: SLF001 - aiohttp has no public way to it; a test holds that it is taken
    return connector


def watch_answer(writer: AbstractStreamWriter) -> Callable[[], bool]:
    """Forget what was read on the connection of `writer`; return what tells whether anything was read since."""
    connection = getattr(writer, "protocol", None)
    if not isinstance(connection, MarkedConnection):
        return lambda: True
    connection.was_read = False
    return lambda: connection.was_read
