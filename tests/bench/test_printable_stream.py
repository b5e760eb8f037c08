"""What a terminal gets of texts that others wrote."""

from __future__ import annotations

import asyncio
import io
import unicodedata

import pytest

from tandem.bench.progress import CLEAR_LINE, RunProgress
from tandem.bench.terminal_text import PrintableStream, fit_width

HIDDEN = "\x00\x07\x08\t\r\x1b\x7f\x85\x9b\u200b\u2028\u202e\u2066\ufeff\ud800"


def printed(text: str) -> str:
    out = io.StringIO()
    PrintableStream(out).write(text)
    return out.getvalue()


@pytest.mark.parametrize("sign", HIDDEN, ids=lambda sign: f"U+{ord(sign):04X}")
def test_a_control_character_becomes_a_sign(sign: str) -> None:
    categories = {unicodedata.category(each) for each in printed(f"a{sign}b")}

    assert categories.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


@pytest.mark.parametrize("text", ["plain", "two\nlines\n", "", "naïve 日本\u3000語 ␛ 😀\n"])
def test_a_text_without_control_characters_stays(text: str) -> None:
    assert printed(text) == text


def test_a_stream_says_how_much_it_took_and_the_rest_of_it_is_its_own() -> None:
    out = io.StringIO()

    assert PrintableStream(out).write("a\x1bb") == 3
    assert (PrintableStream(out).isatty(), PrintableStream(out).getvalue()) == (False, "a␛b")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_moves_the_cursor_and_no_sentence_does() -> None:
    out = Terminal()

    RunProgress(out, requests=1, expected_s=1.0).notify("note: \x1b[2J\u202e")

    assert out.getvalue() == f"{CLEAR_LINE}note: ␛[2J<U+202E>\n"


def test_progress_clears_its_line_through_a_printable_stream() -> None:
    out = Terminal()

    async def end() -> None:
        with RunProgress(PrintableStream(out), requests=1, expected_s=1.0).show_line():  # type: ignore[arg-type]
            pass

    asyncio.run(end())

    assert out.getvalue() == CLEAR_LINE


@pytest.mark.parametrize(
    ("name", "fitted"),
    [("abc", "abc  "), ("abcdef", "abcd…"), ("\u57fa" * 3, "\u57fa\u57fa…"), ("a\nb", "a\u240ab  ")],
)
def test_a_name_takes_its_columns_and_no_more(name: str, fitted: str) -> None:
    assert fit_width(name, 5) == fitted
