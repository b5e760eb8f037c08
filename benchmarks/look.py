"""`make look`: the dashboard's page in a real browser, light and dark, on a phone and on a desktop.

Writes the page of a run's folder, opens it in Debian's chromium, checks what only a browser knows (no error on the
console, no request to anywhere, nothing wider than the screen, every graph painted, the keyboard reads a graph), prints
the time to paint, and leaves screenshots and a printed PDF for a person's eye. Not part of `make test`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

from browser import TIME_OUT_S, USED, Tab, View, faults, look_at, print_page, shoot, shown, widths

POLL_S = 0.5  # a look takes the page time in which it would paint
_STATE = """(() => {
  const graphs = [...document.querySelectorAll("figure.graph .chart")];
  return {
    paint_ms: Number(document.documentElement.dataset.ready ?? NaN),
    painted_ms: Number(document.documentElement.dataset.painted ?? NaN),
    first_paint_ms: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN,
    graphs: graphs.length,
    unpainted: graphs.filter((each) => !each.querySelector("svg path, p"))
      .map((each) => each.closest("figure").querySelector("h3").textContent),
    empty: graphs.filter((each) => each.classList.contains("none")).length,
  };
})()"""


async def look(opened: Tab, view: View, url: str, out: Path) -> list[str]:
    """Look at the page in one view; leave its pictures in `out` and return what is wrong."""
    state = await shown(opened, url, _painted)
    state |= await opened.value(widths(".values, .text table, svg"))
    print(f"{view.scheme:5} {view.screen:7} first paint {state['first_paint_ms']:.0f} ms, first screen "
          f"{state['paint_ms']:.0f} ms, all {state['graphs']} graphs ({state['empty']} without data) "
          f"{state['painted_ms']:.0f} ms")  # fmt: skip
    await shoot(opened, view, out / view.name)
    wrong = []
    if view == USED:
        wrong = await _used(opened)
        await _print(opened, view, out / "printed.pdf")
    return [
        *wrong,
        *faults(state, opened.seen, url),
        *(f"not painted: {title}" for title in state["unpainted"]),
        *([] if state["graphs"] > state["empty"] else ["no graph shows anything"]),
    ]


async def _painted(opened: Tab) -> dict[str, Any]:
    for _ in range(int(TIME_OUT_S / POLL_S)):
        state = dict(await opened.value(_STATE))
        if state["painted_ms"]:
            return state
        await asyncio.sleep(POLL_S)
    sys.exit("error: the page did not say that it was painted: " + ("; ".join(opened.seen.errors) or "it is silent"))


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


async def _print(opened: Tab, view: View, out: Path) -> None:
    await opened.ask("Emulation.setEmulatedMedia", media="print")
    await shoot(opened, view, out.with_suffix(""))
    await opened.ask("Emulation.setEmulatedMedia", media="", features=[])
    await print_page(opened, out)


def main(page: Path, out: Path) -> int:
    """Look at one page.

    Args:
        page: to look at.
        out: folder of the pictures.

    Returns:
        0 where nothing is wrong, 1 where something is.
    """
    out.mkdir(parents=True, exist_ok=True)
    wrong = look_at(page, partial(look, out=out))
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)
    print(f"{page.stat().st_size / 1e6:.2f} MB; pictures in {out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the page to look at")
    parser.add_argument("--out", type=Path, default=Path("build/look"), help="folder of the pictures")
    chosen = parser.parse_args()
    sys.exit(main(chosen.page, chosen.out))
