"""`make look-site`: the site of docs/ in a real browser, light and dark, on a phone and on a desktop.

The program checks facts that only a browser knows. The console is empty, the page requests only the site's own files,
no element is wider than the screen, and the search finds a word. It leaves screenshots for a person. Not part of `make
test`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from browser import Tab, View, faults, look_in_views, shoot, shown, widths

WORD = "acceptance"
SEARCH_S = 3.0
_STATE = 'performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN'
_SCROLLING = ".md-typeset__scrollwrap, pre, .md-sidebar, .md-search, .md-header, .md-tooltip"
_SEARCH = f"""(() => {{
  document.querySelector("#__search").checked = true;
  const field = document.querySelector(".md-search__input");
  field.focus();
  field.value = "{WORD}";
  field.dispatchEvent(new Event("keyup", {{bubbles: true}}));
  field.dispatchEvent(new Event("input", {{bubbles: true}}));
}})()"""
_FOUND = 'document.querySelectorAll(".md-search-result__item").length'


async def look(opened: Tab, view: View, url: str, *, root: str, out: Path) -> list[str]:
    """Look at one page in one view; leave its pictures in `out` and return the faults."""
    await shown(opened, url, _read_paint)
    await opened.value("localStorage.clear()")  # the last view left its colors there
    state = await shown(opened, url, _read_paint)
    state |= await opened.value(widths(_SCROLLING))
    await shoot(opened, view, out / view.name)
    requests = [request for request in opened.seen.requests if not request.startswith((root, "data:", "blob:"))]
    wrong = [f"a request to {request}" for request in requests]
    opened.seen.requests.clear()
    wrong += faults(state, opened.seen, url)
    if out.stem == "index":
        await opened.value(_SEARCH)
        await asyncio.sleep(SEARCH_S)
        count = await opened.value(_FOUND)
        print(f"{view.scheme:5} {view.screen:7} the search finds {count} pages for {WORD!r}")
        wrong += [] if count else [f"the search finds nothing for {WORD!r}"]
        await shoot(opened, view, out / f"{view.name}-search")
    return wrong


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
    wrong = []
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}/"
        for page in pages:
            folder = out / Path(page).stem
            folder.mkdir(parents=True, exist_ok=True)
            see = partial(look, root=root, out=folder)
            wrong += [f"{page}: {each}" for each in asyncio.run(look_in_views(root + page, see))]
        server.shutdown()
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)
    return 1 if wrong else 0


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
