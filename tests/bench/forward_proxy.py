"""An HTTP proxy on 127.0.0.1, in a thread of its own: it forwards requests for whole URLs and opens
tunnels. Every host is 127.0.0.1 to it, so a test reaches its own server by a name that nobody else
knows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from plain_server import listen_in_thread

READ_BYTES = 65536


@dataclass
class ForwardProxy:
    """What it read of its clients."""

    url: str = ""
    received: bytearray = field(default_factory=bytearray)

    @property
    def request_lines(self) -> list[str]:
        """First lines of the requests; what went through a tunnel is encrypted."""
        lines = bytes(self.received).split(b"\r\n")
        return [line.decode() for line in lines if line.endswith(b"HTTP/1.1")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request, or one tunnel."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.received += head
        method, target, _ = head.decode().split(" ", 2)
        is_tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}" if is_tunnel else target)
        if not parts.hostname:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", parts.port)
        if is_tunnel:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = parts._replace(scheme="", netloc="").geturl()
            upstream_writer.write(head.replace(target.encode(), path.encode(), 1))
        await asyncio.gather(
            self._copy(reader, upstream_writer), self._copy(upstream_reader, writer, keeps=False)
        )

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, keeps: bool = True
    ) -> None:
        while data := await reader.read(READ_BYTES):
            self.received += data if keeps else b""
            writer.write(data)
            await writer.drain()
        writer.close()


@contextlib.contextmanager
def forward_proxy() -> Iterator[ForwardProxy]:
    """Run a proxy beside the test."""
    proxy = ForwardProxy()
    with listen_in_thread(proxy.serve) as port:
        proxy.url = f"http://127.0.0.1:{port}"
        yield proxy
