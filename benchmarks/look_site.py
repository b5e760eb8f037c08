"""`make look-site`: the site of docs/ in a real browser, in light and dark, on phone and desktop.

The program opens the pages from the disk, and checks facts that only a browser knows: the console
is empty, the page requests only the site's own files, no element is wider than the screen, and the
search finds a word that is typed. Then a server sends the first page, because the search runs in
another way there. The program leaves screenshots for a person. Exit 1: a page has a fault. Not part
of `make test`.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from browser import View, look_in_views, open_page, shoot

if TYPE_CHECKING:
    from playwright.sync_api import Page

WORD = "acceptance"
SEARCH_MS = 10_000  # at most, until the first hit
SCROLLING = ".md-typeset__scrollwrap, pre, .md-sidebar, .md-search, .md-header, .md-tooltip"
OPEN_SEARCH = """(() => {
  document.querySelector("#__search").checked = true;
  document.querySelector("#__search").dispatchEvent(new Event("change"));
  document.querySelector(".md-search__input").focus();
})()"""
HITS = ".md-search-result__item > a"


def look(page: Page, view: View, url: str, root: str, out: Path) -> list[str]:
    """Look at one page in one view; leave its pictures in `out` and return the faults."""
    faults = open_page(page, url, SCROLLING)
    shoot(page, out / view.name)
    if url.endswith("/index.html") and out.stem == "index":
        faults += search(page, root)
        shoot(page, out / f"{view.name}-search")
    return faults


def search(page: Page, root: str) -> Iterator[str]:
    """Type a word into the page's search and yield the faults."""
    from playwright.sync_api import TimeoutError as SearchTimeoutError  # noqa: PLC0415 - of .venv-look

    page.evaluate(OPEN_SEARCH)
    page.keyboard.type(WORD)
    hits = page.locator(HITS)
    try:
        hits.first.wait_for(state="attached", timeout=SEARCH_MS)
    except SearchTimeoutError:
        yield f"the search finds nothing for {WORD!r}"
    links: list[str] = hits.evaluate_all("(links) => links.map((link) => link.href)")
    print(f"{root}: the search finds {len(links)} pages for {WORD!r}")
    yield from (f"the search leads to {link}" for link in links if not link.startswith(root))


def look_at_pages(root: str, pages: list[str], out: Path) -> Iterator[str]:
    """Look at pages in every view and yield the faults.

    Args:
        root: URL of the site's folder.
        pages: as their paths below it; on index.html the search is used too.
        out: folder of the pictures.
    """
    for page in pages:
        url = root + page
        look_at = partial(look, url=url, root=root, out=out / Path(page).stem)
        for fault in look_in_views(url, look_at, (root, "blob:", "about:srcdoc")):
            yield f"{url}: {fault}"


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves the site's files without a log of requests."""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def main() -> int:
    """Look at pages of the site and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="folder of the site")
    parser.add_argument("pages", nargs="+", help="pages, as their paths below it")
    parser.add_argument(
        "--out", type=Path, default=Path("build/look/site"), help="folder of the pictures"
    )
    options = parser.parse_args()
    faults = list(look_at_pages(f"{options.site.resolve().as_uri()}/", options.pages, options.out))
    handler = partial(QuietHandler, directory=str(options.site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}/"
        faults += look_at_pages(root, ["index.html"], options.out / "served")
        server.shutdown()
    for fault in faults:
        print(f"wrong: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
