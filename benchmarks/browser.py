"""A real headless browser and its views of a page: light and dark, on phone and desktop.

Playwright drives Debian's chromium, from `.venv-look`; it brings no browser of its own. This module
depends on no page.
"""

from __future__ import annotations

import itertools
import math
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Page

TRIES = 3
PAINT_MS = 1000  # longest time to the first paint, the pages' own limit
FRAME_MS = 300  # until a loaded page has its first paint in its own records
BAD_MESSAGES = ("error", "warning", "assert")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
STATE = """(scrolling) => ({
  paint_ms: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN,
  too_wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  wider: [...document.querySelectorAll("body *")].filter((element) =>
    element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(scrolling))
    .slice(0, 3).map((element) => element.outerHTML.slice(0, 120)),
})"""


class View(NamedTuple):
    """The view of a page: colors, and a screen in CSS pixels."""

    scheme: str
    screen: str
    width: int
    height: int

    @property
    def name(self) -> str:
        """The name in file names and faults."""
        return f"{self.scheme}-{self.screen}"


SCREENS = (("phone", 390, 844), ("desktop", 1440, 900))
VIEWS = tuple(
    View(scheme, *screen) for scheme, screen in itertools.product(("light", "dark"), SCREENS)
)
USED = VIEWS[1]
"""The view for use by keyboard and for print: light, on a desktop."""

Look = Callable[["Page", View], list[str]]
"""Looks at an open page in one view, and returns the faults."""


def look_in_views(url: str, look: Look, own: tuple[str, ...] = ()) -> Iterator[str]:
    """Open an address in every view, and yield the faults.

    Args:
        url: of the page.
        look: opens and uses it.
        own: what the address of a request may begin with, besides `url` and `data:`.

    Raises:
        SystemExit: there is no browser.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of .venv-look, which the tests do not have

    programs = [program for program in map(shutil.which, PROGRAMS) if program]
    if not programs:
        sys.exit(
            "error: no browser: install Debian's chromium (apt-get install chromium), then `make"
            " look` again"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=programs[0])
        for view in VIEWS:
            page = browser.new_page(
                viewport={"width": view.width, "height": view.height},
                device_scale_factor=2 if view.screen == "phone" else 1,
                is_mobile=view.screen == "phone",
                color_scheme=view.scheme,
            )
            faults: list[str] = []
            listen(page, faults, (url, "data:", *own))
            for fault in look(page, view) + faults:
                yield f"{view.name}: {fault}"
            page.close()


def listen(page: Page, faults: list[str], own: tuple[str, ...]) -> None:
    """Add a fault per bad console message, script error and request to anywhere else."""

    def add_message(message: Any) -> None:
        if message.type in BAD_MESSAGES:
            faults.append(f"console: {message.text}")

    def add_request(request: Any) -> None:
        if not request.url.startswith(own):
            faults.append(f"a request to {request.url}")

    page.on("console", add_message)
    page.on("pageerror", lambda error: faults.append(f"console: {error}"))
    page.on("request", add_request)


def open_page(page: Page, url: str, scrolling: str, setup: str = "null") -> list[str]:
    """Open a page and return its faults: elements too wide, a late paint.

    The page is opened again if the first paint came too late, because a busy machine is no fault of
    the page.

    Args:
        page: the tab.
        url: of the page.
        scrolling: selector of elements that may be wider than the screen, because they scroll.
        setup: script that runs before elements are measured.
    """
    for _ in range(TRIES):
        page.goto(url)
        page.wait_for_timeout(FRAME_MS)
        page.evaluate(setup)
        state = page.evaluate(STATE, scrolling)
        print(
            f"{url.rpartition('/')[2]}, {page.viewport_size}: first paint"
            f" {state['paint_ms']:.0f} ms"
        )
        if not is_late(state["paint_ms"]):
            break
    return list(list_faults(state))


def is_late(paint_ms: float) -> bool:
    """Return whether a paint never came or came too late."""
    return math.isnan(paint_ms) or paint_ms > PAINT_MS


def list_faults(state: dict[str, Any]) -> Iterator[str]:
    """Yield the faults of a page by its measurements (STATE)."""
    if state["too_wide"] > 0:
        yield f"{state['too_wide']} px wider than the screen"
    for element in state["wider"]:
        yield f"stands out on the right: {element}"
    if is_late(state["paint_ms"]):
        yield f"painted after {state['paint_ms']:.0f} ms, not {PAINT_MS}"


def shoot(page: Page, out: Path) -> None:
    """Take pictures of the first screen and whole page: two files, names beginning with `out`."""
    page.screenshot(path=out.with_suffix(".png"))
    page.screenshot(path=out.with_name(f"{out.name}-whole.png"), full_page=True)
