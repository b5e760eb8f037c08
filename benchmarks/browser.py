"""A real browser without a window, its tabs, and the views of a page: light and dark, on a phone and on a desktop.

This module uses the Chrome DevTools protocol, which has all that is needed: a media feature, a key, a picture wider
than the screen. A driver would be one package more. The module does not depend on the page.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

TIME_OUT_S = 30
TRIES = 3
PAINT_MS = 1000  # longest time to the first paint, the pages' own limit
MOST_BYTES = 2_000_000  # of a page
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--remote-debugging-port=0",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The view of a page: colors, and a screen in CSS pixels."""

    scheme: str
    screen: str
    width: int
    height: int
    phone: bool

    @property
    def name(self) -> str:
        """The name in file names and faults."""
        return f"{self.scheme}-{self.screen}"


VIEWS = tuple(
    View(scheme=scheme, screen=screen, width=width, height=height, phone=phone)
    for scheme, (screen, width, height, phone) in itertools.product(
        ("light", "dark"), (("phone", 390, 844, True), ("desktop", 1440, 900, False))
    )
)
USED = VIEWS[1]
"""The view for use by keyboard and for print: light, on a desktop."""


@dataclass
class Seen:
    """Messages of the browser while a page was open."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


class Tab:
    """One tab, controlled by the Chrome DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.seen = Seen()
        self.loaded = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call one method and return its result.

        Raises:
            RuntimeError: the browser refused it.
        """
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(self._waiting[number], TIME_OUT_S)
        if "error" in answer:
            raise RuntimeError(f"the browser refused {method}: {answer['error'].get('message')}")
        return dict(answer["result"])

    async def value(self, script: str) -> Any:
        """Return the value of a script in the page.

        Raises:
            RuntimeError: the script failed.
        """
        found = await self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"the page's script failed: {found['exceptionDetails']}")
        return found["result"].get("value")

    async def key(self, name: str, text: str = "") -> None:
        """Press one key; `text` is the text that the key writes."""
        await self.ask("Input.dispatchKeyEvent", type="keyDown", key=name, code=name, text=text)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._waiting.pop(said["id"]).set_result(said)
            else:
                self._heard(said["method"], said.get("params", {}))

    def _heard(self, method: str, said: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded.set()
        elif method == "Network.requestWillBeSent":
            self.seen.requests.append(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            thrown = said["exceptionDetails"]
            self.seen.errors.append(thrown.get("exception", {}).get("description", thrown["text"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in {"error", "warning", "assert"}:
            self.seen.errors.append(json.dumps(said["args"])[:500])
        elif method == "Log.entryAdded" and said["entry"]["level"] in {"error", "warning"}:
            self.seen.errors.append(said["entry"]["text"])


@asynccontextmanager
async def browser() -> AsyncIterator[str]:
    """Start a browser without a window, and yield the address of its protocol.

    Raises:
        SystemExit: there is none.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("error: no browser: install Debian's chromium (apt-get install chromium), then `make look` again")
    with tempfile.TemporaryDirectory(prefix="tandem-look-", ignore_cleanup_errors=True) as profile:
        running = await asyncio.create_subprocess_exec(
            program,
            *_FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield await _port(Path(profile) / "DevToolsActivePort")
        finally:
            running.terminate()
            await running.wait()


async def _port(said: Path) -> str:
    for _ in range(TIME_OUT_S * 10):
        if words := _words(said):
            return f"http://127.0.0.1:{words[0]}"
        await asyncio.sleep(0.1)
    sys.exit("error: the browser did not start")


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


@asynccontextmanager
async def tab(session: aiohttp.ClientSession, address: str, view: View) -> AsyncIterator[Tab]:
    """Open an empty tab with the settings of the view."""
    async with session.put(f"{address}/json/new?about:blank") as answer:
        where = (await answer.json())["webSocketDebuggerUrl"]
    async with session.ws_connect(where, max_msg_size=0) as socket:
        opened = Tab(socket)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await opened.ask(f"{domain}.enable")
        await opened.ask(
            "Emulation.setDeviceMetricsOverride", width=view.width, height=view.height,
            deviceScaleFactor=2 if view.phone else 1, mobile=view.phone,
        )  # fmt: skip
        await opened.ask(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": view.scheme}]
        )
        yield opened


async def shown(opened: Tab, url: str, read: Callable[[Tab], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Open the page; open it again if the first paint came too late, because a busy machine is no fault of the page.

    Args:
        opened: the tab.
        url: of the page.
        read: returns the state of the loaded page, with `paint_ms`.
    """
    for _ in range(TRIES):
        opened.loaded.clear()
        await opened.ask("Page.navigate", url=url)
        await asyncio.wait_for(opened.loaded.wait(), TIME_OUT_S)
        state = await read(opened)
        if not _late(state["paint_ms"]):
            break
    return state


def _late(paint_ms: float | None) -> bool:
    return paint_ms is None or not paint_ms <= PAINT_MS


def widths(scrolling: str) -> str:
    """Return the script that finds elements wider than the screen, except those that scroll themselves (a selector)."""
    return f"""(() => ({{
      too_wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      wider: [...document.querySelectorAll("body *")].filter((each) =>
        each.getBoundingClientRect().right > innerWidth + 1 && !each.closest("{scrolling}")).slice(0, 3)
        .map((each) => each.outerHTML.slice(0, 120)),
    }}))()"""


def faults(state: Mapping[str, Any], seen: Seen, own: str) -> list[str]:
    """Return the faults of any page: messages on its console, requests, elements too wide, a late paint.

    Args:
        state: the results of `shown` and `widths`.
        seen: the browser's messages meanwhile.
        own: the page's own address.
    """
    late = [f"painted after {state['paint_ms']} ms, not {PAINT_MS}"] if _late(state["paint_ms"]) else []
    return [
        *(f"console: {error}" for error in seen.errors),
        *(f"a request to {url}" for url in seen.requests if url != own and not url.startswith("data:")),
        *([f"{state['too_wide']} px wider than the screen"] if state["too_wide"] > 0 else []),
        *(f"stands out on the right: {element}" for element in state["wider"]),
        *late,
    ]


async def shoot(opened: Tab, view: View, out: Path) -> None:
    """Take pictures of the first screen and the whole page: two files whose names begin with `out`."""
    top = await opened.ask("Page.captureScreenshot", format="png")
    _keep(out.with_suffix(".png"), top)
    tall = await opened.value("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": view.width, "height": max(view.height, tall), "scale": 1}
    whole = await opened.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    _keep(out.with_name(f"{out.name}-whole.png"), whole)


async def print_page(opened: Tab, out: Path) -> None:
    """Print the page to PDF, with its own print style."""
    _keep(out, await opened.ask("Page.printToPDF", printBackground=True, preferCSSPageSize=True))


def _keep(path: Path, answer: Mapping[str, Any]) -> None:
    path.write_bytes(base64.b64decode(answer["data"]))


Look = Callable[[Tab, View, str], Awaitable[list[str]]]
"""Looks at the page of an address in one view, and returns the faults."""


def look_at(page: Path, look: Look) -> list[str]:
    """Look at a page in every view; return the faults, a wrong size included.

    Raises:
        SystemExit: there is no browser, or it does not start.
    """
    size = page.stat().st_size
    heavy = [f"the page has {size} bytes, more than {MOST_BYTES}"] if size > MOST_BYTES else []
    return [*asyncio.run(look_in_views(page.absolute().as_uri(), look)), *heavy]


async def look_in_views(url: str, look: Look) -> list[str]:
    """Look at an address in every view; return the faults."""
    wrong = []
    async with browser() as address, aiohttp.ClientSession() as session:
        for view in VIEWS:
            async with tab(session, address, view) as opened:
                wrong += [f"{view.name}: {each}" for each in await look(opened, view, url)]
    return wrong
