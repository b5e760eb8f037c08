"""`make look`: a verdict's report in a real browser, light and dark, on a phone, on a desktop and on paper.

Checks what only a browser knows (nothing on the console, no request to anywhere, nothing wider than the screen, no
letters cut at a chart's edge, the keyboard comes to the figures and opens their tables, the first paint in time), and
leaves screenshots and a printed PDF for a person's eye. Not part of `make test`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
from pathlib import Path
from typing import Any

import aiohttp
from look import MOST_BYTES, PAINT_MS, SCHEMES, TIME_OUT_S, TRIES, WIDTHS, Tab, browser, keep, print_page, shoot, tab

_STATE = """({
  paint_ms: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN,
  elements: document.querySelectorAll("*").length,
})"""
_ALL_SHOWN = (
    "document.querySelectorAll('main > section').forEach((each) => { each.style.contentVisibility = 'visible'; })"
)
_LAID_OUT = """(() => {
  const drawings = [...document.querySelectorAll("figure svg")].filter((each) => each.checkVisibility());
  const cut = (svg) => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].filter((each) => {
      const box = each.getBoundingClientRect();
      return box.width && (box.left < frame.left - 6 || box.right > frame.right + 6);
    }).map((each) => `${svg.querySelector("title").textContent}: ${each.textContent}`);
  };
  return {
    drawings: drawings.length,
    cut: drawings.flatMap(cut).slice(0, 5),
    too_wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    wider: [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > innerWidth + 1
      && !each.closest(".wide-table, svg, nav")).slice(0, 3).map((each) => each.outerHTML.slice(0, 120)),
  };
})()"""


async def look(session: aiohttp.ClientSession, address: str, url: str, out: Path) -> list[str]:
    """Look at one report in every scheme and width; return what is wrong."""
    wrong = []
    for scheme, (name, (width, height, phone)) in itertools.product(SCHEMES, WIDTHS.items()):
        async with tab(session, address) as opened:
            await opened.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                             deviceScaleFactor=2 if phone else 1, mobile=phone)  # fmt: skip
            await opened.ask("Emulation.setEmulatedMedia",
                             features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip
            state = await _opened(opened, url)
            await opened.value(_ALL_SHOWN)
            state |= await opened.value(_LAID_OUT)
            print(f"{scheme:5} {name:7} first paint {state['paint_ms']:.0f} ms, {state['drawings']} charts, "
                  f"{state['elements']} elements")  # fmt: skip
            if name == "desktop" and scheme == "light":
                wrong += [f"keyboard: {each}" for each in await _used(opened)]
            await shoot(opened, out / f"{scheme}-{name}", width, height)
            if name == "desktop" and scheme == "light":
                keep(out / "printed.pdf", await print_page(opened))
            wrong += [f"{scheme} {name}: {each}" for each in _faults(state, opened, url)]
    return wrong


async def _opened(opened: Tab, url: str) -> dict[str, Any]:
    """Open the page, again where its first paint took too long: a busy machine is no fault of the page."""
    for _ in range(TRIES):
        opened.loaded.clear()
        await opened.ask("Page.navigate", url=url)
        await asyncio.wait_for(opened.loaded.wait(), TIME_OUT_S)
        await asyncio.sleep(0.3)  # a frame
        state = dict(await opened.value(_STATE))
        if (state["paint_ms"] or PAINT_MS) < PAINT_MS:
            break
    return state


def _faults(state: dict[str, Any], opened: Tab, own: str) -> list[str]:
    late = not (state["paint_ms"] or PAINT_MS) < PAINT_MS
    return [
        *(f"console: {error}" for error in opened.seen.errors),
        *(f"a request to {url}" for url in opened.seen.requests if url != own),
        *([f"{state['too_wide']} px wider than the screen"] if state["too_wide"] > 0 else []),
        *(f"stands out on the right: {element}" for element in state["wider"]),
        *(f"cut at the edge of its chart: {text}" for text in state["cut"]),
        *([f"the first paint took {state['paint_ms']} ms, not {PAINT_MS}"] if late else []),
    ]


async def _used(opened: Tab) -> list[str]:
    """Go through the page by its keyboard; return what does not answer."""
    wrong = []
    await opened.key("Tab")
    if await opened.value("document.activeElement.className") != "skip":
        wrong.append("the first stop is not the way past the links")
    elif not await opened.value("document.activeElement.getBoundingClientRect().width > 50"):
        wrong.append("the way past the links cannot be seen when it has the focus")
    table = "document.querySelector('figure details')"
    if await opened.value(f"{table} === null"):
        return [*wrong, "no chart has a table"]
    await opened.value(f"{table}.querySelector('summary').focus()")
    await opened.ask("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r")
    await opened.ask("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter")
    if not await opened.value(f"{table}.open && {table}.querySelector('table').checkVisibility()"):
        wrong.append("Enter does not open a chart's table")
    await opened.value(f"{table}.open = false")
    return wrong


async def _looked(url: str, out: Path) -> list[str]:
    async with browser() as address, aiohttp.ClientSession() as session:
        return await look(session, address, url, out)


def main(pages: list[Path], out: Path) -> int:
    """Look at some reports.

    Args:
        pages: to look at.
        out: folder of the pictures, one in it for each run.

    Returns:
        0 where nothing is wrong, 1 where something is.
    """
    wrong = []
    for page in pages:
        folder, size = out / page.parent.name, page.stat().st_size
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{page}: {size / 1e6:.2f} MB; pictures in {folder}")
        wrong += [f"{page}: {each}" for each in asyncio.run(_looked(page.absolute().as_uri(), folder))]
        wrong += [f"{page}: {size} bytes, more than {MOST_BYTES}"] if size > MOST_BYTES else []
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path, nargs="+", help="report.html of a run, or of several")
    parser.add_argument("--out", type=Path, default=Path("build/look/report"), help="folder of the pictures")
    chosen = parser.parse_args()
    sys.exit(main(chosen.pages, chosen.out))
