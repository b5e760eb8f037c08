"""`make look`: the dashboard's page in a real browser, light and dark, on a phone and on a desktop.

Writes the page of a run's folder, opens it in Debian's chromium, checks what only a browser knows (no error on the
console, no request to anywhere, nothing wider than the screen, every graph painted, the keyboard reads a graph), prints
the time to paint, and leaves screenshots and a printed PDF for a person's eye. Not part of `make test`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

SCHEMES = ("light", "dark")
WIDTHS = {"phone": (390, 844, True), "desktop": (1440, 900, False)}
TIME_OUT_S = 30
POLL_S = 0.5  # a look takes the page time in which it would paint
TRIES = 3
PAINT_MS = 1000  # of the first screen, the page's own limit
MOST_BYTES = 2_000_000
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--remote-debugging-port=0",
)  # fmt: skip
_STATE = """(() => {
  const graphs = [...document.querySelectorAll("figure.graph .chart")];
  return {
    ready_ms: Number(document.documentElement.dataset.ready ?? NaN),
    painted_ms: Number(document.documentElement.dataset.painted ?? NaN),
    first_paint_ms: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN,
    graphs: graphs.length,
    unpainted: graphs.filter((each) => !each.querySelector("svg path, p"))
      .map((each) => each.closest("figure").querySelector("h3").textContent),
    empty: graphs.filter((each) => each.classList.contains("none")).length,
    too_wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    wider: [...document.querySelectorAll("body *")].filter((each) =>
      each.getBoundingClientRect().right > innerWidth + 1 && !each.closest(".values, .text table, svg")).slice(0, 3)
      .map((each) => each.outerHTML.slice(0, 120)),
  };
})()"""


@dataclass
class Seen:
    """What the browser said of itself while a page was open."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


class Tab:
    """One tab, spoken to by the Chrome DevTools protocol."""

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
        """Return what a script in the page evaluates to.

        Raises:
            RuntimeError: the script failed.
        """
        found = await self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"the page's script failed: {found['exceptionDetails']}")
        return found["result"].get("value")

    async def key(self, name: str) -> None:
        """Press one key."""
        for kind in ("keyDown", "keyUp"):
            await self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name)

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
async def tab(session: aiohttp.ClientSession, address: str) -> AsyncIterator[Tab]:
    """Open an empty tab."""
    async with session.put(f"{address}/json/new?about:blank") as answer:
        where = (await answer.json())["webSocketDebuggerUrl"]
    async with session.ws_connect(where, max_msg_size=0) as socket:
        opened = Tab(socket)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await opened.ask(f"{domain}.enable")
        yield opened


async def look(session: aiohttp.ClientSession, address: str, url: str, out: Path) -> list[str]:
    """Look at the page in every scheme and width; return what is wrong."""
    wrong = []
    for scheme, (name, (width, height, phone)) in itertools.product(SCHEMES, WIDTHS.items()):
        async with tab(session, address) as opened:
            await opened.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                             deviceScaleFactor=2 if phone else 1, mobile=phone)  # fmt: skip
            await opened.ask("Emulation.setEmulatedMedia",
                             features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip
            state = await _opened(opened, url)
            print(f"{scheme:5} {name:7} first paint {state['first_paint_ms']:.0f} ms, first screen "
                  f"{state['ready_ms']:.0f} ms, all {state['graphs']} graphs ({state['empty']} without data) "
                  f"{state['painted_ms']:.0f} ms")  # fmt: skip
            await shoot(opened, out / f"{scheme}-{name}", width, height)
            if name == "desktop" and scheme == "light":
                wrong += [f"desktop: {each}" for each in await _used(opened)]
                await _print(opened, out / "printed.pdf")
            wrong += [f"{scheme} {name}: {each}" for each in _faults(state, opened.seen, url)]
    return wrong


async def _opened(opened: Tab, url: str) -> dict[str, Any]:
    """Open the page, again where its first screen took too long: a busy machine is no fault of the page."""
    for _ in range(TRIES):
        opened.loaded.clear()
        await opened.ask("Page.navigate", url=url)
        await asyncio.wait_for(opened.loaded.wait(), TIME_OUT_S)
        state = await _painted(opened)
        if state["ready_ms"] <= PAINT_MS:
            break
    return state


async def _painted(opened: Tab) -> dict[str, Any]:
    for _ in range(int(TIME_OUT_S / POLL_S)):
        state = dict(await opened.value(_STATE))
        if state["painted_ms"]:
            return state
        await asyncio.sleep(POLL_S)
    sys.exit("error: the page did not say that it was painted: " + ("; ".join(opened.seen.errors) or "it is silent"))


def _faults(state: dict[str, Any], seen: Seen, own: str) -> list[str]:
    return [
        *(f"console: {error}" for error in seen.errors),
        *(f"a request to {url}" for url in seen.requests if url != own and not url.startswith("data:")),
        *([f"{state['too_wide']} px wider than the screen"] if state["too_wide"] > 0 else []),
        *(f"stands out on the right: {element}" for element in state["wider"]),
        *(f"not painted: {title}" for title in state["unpainted"]),
        *([f"the first screen took {state['ready_ms']} ms, not {PAINT_MS}"] if state["ready_ms"] > PAINT_MS else []),
        *([] if state["graphs"] > state["empty"] else ["no graph shows anything"]),
    ]


async def _used(opened: Tab) -> list[str]:
    """Use the page by its keyboard and its choices; return what does not answer."""
    wrong = []
    await opened.value("document.querySelector('.chart:not(.none)').focus()")
    await opened.key("End")
    said = await opened.value("document.querySelector('[role=status]').textContent")
    if "UTC: " not in said:
        wrong.append(f"the arrow keys read nothing: {said!r}")
    before = await opened.value("document.querySelector('main').innerText")
    changed = await opened.value("""(() => {
      const choice = [...document.querySelectorAll('.choices select')].find((each) => each.options.length > 1);
      choice.selectedIndex = choice.selectedIndex ? 0 : 1;
      choice.dispatchEvent(new Event('change'));
      return choice.value;
    })()""")
    if await opened.value("document.querySelector('main').innerText") == before:
        wrong.append(f"choosing {changed} changes nothing")
    for _ in range(int(TIME_OUT_S / POLL_S)):
        if not (await opened.value(_STATE))["unpainted"]:
            return wrong
        await asyncio.sleep(POLL_S)
    return [*wrong, f"after choosing {changed}, not every graph is painted"]


async def shoot(opened: Tab, out: Path, width: int, height: int) -> None:
    """Take the first screen, and the whole page; two files beginning with `out`."""
    top = await opened.ask("Page.captureScreenshot", format="png")
    keep(out.with_suffix(".png"), top)
    tall = await opened.value("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": max(height, tall), "scale": 1}
    whole = await opened.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    keep(out.with_name(f"{out.name}-whole.png"), whole)


async def _print(opened: Tab, out: Path) -> None:
    await opened.ask("Emulation.setEmulatedMedia", media="print")
    await shoot(opened, out.with_suffix(""), 1440, 900)
    await opened.ask("Emulation.setEmulatedMedia", media="", features=[])
    keep(out, await print_page(opened))


async def print_page(opened: Tab) -> dict[str, Any]:
    """Print the page to PDF, as its own style asks."""
    return await opened.ask("Page.printToPDF", printBackground=True, preferCSSPageSize=True)


def keep(path: Path, answer: dict[str, Any]) -> None:
    """Write what the browser answered as base64: a picture, a PDF."""
    path.write_bytes(base64.b64decode(answer["data"]))


async def _looked(url: str, out: Path) -> list[str]:
    async with browser() as address, aiohttp.ClientSession() as session:
        return await look(session, address, url, out)


def main(page: Path, out: Path) -> int:
    """Look at one page.

    Args:
        page: to look at.
        out: folder of the pictures.

    Returns:
        0 where nothing is wrong, 1 where something is.
    """
    out.mkdir(parents=True, exist_ok=True)
    wrong = asyncio.run(_looked(page.absolute().as_uri(), out))
    size = page.stat().st_size
    wrong += [f"the page has {size} bytes, more than {MOST_BYTES}"] if size > MOST_BYTES else []
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)
    print(f"{size / 1e6:.2f} MB; pictures in {out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the page to look at")
    parser.add_argument("--out", type=Path, default=Path("build/look"), help="folder of the pictures")
    chosen = parser.parse_args()
    sys.exit(main(chosen.page, chosen.out))
