"""`make look`: a verdict's report in a real browser, light, dark, phone, desktop, paper.

The program checks facts that only a browser knows. The console is empty, the page requests nothing,
no element is wider than the screen, and no letter is cut at a chart's edge. The keyboard reaches
the figures and opens their tables, and the first paint is in time. It leaves screenshots and a
printed PDF for a person. Exit 1: a report has a fault. Not part of `make test`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from browser import USED, View, look_in_views, open_page, shoot

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOST_BYTES = 2_000_000  # of a page
SCROLLING = ".wide-table, svg, nav"
SHOW_ALL = """document.querySelectorAll("main > section").forEach((section) => {
  section.style.contentVisibility = "visible";
})"""
CUT = """(() => {
  const drawings = [...document.querySelectorAll("figure svg")]
    .filter((svg) => svg.checkVisibility());
  const cut = (svg) => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].filter((text) => {
      const box = text.getBoundingClientRect();
      return box.width && (box.left < frame.left - 6 || box.right > frame.right + 6);
    }).map((text) => `${svg.querySelector("title").textContent}: ${text.textContent}`);
  };
  return drawings.flatMap(cut).slice(0, 5);
})()"""


def look(page: Page, view: View, url: str, out: Path) -> list[str]:
    """Look at one report in one view; leave its pictures in `out` and return the faults."""
    faults = open_page(page, url, SCROLLING, SHOW_ALL)
    faults += [f"cut at the edge of its chart: {text}" for text in page.evaluate(CUT)]
    if view == USED:
        faults += [f"keyboard: {fault}" for fault in use_keyboard(page)]
        page.pdf(path=out / "printed.pdf", print_background=True, prefer_css_page_size=True)
    shoot(page, out / view.name)
    return faults


def use_keyboard(page: Page) -> Iterator[str]:
    """Use the page by keyboard; yield the parts that do not answer."""
    page.keyboard.press("Tab")
    first_stop = page.locator(".skip:focus")
    if not first_stop.count():
        yield "the first stop is not the way past the links"
    elif page.evaluate("document.activeElement.getBoundingClientRect().width") <= 50:  # noqa: PLR2004 - px of a word
        yield "the way past the links cannot be seen when it has the focus"
    summary = page.locator("figure details summary").first
    if not summary.count():
        yield "no chart has a table"
        return
    summary.focus()
    page.keyboard.press("Enter")
    if not page.locator("figure details").first.locator("table").is_visible():
        yield "Enter does not open a chart's table"


def main() -> int:
    """Look at some reports and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path, nargs="+", help="report.html of a run, or of several")
    parser.add_argument(
        "--out", type=Path, default=Path("build/look/report"), help="folder of the pictures"
    )
    options = parser.parse_args()
    exit_code = 0
    for page in options.pages:
        out = options.out / page.parent.name
        size = page.stat().st_size
        print(f"{page}: {size / 1e6:.2f} MB; pictures in {out}")
        url = page.absolute().as_uri()
        faults = list(look_in_views(url, partial(look, url=url, out=out)))
        if size > MOST_BYTES:
            faults.append(f"the page has {size} bytes, more than {MOST_BYTES}")
        for fault in faults:
            print(f"wrong: {page}: {fault}", file=sys.stderr)
            exit_code = 1
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
