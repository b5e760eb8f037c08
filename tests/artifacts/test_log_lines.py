"""Log lines: one JSON object each, whatever they are told."""

from __future__ import annotations

import io
import json
import sys

from tandem.artifacts.driver.log import log_event


def test_name_that_is_no_utf8_is_logged(monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="utf-8", errors="strict"))
    log_event("refused", file="a\udcff \u00e9")
    assert json.loads(output.getvalue().decode())["file"] == "a\udcff \u00e9"
