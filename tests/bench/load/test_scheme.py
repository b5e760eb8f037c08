"""Which scheme a server speaks, of servers that show it in different ways."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tandem.bench.load.scheme import find_other_scheme

WANTS_TLS = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "speaks_http"),
    [
        ((b"HTTP/1.1 404 Not Found\r\n\r\n",), True),
        # as nginx does, whose page may come after its head
        ((WANTS_TLS, b"The plain HTTP request was sent to HTTPS port"), False),
        ((WANTS_TLS, b"bad request"), True),
        ((b"SSH-2.0-OpenSSH_9.7\r\n",), False),
        ((), False),
    ],
)
def test_a_server_speaks_http_only_if_it_answers_so(pieces, speaks_http):
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.close()

    async def ask() -> tuple[str | None, int]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await find_other_scheme(f"https://127.0.0.1:{port}/v1"), port

    other_url, port = uvloop.run(ask())

    assert other_url == (f"http://127.0.0.1:{port}/v1" if speaks_http else None)
