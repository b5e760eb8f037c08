"""A small HTTP server on 127.0.0.1 that answers each path with the bytes of a test, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
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
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            first = await reader.readexactly(1)
            if first == TLS_HANDSHAKE:
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                writer.close()
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
        writer.close()


@contextlib.contextmanager
def plain_server(answers: Mapping[str, PlainAnswer], tls: ssl.SSLContext | None = None) -> Iterator[PlainServer]:
    """Run a server beside the test."""
    server, ready = PlainServer(answers, tls), threading.Event()
    loop = asyncio.new_event_loop()

    async def listen() -> None:
        listening = await asyncio.start_server(server.answer, "127.0.0.1", 0, ssl=tls)
        port = listening.sockets[0].getsockname()[1]
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        ready.set()
        with contextlib.suppress(asyncio.CancelledError):
            await listening.serve_forever()

    task = loop.create_task(listen())
    thread = threading.Thread(target=lambda: loop.run_until_complete(task))
    thread.start()
    try:
        ready.wait(10)
        yield server
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(10)
