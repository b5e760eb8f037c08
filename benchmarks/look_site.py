"""`make look-site`: the site of docs/ in a real browser, in light and dark, on phone and desktop.

The program opens the pages from the disk, and checks facts that only a browser knows: the console is
empty, the page requests only the site's own files, no element is wider than the screen, and the
search finds a word that is typed. Then a server sends the first page, because the search runs in
another way there. The program leaves screenshots for a person. Not part of `make test`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from browser import Seen, Tab, View, faults, look_in_views, shoot, shown, widths

WORD = "acceptance"
SEARCH_S = 10.0  # at most, until the first hit
_STATE = 'performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN'
_SCROLLING = ".md-typeset__scrollwrap, pre, .md-sidebar, .md-search, .md-header, .md-tooltip"
_OPEN_SEARCH = """(() => {
  document.querySelector("#__search").checked = true;
  document.querySelector("#__search").dispatchEvent(new Event("change"));
  document.querySelector(".md-search__input").focus();
})()"""
_HITS = '[...document.querySelectorAll(".md-search-result__item > a")].map((link) => link.href)'


async def look(opened: Tab, view: View, url: str, *, root: str, out: Path) -> list[str]:
    """Look at one page in one view; leave its pictures in `out` and return the faults."""
    await shown(opened, url, _read_paint)
    await opened.value("localStorage.clear()")  # the last view left its colors there
    state = await shown(opened, url, _read_paint)
    state |= await opened.value(widths(_SCROLLING))
    await shoot(opened, view, out / view.name)
    wrong = faults(state, Seen(), url)  # messages and requests are read below, those of the search too
    if out.stem == "index":
        wrong += await _search(opened, view, root)
        await shoot(opened, view, out / f"{view.name}-search")
    wrong += [f"console: {error}" for error in opened.seen.errors]
    own_starts = (root, "data:", "blob:", "about:srcdoc")
    return [
        *wrong,
        *(f"a request to {request}" for request in opened.seen.requests if not request.startswith(own_starts)),
    ]


async def _search(opened: Tab, view: View, root: str) -> list[str]:
    """Type a word into the page's search and return the faults."""
    await opened.value(_OPEN_SEARCH)
    await opened.ask("Input.insertText", text=WORD)
    hits: list[str] = []
    deadline_s = time.monotonic() + SEARCH_S
    while not hits and time.monotonic() < deadline_s:
        await asyncio.sleep(0.2)
        hits = await opened.value(_HITS)
    print(f"{root.partition(':')[0]:5} {view.scheme:5} {view.screen:7} the search finds {len(hits)} pages for {WORD!r}")
    foreign_hits = [f"the search leads to {hit}" for hit in hits if not hit.startswith(root)]
    return foreign_hits if hits else [f"the search finds nothing for {WORD!r}"]


async def _read_paint(opened: Tab) -> dict[str, Any]:
    await asyncio.sleep(0.3)
    return {"paint_ms": await opened.value(_STATE)}


def main(site: Path, pages: list[str], out: Path) -> int:
    """Look at pages of the site; return 0 without faults, 1 with faults.

    Args:
        site: its folder.
        pages: to look at, as their paths below it; on index.html the search is used too.
        out: folder of the pictures, one in it for each page.
    """
    wrong = look_at_pages(f"{site.resolve().as_uri()}/", pages, out)
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        wrong += look_at_pages(f"http://127.0.0.1:{server.server_port}/", ["index.html"], out / "served")
        server.shutdown()
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)
    return 1 if wrong else 0


def look_at_pages(root: str, pages: list[str], out: Path) -> list[str]:
    """Look at pages in every view and return the faults.

    Args:
        root: URL of the site's folder.
        pages: as their paths below it.
        out: folder of the pictures.
    """
    wrong = []
    for page in pages:
        folder = out / Path(page).stem
        folder.mkdir(parents=True, exist_ok=True)
        see = partial(look, root=root, out=folder)
        wrong += [f"{root}{page}: {each}" for each in asyncio.run(look_in_views(root + page, see))]
    return wrong


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves the site's files without a log of requests."""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="folder of the site")
    parser.add_argument("pages", nargs="+", help="pages, as their paths below it")
    parser.add_argument("--out", type=Path, default=Path("build/look/site"), help="folder of the pictures")
    chosen = parser.parse_args()
    sys.exit(main(chosen.site, chosen.pages, chosen.out))
