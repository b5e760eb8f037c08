"""The server: routes, the lives of its engine, and what happens to each request.

Invariant: every request whose body was read leaves one line in the truth log, however it ends; a restart forgets all
that a process would forget, counters too.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid

from aiohttp import web

from tandem.twin.server import mishap
from tandem.twin.server.ask import Api, Ask, RefusedError, read_ask
from tandem.twin.server.clock import Pace, sleep_until
from tandem.twin.server.frames import Wire, error_body, models_body
from tandem.twin.server.knobs import FaultKnobs, Knobs
from tandem.twin.server.metrics import Page
from tandem.twin.server.process import Engine, Job
from tandem.twin.server.script import Script, write_script
from tandem.twin.server.stream import Stream
from tandem.twin.server.truth import Truth, TruthLog

HOST = "127.0.0.1"
LARGEST_BODY = 16 << 20  # bytes
APIS: dict[str, Api] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
SIMULATED = {"x-tandem-simulated": "1"}  # a header of every answer, so that no figure is taken for an accelerator's
_SSE = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class Server:
    """One twin on one port.

    Args:
        knobs: what it is. log: where it says what it did.
    """

    def __init__(self, knobs: Knobs, log: TruthLog) -> None:
        self.port = 0
        self._knobs, self._log = knobs, log
        self._accepted = 0
        self._created = int(time.time())
        self._ready_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._pacing: asyncio.Task[None] | None = None
        app = web.Application(client_max_size=LARGEST_BODY)
        app.add_routes([web.post(path, self._complete) for path in APIS])
        app.add_routes([
            web.get("/health", self._health), web.get("/ping", self._health), web.post("/ping", self._health),
            web.get("/version", self._version), web.get("/load", self._load), web.get("/v1/models", self._models),
            web.get("/metrics", self._metrics),
        ])  # fmt: skip
        app.on_response_prepare.append(_announce_simulation)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        self._site: web.TCPSite | None = None

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    async def start(self, port: int = 0) -> None:
        """Listen; it is healthy when its knob's time has passed.

        Args:
            port: 0 takes a free one.

        Raises:
            OSError: somebody else has the port.
        """
        self.port = port
        await self._runner.setup()
        await self._live()
        self.port = int(self._runner.addresses[0][1])

    async def wait_ready(self) -> None:
        """Return when /health says 200."""
        await sleep_until(self._ready_s)

    async def stop(self) -> None:
        """Cut what is open and let go of the port."""
        if self._pacing is not None:
            self._pacing.cancel()
        for task in self._tasks:
            task.cancel()
        self._abort()
        await self._runner.cleanup()

    async def _live(self) -> None:
        """Begin a life: an empty engine, counters at zero, an open port."""
        engine, self._page = Engine(self._knobs), Page(self._knobs)
        self._pace = Pace(engine, self._page)
        self._pacing = asyncio.create_task(self._pace.run())
        self._pacing.add_done_callback(self._engine_ended)
        self._ready_s = time.monotonic() + self._knobs.start.seconds
        self._site = web.TCPSite(self._runner, HOST, self.port, reuse_address=True)
        await self._site.start()

    def _engine_ended(self, pacing: asyncio.Task[None]) -> None:
        """Cut what is open when the engine fails by a mistake of ours: nobody may wait for it for ever."""
        error = None if pacing.cancelled() else pacing.exception()
        if error is not None:
            asyncio.get_running_loop().call_exception_handler({"message": "the engine failed", "exception": error})
            self._abort()

    async def _restart(self, seconds: float) -> None:
        self._log.event("restart", seconds=seconds)
        if self._pacing is not None:
            self._pacing.cancel()
        if self._site is not None:
            await self._site.stop()
        self._abort()
        await asyncio.sleep(seconds)
        await self._live()

    def _abort(self) -> None:
        for connection in self._runner.server.connections if self._runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        api = APIS[request.path]
        body = await request.read()
        self._accepted += 1
        truth = Truth(
            request_id=request.headers.get("X-Request-Id") or uuid.uuid4().hex, number=self._accepted, api=api,
            accepted_s=time.monotonic(),
        )  # fmt: skip
        try:
            return await self._answer(request, body, api, truth)
        except RefusedError as error:
            truth.status = error.status
            headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s is not None else None
            return _json(error_body(error, self._knobs.runtime), error.status, headers)
        except asyncio.CancelledError:
            truth.fault = truth.fault or "gone"
            raise
        finally:
            truth.ended_s = time.monotonic()
            self._log.request(truth)

    async def _answer(self, request: web.Request, body: bytes, api: Api, truth: Truth) -> web.StreamResponse:
        if time.monotonic() < self._ready_s:
            raise RefusedError("the server is starting", status=503, kind="Service Unavailable")
        ask = read_ask(body, api, self._knobs)
        room = self._knobs.max_model_len - ask.prompt_tokens
        max_tokens = min(room, ask.max_tokens or room)
        script = write_script(ask, self._knobs, max_tokens)
        fault = mishap.mishap(self._knobs, truth.number, script.class_)
        truth.class_, truth.stream, truth.prompt_tokens = script.class_, ask.stream, ask.prompt_tokens
        truth.reasoning_tokens, truth.fault = script.reasoning_tokens, fault.kind if fault else None
        if fault is not None:
            early = self._fail(fault)
            if early is not None:
                return early
        self._require_place()
        return await self._generate(request, ask, script, (fault, max_tokens), truth)

    def _fail(self, fault: FaultKnobs) -> web.StreamResponse | None:
        """Return the answer of a fault that generates nothing; None where something is generated."""
        error = mishap.refusal(fault)
        if error is not None:
            raise error
        if fault.kind == "html":
            return web.Response(text=mishap.HTML, content_type="text/html")
        if fault.kind == "restart":
            self._keep(asyncio.create_task(self._restart(fault.seconds)))
        return None

    def _require_place(self) -> None:
        engine, most = self._pace.engine, self._knobs.max_queue
        if most is not None and not engine.has_room and len(engine.waiting) >= most:
            if self._knobs.runtime != "nxdi-v0":
                self._page.rejected.inc()
            raise RefusedError("the queue is full: try again later", status=503, kind="Service Unavailable")

    async def _generate(
        self, request: web.Request, ask: Ask, script: Script, how: tuple[FaultKnobs | None, int], truth: Truth
    ) -> web.StreamResponse:
        (fault, max_tokens), kind = how, how[0].kind if how[0] else None
        if fault is not None and kind in {"garbage", "endless"}:
            script = mishap.garbled(script) if kind == "garbage" else mishap.endless(script, fault)
        wire = Wire(
            ask=ask, script=script, knobs=self._knobs, counts_usage=kind != "no_usage",
            id=f"{'chatcmpl' if ask.api == 'chat' else 'cmpl'}-{truth.request_id}",
            model=mishap.OTHER_MODEL if kind == "wrong_model" else ask.model,
            extra_tokens=fault.tokens if fault is not None and kind == "wrong_usage" else 0,
        )  # fmt: skip
        job = Job(truth.number, script.class_, ask.prompt_tokens, script.count, truth.accepted_s)
        stream, pace = Stream(wire, max_tokens, fault, truth), self._pace
        pace.submit(job, stream)
        try:
            answer = await self._write(request, wire, stream)
        finally:
            pace.drop(job)
            truth.queued_s = job.started_s - job.arrived_s if job.started_s else None
            truth.drawn = [int(count) for count in job.drawn[: job.done]]
        if truth.fault != "gone" and kind not in {"drop", "endless", "restart"}:
            truth.finish_reason, truth.stop = script.finish_reason, script.stop_reason
        return answer

    async def _write(self, request: web.Request, wire: Wire, stream: Stream) -> web.StreamResponse:
        if not wire.ask.stream:
            await stream.wait()
            return _json(wire.document(wire.script.tokens))
        answer = web.StreamResponse(headers=_SSE)
        try:
            await answer.prepare(request)
            await stream.write(request, answer)
            await answer.write_eof()
        except ConnectionError:  # nobody is there to be told
            stream.gone()
        return answer

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if time.monotonic() >= self._ready_s else 503)

    async def _version(self, _: web.Request) -> web.Response:
        return _json({"version": self._knobs.version})

    async def _load(self, _: web.Request) -> web.Response:
        engine = self._pace.engine
        return _json({"server_load": len(engine.waiting) + len(engine.running)})

    async def _models(self, _: web.Request) -> web.Response:
        return _json(models_body(self._knobs, self._created))

    async def _metrics(self, _: web.Request) -> web.Response:
        engine = self._pace.engine
        held = sum(job.prompt_tokens + 1 + int(job.bursts[: job.done].sum()) for job in engine.running)
        page = self._page.text(len(engine.waiting), len(engine.running), held)
        return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _announce_simulation(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SIMULATED)


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return web.Response(text=content, status=status, content_type="application/json", headers=headers)
