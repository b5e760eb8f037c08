"""`make look`: a verdict's report in a real browser, light and dark, on a phone, on a desktop and on paper.

The program checks facts that only a browser knows. The console is empty, the page requests nothing, no element is wider
than the screen, and no letter is cut at a chart's edge. The keyboard reaches the figures and opens their tables, and
the first paint is in time. It leaves screenshots and a printed PDF for a person. Not part of `make test`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

from browser import USED, Tab, View, faults, look_at, print_page, shoot, shown, widths

FRAME_S = 0.3  # until a loaded page has its first paint in its own records
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
  };
})()"""


async def look(opened: Tab, view: View, url: str, out: Path) -> list[str]:
    """Look at one report in one view; leave its pictures in `out` and return the faults."""
    state = await shown(opened, url, _loaded)
    await opened.value(_ALL_SHOWN)
    state |= await opened.value(_LAID_OUT) | await opened.value(widths(".wide-table, svg, nav"))
    print(f"{view.scheme:5} {view.screen:7} first paint {state['paint_ms'] or 0:.0f} ms, {state['drawings']} charts, "
          f"{state['elements']} elements")  # fmt: skip
    wrong = [f"keyboard: {each}" for each in await _used(opened)] if view == USED else []
    await shoot(opened, view, out / view.name)
    if view == USED:
        await print_page(opened, out / "printed.pdf")
    return [
        *wrong,
        *faults(state, opened.seen, url),
        *(f"cut at the edge of its chart: {text}" for text in state["cut"]),
    ]


async def _loaded(opened: Tab) -> dict[str, Any]:
    await asyncio.sleep(FRAME_S)
    return dict(await opened.value(_STATE))


async def _used(opened: Tab) -> list[str]:
    """Use the page by keyboard; return the parts that do not answer."""
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
    await opened.key("Enter", text="\r")
    if not await opened.value(f"{table}.open && {table}.querySelector('table').checkVisibility()"):
        wrong.append("Enter does not open a chart's table")
    await opened.value(f"{table}.open = false")
    return wrong


def main(pages: list[Path], out: Path) -> int:
    """Look at some reports.

    Args:
        pages: to look at.
        out: folder of the pictures, one in it for each run.

    Returns:
        0 without faults, 1 with faults.
    """
    wrong = []
    for page in pages:
        folder = out / page.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{page}: {page.stat().st_size / 1e6:.2f} MB; pictures in {folder}")
        wrong += [f"{page}: {each}" for each in look_at(page, partial(look, out=folder))]
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path, nargs="+", help="report.html of a run, or of several")
    parser.add_argument("--out", type=Path, default=Path("build/look/report"), help="folder of the pictures")
    chosen = parser.parse_args()
    sys.exit(main(chosen.pages, chosen.out))
