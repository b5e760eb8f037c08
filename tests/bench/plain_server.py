"""A small HTTP server on 127.0.0.1 that answers each path with the bytes of a test, in a thread of
its own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

PIECE = b"x" * 65536
OK = "200 OK"
TLS_HANDSHAKE = b"\x16"  # the first byte of a client that expects TLS


@dataclass(frozen=True)
class PlainAnswer:
    """What one path gives: pieces of a body, which the connection's end ends."""

    pieces: Iterable[bytes] = ()
    status: str = OK
    headers: tuple[str, ...] = ()


@dataclass
class PlainServer:
    """What it was asked, and how many bytes of bodies it could send before the client went away."""

    answers: Mapping[str, PlainAnswer]
    tls: ssl.SSLContext | None = None
    paths: list[str] = field(default_factory=list)
    sent_bytes: int = 0
    url: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close."""
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):  # the client went away
            writer.transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if first == TLS_HANDSHAKE:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        self.paths.append(path)
        answer = self.answers.get(path, PlainAnswer(status="404 Not Found"))
        lines = (f"HTTP/1.1 {answer.status}", "Connection: close", *answer.headers)
        writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        for piece in answer.pieces:
            writer.write(piece)
            await writer.drain()
            self.sent_bytes += len(piece)


@contextlib.contextmanager
def plain_server(
    answers: Mapping[str, PlainAnswer], tls: ssl.SSLContext | None = None
) -> Iterator[PlainServer]:
    """Run a server beside the test."""
    server = PlainServer(answers, tls)
    with listen_in_thread(server.answer, tls) as port:
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield server


@contextlib.contextmanager
def listen_in_thread(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> Iterator[int]:
    """Answer connections in a thread of their own; give the port."""
    ready = threading.Event()
    stop = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    ports: list[int] = []

    async def listen() -> None:
        loops.append(asyncio.get_running_loop())
        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as listening:
            ports.append(listening.sockets[0].getsockname()[1])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    try:
        assert ready.wait(10)
        yield ports[0]
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(10)
