"""A tab speaks the browser's protocol: it is held against a browser that is played."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from browser import PAINT_MS, TRIES, USED, VIEWS, Seen, Tab, faults, shoot, shown, tab

PAGE = "file:///page.html"
FINE: dict[str, Any] = {"paint_ms": 200.0, "too_wide": 0, "wider": []}
PICTURE = base64.b64encode(b"picture").decode()


class Played:
    """A browser that answers each method as told and reports events after it; it notes what it was asked."""

    def __init__(self, answers: dict[str, Any], events: dict[str, list[dict[str, Any]]]) -> None:
        self.answers, self.events = answers, events
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def open(self, request: web.Request) -> web.Response:
        return web.json_response({"webSocketDebuggerUrl": f"http://{request.host}/tab"})

    async def speak(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            asked = message.json()
            self.asked.append((asked["method"], asked["params"]))
            for event in self.events.get(asked["method"], ()):
                await socket.send_json(event)
            await socket.send_json({"id": asked["id"], **self.answers.get(asked["method"], {"result": {}})})
        return socket

    def called(self, method: str) -> list[dict[str, Any]]:
        return [parameters for name, parameters in self.asked if name == method]


def use(played: Played, act: Callable[[Tab], Awaitable[Any]], view: Any = USED) -> Any:
    """Open a tab of the played browser and act in it."""

    async def run() -> Any:
        app = web.Application()
        app.router.add_put("/json/new", played.open)
        app.router.add_get("/tab", played.speak)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            async with ClientSession() as session, tab(session, f"http://127.0.0.1:{port}", view) as opened:
                return await act(opened)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def loads(**answers: Any) -> Played:
    return Played(answers, {"Page.navigate": [{"method": "Page.loadEventFired"}]})


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_tab_shows_what_its_view_says(view: Any) -> None:
    played = loads()

    async def nothing(_: Tab) -> None:
        return None

    use(played, nothing, view)

    [screen] = played.called("Emulation.setDeviceMetricsOverride")
    [media] = played.called("Emulation.setEmulatedMedia")
    assert (screen["width"], screen["height"], screen["mobile"]) == (view.width, view.height, view.phone)
    assert media["features"] == [{"name": "prefers-color-scheme", "value": view.scheme}]


def test_a_script_that_fails_is_told() -> None:
    played = loads(**{"Runtime.evaluate": {"result": {"result": {}, "exceptionDetails": {"text": "x is not defined"}}}})
    with pytest.raises(RuntimeError, match="x is not defined"):
        use(played, lambda opened: opened.value("x"))


def test_a_method_that_the_browser_refuses_is_told() -> None:
    played = loads(**{"Page.printToPDF": {"error": {"message": "not here"}}})
    with pytest.raises(RuntimeError, match=r"the browser refused Page\.printToPDF: not here"):
        use(played, lambda opened: opened.ask("Page.printToPDF"))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": {"text": "thrown"}}}, "thrown"),
        ({"method": "Runtime.consoleAPICalled", "params": {"type": "error", "args": ["logged"]}}, "logged"),
        ({"method": "Log.entryAdded", "params": {"entry": {"level": "warning", "text": "warned"}}}, "warned"),
    ],
)
def test_words_on_the_console_are_faults(event: dict[str, Any], said: str) -> None:
    played = Played({}, {"Page.navigate": [event]})

    async def act(opened: Tab) -> Seen:
        await opened.ask("Page.navigate", url=PAGE)
        return opened.seen

    assert [said in fault for fault in faults(FINE, use(played, act), PAGE)] == [True]


def test_a_request_to_anywhere_is_a_fault_and_the_page_itself_is_none() -> None:
    seen = Seen(requests=[PAGE, "data:image/png;base64,AA==", "https://example.com/font.woff2"])
    assert faults(FINE, seen, PAGE) == ["a request to https://example.com/font.woff2"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"too_wide": 3}, "3 px wider than the screen"),
        ({"wider": ["<table>"]}, "stands out on the right: <table>"),
        ({"paint_ms": PAINT_MS + 1.0}, f"painted after {PAINT_MS + 1.0} ms, not {PAINT_MS}"),
        ({"paint_ms": None}, f"painted after None ms, not {PAINT_MS}"),
    ],
)
def test_what_is_wrong_with_a_page_is_told(state: dict[str, Any], said: str) -> None:
    assert faults({**FINE, **state}, Seen(), PAGE) == [said]


@pytest.mark.parametrize(("paints", "opened_times"), [([200], 1), ([1500, 200], 2), ([1500] * TRIES, TRIES)])
def test_a_page_that_is_painted_late_is_opened_again(paints: list[float], opened_times: int) -> None:
    played, left = loads(), iter(paints)

    async def read(_: Tab) -> dict[str, Any]:
        return {"paint_ms": next(left)}

    state = use(played, lambda opened: shown(opened, PAGE, read))

    assert (len(played.called("Page.navigate")), state["paint_ms"]) == (opened_times, paints[-1])


def test_the_first_screen_and_the_whole_page_are_kept(tmp_path: Path) -> None:
    played = loads(**{
        "Page.captureScreenshot": {"result": {"data": PICTURE}},
        "Runtime.evaluate": {"result": {"result": {"value": 5000}}},
    })  # fmt: skip

    use(played, lambda opened: shoot(opened, USED, tmp_path / "light-desktop"))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["light-desktop-whole.png", "light-desktop.png"]
    assert played.called("Page.captureScreenshot")[1]["clip"]["height"] == 5000
