"""A second streaming server, of its own making: asyncio streams and the standard library, nothing
of ours, no aiohttp.

What it sends and when is a schedule, given for all requests on the command line and for one request
in its prompt, as a line `#schedule {...}`. It logs the monotonic time of every write and
of the moment the request had been read: a truth that shares no code with the twin or with what
measures.

    python tests/bench/independent_server.py --port 8123 --log truth.jsonl --ttft-ms 200 --step-ms
    45 --bursts 1,8

A schedule's fields, each with its default in Schedule: ttft_ms from the request's last byte to the
first burst; step_ms between bursts, by absolute deadlines; bursts, tokens of each burst, taken
again from the start when they run out; first_burst where the first differs; tokens in all
(max_tokens of the request where smaller); speed, by which both times are divided; spread, by which
those of each request differ; fault (a key of BEFORE or DURING, or one of AT_THE_END or ON_REUSE)
and fault_at, the burst before which it happens; raw, pieces of hexadecimal bytes written as the
whole body with pause_ms between them.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Self, TextIO

MODEL = "independent"
SENTENCE = (
    "the quick brown fox jumps over the lazy dog while seven grey ships sail past a quiet harbour"
)
WORDS = SENTENCE.split()
OK = 200
AT_THE_END = ("no_usage", "wrong_model", "hang_after_done", "close_after_stream")
# what ends a connection that has carried a request, though it was said to be kept
ON_REUSE = ("close_on_reuse", "reset_on_reuse")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What one request gets."""

    ttft_ms: float = 20.0
    step_ms: float = 5.0
    bursts: str = "1"
    first_burst: int | None = None
    tokens: int = 16
    fault: str | None = None
    fault_at: int = 2
    status: int = 503
    retry_after: str | None = None
    raw: tuple[str, ...] = ()
    pause_ms: float = 1.0
    content_type: str = "text/event-stream"
    simulated: str | None = None  # value of x-tandem-simulated on every answer
    speed: float = 1.0  # how many times as fast as ttft_ms and step_ms say
    # sd of the logarithm of each request's own factor on ttft_ms, and of that on step_ms
    spread: float = 0.0

    def __post_init__(self) -> None:
        if self.fault is not None and self.fault not in {*BEFORE, *DURING, *AT_THE_END, *ON_REUSE}:
            raise ValueError(f"no such fault: {self.fault}")

    def sizes(self, most: int | None) -> list[int]:
        """Tokens of each burst."""
        left = self.tokens if most is None else min(self.tokens, most)
        given_sizes = itertools.cycle(int(part) for part in self.bursts.split(","))
        sizes: list[int] = []
        while left > 0:
            size = self.first_burst if not sizes and self.first_burst else next(given_sizes)
            sizes.append(min(left, size))
            left -= sizes[-1]
        return sizes

    def draw_times(self, generator: random.Random) -> Schedule:
        """Return the same schedule with the times of one request."""
        ttft, step = (math.exp(generator.gauss(0, self.spread)) / self.speed for _ in range(2))
        return dataclasses.replace(self, ttft_ms=self.ttft_ms * ttft, step_ms=self.step_ms * step)


@dataclasses.dataclass
class Connection:
    """One connection and the request that is being answered on it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    header: str = ""  # of every answer
    number: int = 0
    chunked: bool = False
    truth: dict[str, Any] = dataclasses.field(default_factory=dict)

    async def write(self, data: bytes, tokens: int | None = None) -> None:
        """Write `data`, in a chunk where the answer is chunked; log the time just before."""
        body = b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data
        self.truth["writes"].append([time.monotonic(), len(data), tokens])
        self.writer.write(body)
        await self.writer.drain()

    async def begin(self, content_type: str, *, status: str = "200 OK", extra: str = "") -> None:
        """Write the head of a chunked answer."""
        chunked = "Transfer-Encoding: chunked\r\n"
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type:"
            f" {content_type}\r\n{chunked}{self.header}{extra}\r\n"
        )
        self.writer.write(head.encode())
        await self.writer.drain()
        self.chunked = True

    async def end(self) -> None:
        """Write the end of a chunked answer."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()
        self.chunked = False

    async def whole(self, status: str, content_type: str, body: bytes, extra: str = "") -> None:
        """Write an answer of known length."""
        length = f"Content-Length: {len(body)}\r\n"
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{length}{self.header}{extra}\r\n"
        )
        self.truth.setdefault("writes", []).append([time.monotonic(), len(body), None])
        self.writer.write(head.encode() + body)
        await self.writer.drain()


@dataclasses.dataclass(frozen=True)
class Request:
    """One request as it was read."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def chat(self) -> bool:
        """Whether it asks for the chat API."""
        return self.path.endswith("/chat/completions")

    @property
    def max_tokens(self) -> int | None:
        """Most tokens of the answer, by either name."""
        return self.body.get("max_tokens", self.body.get("max_completion_tokens"))

    def schedule(self, default: Schedule) -> Schedule:
        """The default's, changed by what the prompt says."""
        messages = self.body.get("messages")
        prompt = messages[-1]["content"] if messages else self.body.get("prompt", "")
        for line in str(prompt).splitlines():
            if line.startswith("#schedule "):
                fields = json.loads(line.removeprefix("#schedule "))
                fields["raw"] = tuple(fields.get("raw", ()))
                return dataclasses.replace(default, **fields)
        return default

    def option(self, name: str) -> bool:
        """Whether a stream option is on."""
        return bool((self.body.get("stream_options") or {}).get(name))


class Frames:
    """The events of one answer, in a real vLLM's form: role, one event a burst, finish, usage,
    [DONE]."""

    def __init__(self, request: Request, schedule: Schedule) -> None:
        self.request = request
        self.schedule = schedule
        self.running = 0
        prompt = json.dumps(request.body.get("messages") or request.body.get("prompt"))
        self.prompt_tokens = max(1, len(prompt.split()))
        self.model = (
            "another" if schedule.fault == "wrong_model" else request.body.get("model", MODEL)
        )

    def role(self) -> bytes | None:
        """The event before any token; the completions API has none."""
        return self._choice({"role": "assistant", "content": ""}, 0) if self.request.chat else None

    def burst(self, size: int) -> bytes:
        """The event of one engine step."""
        text = "".join(f" {WORDS[(self.running + i) % len(WORDS)]}" for i in range(size))
        return self._choice({"content": text}, size)

    def finish(self, reason: str) -> bytes:
        """The event that says why it ended."""
        return self._choice({"content": ""}, 0, reason)

    def usage(self) -> bytes:
        """The event without a choice."""
        return self._frame({"choices": [], **self._usage()})

    def _usage(self) -> dict[str, Any]:
        prompt = self.prompt_tokens
        running = self.running
        return {
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": running,
                "total_tokens": prompt + running,
            }
        }

    def _choice(self, delta: dict[str, str], size: int, finish: str | None = None) -> bytes:
        choice: dict[str, Any] = (
            {"index": 0, "delta": delta}
            if self.request.chat
            else {"index": 0, "text": delta.get("content", "")}
        )
        choice |= {"logprobs": self._logprobs(size), "finish_reason": finish}
        if self.request.body.get("return_token_ids") and "role" not in delta:
            choice["token_ids"] = list(range(self.running, self.running + size))
        self.running += size
        frame: dict[str, Any] = {"choices": [choice]}
        if self.request.option("continuous_usage_stats") and self.schedule.fault != "no_usage":
            frame |= self._usage()
        return self._frame(frame)

    def _logprobs(self, size: int) -> dict[str, Any] | None:
        if not size or self.request.body.get("logprobs") in {None, False}:
            return None
        if self.request.chat:
            return {
                "content": (
                    [{"token": "x", "logprob": -0.25, "bytes": [120], "top_logprobs": []}] * size
                )
            }
        return {
            "tokens": ["x"] * size,
            "token_logprobs": [-0.25] * size,
            "top_logprobs": [{}] * size,
        }

    def _frame(self, fields: dict[str, Any]) -> bytes:
        kind = "chat.completion.chunk" if self.request.chat else "text_completion"
        head = {"id": "cmpl-1", "object": kind, "created": 1, "model": self.model}
        return b"data: %s\n\n" % json.dumps(head | fields, separators=(",", ":")).encode()


class Server:
    """The server: `async with Server(schedule) as server`, then `server.port`; truths are in
    `server.truths`."""

    def __init__(
        self, default: Schedule, *, port: int = 0, log: TextIO | None = None, seed: int = 0
    ) -> None:
        self.default = default
        self.port = port
        self.log = log
        self.generator = random.Random(seed)  # noqa: S311 - of the requests' own times, in the order they came
        self.truths: list[dict[str, Any]] = []
        self.accepted = 0
        # answered with an error, as by a server that does not know them
        self.refused_fields: tuple[str, ...] = ()
        self.refusal_status = 400
        self.ignored_fields: tuple[str, ...] = ()
        self.least_tokens = 0  # a smaller max_tokens is refused
        self.lethal_field: str | None = None  # its engine dies of a request that has it
        self.is_dead = False
        self.models: list[dict[str, str]] = [{"id": MODEL, "root": "/models/independent"}]
        self.models_page: Any = None  # in place of OpenAI's list of the models
        self.api_root = "/v1"
        self.health: int = 200
        self.name: str | None = None  # value of Server on every answer
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=1 << 22
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def posted(self) -> list[dict[str, Any]]:
        """The truths of requests that asked for tokens."""
        return [truth for truth in self.truths if truth["method"] == "POST"]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        simulated_value = self.default.simulated
        header = "" if self.name is None else f"Server: {self.name}\r\n"
        header += "" if simulated_value is None else f"X-Tandem-Simulated: {simulated_value}\r\n"
        connection = Connection(reader, writer, header)
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (request := await self._read(connection)) is not None:
                if not await self._answer(connection, request):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the server ends
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _read(self, connection: Connection) -> Request | None:
        try:
            head = await connection.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await connection.reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = first.split(" ", 2)
        connection.truth = {
            "request_id": headers.get("x-request-id", f"unnamed-{len(self.truths)}"),
            "method": method,
            "path": path,
            "on_connection": connection.number,
            "accepted_s": time.monotonic(),
            "writes": [],
            "bursts": [],
            "headers": headers,
            "body": json.loads(body) if body else {},
        }
        connection.number += 1
        self.truths.append(connection.truth)
        return Request(method, path, headers, dict(connection.truth["body"]))

    async def _answer(self, connection: Connection, request: Request) -> bool:
        """Answer one request; return whether the connection goes on."""
        try:
            if request.method == "GET":
                await self._answer_get(connection, request)
                return True
            for name in self.ignored_fields:
                request.body.pop(name, None)
            fields = request.body.keys() | (request.body.get("stream_options") or {}).keys()
            if refusal := self._find_refusal(request, fields):
                await self._refuse(connection, *refusal)
                return True
            if self.lethal_field in fields:
                self.is_dead = True
                return False
            return await self._stream(connection, request, request.schedule(self.default))
        finally:
            if self.log is not None:
                fields_ = {
                    key: value
                    for key, value in connection.truth.items()
                    if key not in {"headers", "body"}
                }
                self.log.write(json.dumps(fields_) + "\n")
                self.log.flush()

    def _find_refusal(self, request: Request, fields: Collection[str]) -> tuple[str, int] | None:
        """The message and the status of a refusal."""
        if not request.path.startswith(f"{self.api_root}/"):
            return "Not Found", 404
        for name in self.refused_fields:
            if name in fields:
                return f"unknown field {name}", self.refusal_status
        if request.body.get("max_tokens", self.least_tokens) < self.least_tokens:
            return f"max_tokens < {self.least_tokens}", 400
        return ("EngineCore encountered an issue", 500) if self.is_dead else None

    async def _refuse(self, connection: Connection, message: str, status: int) -> None:
        error = {"message": message, "type": "BadRequestError", "code": status}
        body = json.dumps({"error": error}).encode()
        await connection.whole(f"{status} Refused", "application/json", body)

    async def _answer_get(self, connection: Connection, request: Request) -> None:
        pages = {
            f"{self.api_root}/models": self.models_page or {"object": "list", "data": self.models},
            "/version": {"version": "0.0.1"},
            "/health": {},
        }
        page = pages.get(request.path)
        if page is None or self.health != OK:
            await connection.whole(
                f"{404 if page is None else self.health} No", "application/json", b"{}"
            )
        else:
            await connection.whole("200 OK", "application/json", json.dumps(page).encode())

    async def _stream(self, connection: Connection, request: Request, schedule: Schedule) -> bool:
        connection.truth["fault"] = schedule.fault
        if schedule.fault in ON_REUSE and connection.number > 1:
            await asyncio.sleep(schedule.pause_ms / 1000)
            if schedule.fault == "reset_on_reuse":
                connection.writer.transport.abort()
            return False
        before = BEFORE.get(schedule.fault or "")
        if before is not None:
            return await before(connection, schedule)
        if schedule.raw:
            return await _raw(connection, schedule)
        schedule = schedule.draw_times(self.generator)
        start = connection.truth["accepted_s"]
        frames = Frames(request, schedule)
        await connection.begin(schedule.content_type)
        role = frames.role()
        sizes = schedule.sizes(request.max_tokens)
        await _until(start + schedule.ttft_ms / 1000)
        if role is not None:
            await connection.write(role, 0)
        for number, size in enumerate(sizes):
            await _until(start + (schedule.ttft_ms + number * schedule.step_ms) / 1000)
            if number == schedule.fault_at and schedule.fault in DURING:
                return await DURING[schedule.fault](connection, frames)
            connection.truth["bursts"].append([time.monotonic(), size])
            await connection.write(frames.burst(size), size)
        return await _end(connection, request, schedule, frames)


async def _until(due_s: float) -> None:
    while (left_s := due_s - time.monotonic()) > 0:  # noqa: ASYNC110 # a loop's timers may end up to 1 ms early
        await asyncio.sleep(left_s)


async def _raw(connection: Connection, schedule: Schedule) -> bool:
    await connection.begin(schedule.content_type)
    for piece in schedule.raw:
        await connection.write(bytes.fromhex(piece))
        await asyncio.sleep(schedule.pause_ms / 1000)
    await connection.end()
    return True


async def _end(
    connection: Connection, request: Request, schedule: Schedule, frames: Frames
) -> bool:
    full = frames.running >= (request.max_tokens or schedule.tokens)
    last = [frames.finish("length" if full else "stop")]
    if request.option("include_usage") and schedule.fault != "no_usage":
        last.append(frames.usage())
    for frame in (*last, b"data: [DONE]\n\n"):
        await connection.write(frame)
    if schedule.fault == "hang_after_done":
        await asyncio.sleep(60)
    await connection.end()
    return schedule.fault != "close_after_stream"


# What happens instead of a stream; each returns whether the connection goes on.
Before = Callable[[Connection, Schedule], Awaitable[bool]]
During = Callable[[Connection, Frames], Awaitable[bool]]


async def _status(connection: Connection, schedule: Schedule) -> bool:
    text = {
        "error": {
            "message": "no more room in the queue",
            "type": "Overloaded",
            "code": schedule.status,
        }
    }
    extra = f"Retry-After: {schedule.retry_after}\r\n" if schedule.retry_after else ""
    await connection.whole(
        f"{schedule.status} No", "application/json", json.dumps(text).encode(), extra
    )
    return True


def _whole(content_type: str, body: bytes, status: str = "200 OK", extra: str = "") -> Before:
    async def send(connection: Connection, _: Schedule) -> bool:
        await connection.whole(status, content_type, body, extra)
        return True

    return send


async def _not_http(connection: Connection, _: Schedule) -> bool:
    connection.writer.write(b"SSH-2.0-OpenSSH_9.7\r\n\r\n")
    await connection.writer.drain()
    return False


async def _flood(connection: Connection, _: Schedule) -> bool:
    await connection.begin("text/event-stream")
    while True:
        await connection.write(b": " + b"x" * 65534)


# What happens in the middle of a stream.


async def _stall(_connection: Connection, _: Frames | Schedule) -> bool:
    await asyncio.sleep(60)
    return False


async def _comments(connection: Connection, _: Frames) -> bool:
    while True:
        await connection.write(b": still here\n\n")
        await asyncio.sleep(0.02)


async def _drop(_connection: Connection, _: Frames | Schedule) -> bool:
    return False


async def _reset(connection: Connection, _: Frames) -> bool:
    connection.writer.transport.abort()
    return False


async def _error(connection: Connection, _: Frames) -> bool:
    await connection.write(
        b'data: {"error": {"message": "engine died", "type": "InternalServerError", "code":'
        b" 500}}\n\n"
    )
    await connection.write(b"data: [DONE]\n\n")
    await connection.end()
    return False


async def _endless(connection: Connection, frames: Frames) -> bool:
    while True:
        await connection.write(frames.burst(1), 1)
        await asyncio.sleep(0.0005)


HTML = b"<!DOCTYPE html>\n<html><title>Sign in</title><body>Please sign in.</body></html>\n"
BEFORE: dict[str, Before] = {
    "status": _status,
    "html": _whole("text/html; charset=utf-8", HTML),
    "empty": _whole("text/event-stream", b""),
    "redirect": _whole(
        "text/plain", b"", "307 Temporary Redirect", "Location: /elsewhere/v1/chat/completions\r\n"
    ),
    "not_http": _not_http,
    "silent": _stall,
    "drop_early": _drop,
    "flood": _flood,
}
DURING: dict[str | None, During] = {
    "stall": _stall,
    "comments": _comments,
    "drop": _drop,
    "reset": _reset,
    "error": _error,
    "endless": _endless,
}


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=argparse.FileType("a"))
    for name in ("ttft_ms", "step_ms", "bursts", "tokens", "speed", "spread"):
        default = getattr(Schedule, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    parser.add_argument("--first-burst", type=int)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


async def _run(options: argparse.Namespace) -> None:
    fields = {
        name: value for name, value in vars(options).items() if name not in {"port", "log", "seed"}
    }
    async with Server(
        Schedule(**fields), port=options.port, log=options.log, seed=options.seed
    ) as server:
        sys.stdout.write(f"listening on http://127.0.0.1:{server.port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(_run(_parse(sys.argv[1:])))
    except KeyboardInterrupt:
        sys.exit(0)
