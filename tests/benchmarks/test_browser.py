"""What is a fault of a page; `make look` asks a real browser, which is not there in the tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from browser import PAINT_MS, TRIES, list_faults, listen, open_page

FINE: dict[str, Any] = {"paint_ms": 200.0, "too_wide": 0, "wider": []}
PAGE = "file:///page.html"


class RecordedTab:
    """A tab that shows what it is given, and keeps what is asked of it."""

    viewport_size = None

    def __init__(self, *paints_ms: float) -> None:
        self.paints_ms = iter(paints_ms)
        self.listeners: dict[str, Any] = {}
        self.opened: list[str] = []

    def on(self, event: str, listener: Any) -> None:
        self.listeners[event] = listener

    def goto(self, url: str) -> None:
        self.opened.append(url)

    def wait_for_timeout(self, _: int) -> None:
        pass

    def evaluate(self, _: str, *arguments: str) -> Any:
        return {**FINE, "paint_ms": next(self.paints_ms)} if arguments else None


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ({"too_wide": 3}, "3 px wider than the screen"),
        ({"wider": ["<table>"]}, "stands out on the right: <table>"),
        ({"paint_ms": PAINT_MS + 1.0}, f"painted after {PAINT_MS + 1} ms, not {PAINT_MS}"),
        ({"paint_ms": float("nan")}, f"painted after nan ms, not {PAINT_MS}"),
    ],
)
def test_a_page_beyond_a_limit_has_a_fault(state: dict[str, Any], fault: str) -> None:
    assert list(list_faults({**FINE, **state})) == [fault]


@pytest.mark.parametrize(
    ("paints_ms", "opened_times"), [([200], 1), ([1500, 200], 2), ([1500] * TRIES, TRIES)]
)
def test_a_page_that_is_painted_late_is_opened_again(
    paints_ms: list[float], opened_times: int
) -> None:
    tab = RecordedTab(*paints_ms)
    faults = open_page(tab, PAGE, "nav")  # type: ignore[arg-type]
    assert tab.opened == [PAGE] * opened_times
    assert bool(faults) == (paints_ms[-1] > PAINT_MS)


def test_a_request_elsewhere_and_a_bad_message_are_faults() -> None:
    tab = RecordedTab()
    faults: list[str] = []
    listen(tab, faults, (PAGE, "data:"))  # type: ignore[arg-type]
    for url in (PAGE, "data:image/png;base64,AA==", "https://example.com/font.woff2"):
        tab.listeners["request"](SimpleNamespace(url=url))
    for kind in ("log", "error"):
        tab.listeners["console"](SimpleNamespace(type=kind, text=f"of kind {kind}"))

    assert faults == ["a request to https://example.com/font.woff2", "console: of kind error"]
