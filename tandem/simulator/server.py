"""The server: routes, starts and restarts of its engine, and the handling of each request.

Invariant: every request whose body was read leaves one line in the truth log, after any end; a
restart drops connections, requests and metric counters, as a new process would. The same seed and
order of acceptance give the same requests the same faults; a request gets at most one fault, the
first match among the knobs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

from aiohttp import web

from tandem.simulator.engine import BatchingEngine, EngineRequest
from tandem.simulator.engine_loop import EngineLoop, ResponseStream, sleep_until
from tandem.simulator.frames import ResponseFrames, build_error_body, build_models_body
from tandem.simulator.generation_request import ApiName, VllmApiError, read_generation_request
from tandem.simulator.metrics_page import MetricsPage
from tandem.simulator.response_plan import ResponsePlan, ResponseToken, plan_response
from tandem.simulator.server_log import RequestLogEntry, ServerLog
from tandem.simulator.settings import FaultSettings, SimulatorSettings
from tandem.simulator.text_generator import token_id

HOST = "127.0.0.1"
MAX_BODY_BYTES = 16 << 20  # bytes
APIS: dict[str, ApiName] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
# a header of every answer, so that nobody takes a figure for an accelerator's
SIMULATION_HEADERS = {"x-tandem-simulated": "1"}
_SSE_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_PAGE_HEADERS = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
_UNENDED_FAULTS = {"drop", "endless", "restart"}  # their answers have no regular end

ENDLESS_TOKENS = 1000  # of an endless stream, for each of the knob's `tokens`
_GARBAGE_PIECES = ("\ufffd", "@@", "}{", "0x", "\u0442\u0442", ";;", "!!", "\u3042")
WRONG_MODEL = "another-model"
SIGN_IN_PAGE = (
    "<html><head><title>Sign in</title></head><body><h1>Please sign in</h1></body></html>\n"
)
_ERRORS = {
    "status_500": (
        500,
        "InternalServerError",
        "EngineCore encountered an issue. See stack trace for the root cause.",
    ),
    "status_503": (503, "Service Unavailable", "the simulator was told to be busy"),
    "status_429": (429, "Too Many Requests", "the simulator was told to limit the rate"),
}


class SimulatorServer:
    """One simulator on one port.

    Args:
        settings: knobs of the server.
        log: the truth log.
    """

    def __init__(self, settings: SimulatorSettings, log: ServerLog) -> None:
        self.port = 0
        self._settings = settings
        self._log = log
        self._request_count = 0
        self._created_s = int(time.time())
        self._ready_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._engine_task: asyncio.Task[None] | None = None
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.add_routes([web.post(path, self._complete) for path in APIS])
        app.add_routes([web.get(path, self._health) for path in ("/health", "/ping")])
        app.add_routes([web.post("/ping", self._health), web.get("/metrics", self._metrics)])
        app.add_routes(
            [web.get(path, self._inform) for path in ("/version", "/load", "/v1/models")]
        )
        app.on_response_prepare.append(_add_simulation_header)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        self._site: web.TCPSite | None = None

    @property
    def url(self) -> str:
        """Address of the server, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    async def start(self, port: int = 0) -> None:
        """Listen; the server is healthy after `start_s` of its knobs.

        Args:
            port: 0 takes a free one.

        Raises:
            OSError: another process has the port.
        """
        self.port = port
        await self._runner.setup()
        await self._start_engine()
        self.port = int(self._runner.addresses[0][1])

    async def wait_ready(self) -> None:
        """Return as soon as /health returns 200."""
        await sleep_until(self._ready_s)

    async def stop(self) -> None:
        """Cut open connections and release the port."""
        for task in self._tasks:
            task.cancel()
        if self._engine_task:
            self._engine_task.cancel()
        self._abort()
        await self._runner.cleanup()

    async def _start_engine(self) -> None:
        """Start afresh: an empty engine, counters at zero, an open port."""
        engine = BatchingEngine(self._settings)
        self._metrics_page = MetricsPage(self._settings)
        self._engine_loop = EngineLoop(engine, self._metrics_page)
        self._engine_task = asyncio.create_task(self._engine_loop.run())
        self._engine_task.add_done_callback(self._report_end)
        self._ready_s = time.monotonic() + self._settings.start_s
        self._site = web.TCPSite(self._runner, HOST, self.port, reuse_address=True)
        await self._site.start()

    def _report_end(self, engine_task: asyncio.Task[None]) -> None:
        """Report an engine that broke, and cut its connections: it would answer nobody."""
        if engine_task.cancelled():
            return
        report = {"message": "the engine broke", "exception": engine_task.exception()}
        asyncio.get_running_loop().call_exception_handler(report)
        self._abort()

    async def _restart(self, seconds: float) -> None:
        self._log.write_restart(seconds)
        if self._engine_task is not None:
            self._engine_task.cancel()
        if self._site is not None:
            await self._site.stop()
        self._abort()
        await asyncio.sleep(seconds)
        await self._start_engine()

    def _abort(self) -> None:
        if self._runner.server is None:
            return
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self._request_count += 1
        entry = RequestLogEntry(
            request_id=request.headers.get("X-Request-Id") or uuid.uuid4().hex,
            number=self._request_count,
            api=APIS[request.path],
            accepted_s=time.monotonic(),
        )
        try:
            return await self._answer(request, body, entry)
        except VllmApiError as error:
            entry.status = error.status
            headers = None
            if error.retry_after_s is not None:
                headers = {"Retry-After": str(error.retry_after_s)}
            return _json_response(
                build_error_body(error, self._settings.runtime), error.status, headers
            )
        except asyncio.CancelledError:
            entry.fault = entry.fault or "gone"
            raise
        finally:
            entry.ended_s = time.monotonic()
            self._log.write_request(entry)

    async def _answer(
        self, request: web.Request, body: bytes, entry: RequestLogEntry
    ) -> web.StreamResponse:
        if time.monotonic() < self._ready_s:
            raise VllmApiError("the server is starting", status=503, kind="Service Unavailable")
        if self._engine_task is None or self._engine_task.done():
            raise_error_fault(FaultSettings(kind="status_500"))
        settings = self._settings
        generation_request = read_generation_request(body, APIS[request.path], settings)
        token_budget = settings.max_model_len - generation_request.prompt_tokens
        max_tokens = min(token_budget, generation_request.max_tokens or token_budget)
        plan = plan_response(generation_request, settings, max_tokens)
        fault = select_fault(settings, entry.number, plan.class_)

        entry.class_ = plan.class_
        entry.stream = generation_request.stream
        entry.prompt_tokens = generation_request.prompt_tokens
        entry.reasoning_tokens = plan.reasoning_tokens
        entry.fault = fault.kind if fault else None

        if entry.fault == "html":
            return web.Response(text=SIGN_IN_PAGE, content_type="text/html")
        if fault is not None:
            raise_error_fault(fault)
            plan = spoil_plan(plan, fault)
        if fault is not None and fault.kind == "restart":
            task = asyncio.create_task(self._restart(fault.seconds))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._require_room()

        frames = ResponseFrames(
            request=generation_request,
            plan=plan,
            settings=settings,
            counts_usage=entry.fault != "no_usage",
            id=f"{'chatcmpl' if entry.api == 'chat' else 'cmpl'}-{entry.request_id}",
            model=WRONG_MODEL if entry.fault == "wrong_model" else settings.model,
            extra_tokens=fault.tokens if fault is not None and fault.kind == "wrong_usage" else 0,
        )
        return await self._generate(
            request, ResponseStream(frames, max_tokens, fault, entry), entry
        )

    def _require_room(self) -> None:
        """Refuse a request that finds the batch and the queue full."""
        engine = self._engine_loop.engine
        max_queue = self._settings.max_queue
        if max_queue is None or engine.has_room or len(engine.waiting) < max_queue:
            return
        if self._settings.runtime != "nxdi-v0":
            self._metrics_page.rejections.inc()
        raise VllmApiError(
            "the queue is full: try again later", status=503, kind="Service Unavailable"
        )

    async def _generate(
        self, request: web.Request, stream: ResponseStream, entry: RequestLogEntry
    ) -> web.StreamResponse:
        plan = stream.frames.plan
        kind = entry.fault  # before the client can go away
        engine_loop = self._engine_loop
        engine_request = EngineRequest(
            entry.number, plan.class_, entry.prompt_tokens, plan.count, entry.accepted_s
        )
        engine_loop.submit(engine_request, stream)
        try:
            response = await _write_response(request, stream, entry)
        finally:
            engine_loop.drop(engine_request)
            if engine_request.started_s:
                entry.queued_s = engine_request.started_s - engine_request.arrived_s
            entry.drawn = [
                int(count) for count in engine_request.step_tokens[: engine_request.step_count]
            ]
        if entry.fault != "gone" and kind not in _UNENDED_FAULTS:
            entry.finish_reason = plan.finish_reason
            entry.stop = plan.stop_reason
        return response

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if time.monotonic() >= self._ready_s else 503)

    async def _inform(self, request: web.Request) -> web.Response:
        if request.path == "/v1/models":
            return _json_response(build_models_body(self._settings, self._created_s))
        engine = self._engine_loop.engine
        load = {"server_load": len(engine.waiting) + len(engine.running)}
        return _json_response(
            load if request.path == "/load" else {"version": self._settings.version}
        )

    async def _metrics(self, _: web.Request) -> web.Response:
        engine = self._engine_loop.engine
        kv_tokens = sum(
            request.prompt_tokens + int(request.tokens.sum()) for request in engine.running
        )
        page = self._metrics_page.render_text(len(engine.waiting), len(engine.running), kv_tokens)
        return web.Response(body=page, headers=_PAGE_HEADERS)


async def _write_response(
    request: web.Request, stream: ResponseStream, entry: RequestLogEntry
) -> web.StreamResponse:
    if not stream.frames.request.stream:
        await stream.write(request, None)
        return _json_response(stream.frames.document(stream.frames.plan.tokens))
    response = web.StreamResponse(headers=_SSE_HEADERS)
    try:
        await response.prepare(request)
        await stream.write(request, response)
        await response.write_eof()
    except ConnectionError:  # the client is gone; a fault may be the cause
        entry.fault = entry.fault or "gone"
    return response


async def _add_simulation_header(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SIMULATION_HEADERS)


def _json_response(
    body: object, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return web.Response(
        text=content, status=status, content_type="application/json", headers=headers
    )


def select_fault(settings: SimulatorSettings, number: int, class_: str) -> FaultSettings | None:
    """Return the fault of one request; None for none.

    Args:
        settings: the knobs.
        number: of acceptance, from 1.
        class_: of its prompt.
    """
    for index, fault in enumerate(settings.faults):
        random_share = random.Random(f"{settings.seed}/{index}/{number}").random()  # noqa: S311 - repeatable, not secret
        if (not fault.classes or class_ in fault.classes) and (
            number in fault.requests or random_share < fault.rate
        ):
            return fault
    return None


def raise_error_fault(fault: FaultSettings) -> None:
    """Raise the error answer of a fault that is one; return for any other fault."""
    if fault.kind in _ERRORS:
        status, error_type, message = _ERRORS[fault.kind]
        after_s = fault.retry_after_s if fault.kind == "status_429" else None
        raise VllmApiError(message, status=status, kind=error_type, retry_after_s=after_s)


def spoil_plan(plan: ResponsePlan, fault: FaultSettings) -> ResponsePlan:
    """Return the plan after a fault: garbage of equal length, an endless answer, or no change."""
    if fault.kind == "endless":
        visible_tokens = [token for token in plan.tokens if token.visible_text] or list(plan.tokens)
        return replace(
            plan, count=ENDLESS_TOKENS * fault.tokens, begin=lambda: itertools.cycle(visible_tokens)
        )
    if fault.kind != "garbage":
        return plan

    def begin() -> Iterator[ResponseToken]:
        for index, token in enumerate(plan.begin()):
            if index == plan.count - 1:  # the last token stays
                yield token
                continue
            piece = _GARBAGE_PIECES[index * index % len(_GARBAGE_PIECES)]
            visible_text = piece if token.visible_text else ""
            yield ResponseToken(token_id(piece), piece, visible_text, token.part)

    return replace(plan, begin=begin)
