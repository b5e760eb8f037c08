"""Connections that know whether a byte came on them since a request was written.

Invariant: a connection that is not known to have been silent counts as one that has answered.

aiohttp tells a connection that died before an answer from one that died inside its head only where the end was clean; a
reset hides what came before it. So each connection marks its reads itself.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler


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
