"""Names of others on a terminal."""

from __future__ import annotations

import io
import unicodedata

from tandem.bench.records.terminal_text import PrintableStream, fit_line

HIDDEN = "\x00\x07\x08\t\r\x1b\x7f\x85\x9b\u200b\u2028\u202e\u2066\ufeff\ud800"


def printed(text: str) -> str:
    out = io.StringIO()
    PrintableStream(out).write(text)
    return out.getvalue()


def test_a_control_character_becomes_a_sign():
    categories = {unicodedata.category(sign) for sign in printed(HIDDEN)}
    assert categories.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


def test_a_line_without_room_for_the_detail_leaves_it_out():
    assert (
        fit_line("4 requests", "round 1", "9 s left", width=20, separator="; ")
        == "4 requests; 9 s left"
    )
