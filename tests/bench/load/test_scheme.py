"""Which scheme a server speaks, of servers that show it in different ways."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tandem.bench.load.scheme import find_other_scheme

WANTS_TLS = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
ALERT = b"\x15\x03\x01\x00\x02\x02\x28"
"""What a TLS server sends that refuses the client's handshake."""


def ask(scheme, *pieces):
    """Return the other scheme that a server speaks which sends these pieces."""

    async def answer(_, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.close()

    async def find():
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            host = f"://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            other_url = await find_other_scheme(scheme + host)
            return other_url and other_url.removesuffix(host)

    return uvloop.run(find())


@pytest.mark.parametrize(
    ("pieces", "scheme"),
    [
        ([b"HTTP/1.1 404 Not Found\r\n\r\n"], "http"),
        # as nginx does, whose page may come after its head
        ([WANTS_TLS, b"The plain HTTP request was sent to HTTPS port"], None),
        ([WANTS_TLS, b"bad request"], "http"),
        ([b"SSH-2.0-OpenSSH_9.7\r\n"], None),
        ([], None),
    ],
)
def test_a_server_speaks_http_only_if_it_answers_so(pieces, scheme):
    assert ask("https", *pieces) == scheme


@pytest.mark.parametrize(("piece", "scheme"), [(WANTS_TLS, None), (ALERT, "https")])
def test_a_server_speaks_https_only_if_it_answers_in_tls(piece, scheme):
    assert ask("http", piece) == scheme
