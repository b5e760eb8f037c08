"""Writes the figures of a benchmark into a document, between two marks with the benchmark's name.

Invariant: text outside of the marks stays as it is, and a document without marks stays as it is.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tandem.errors import InputError

ROOT = Path(__file__).resolve().parent.parent

DOCS = ROOT / "docs"
COLUMNS = 125  # of prose; a row of a table is one line, however long
_KEPT = "\0"  # stands for a blank inside of a code span, where no line may end


def marks(name: str) -> tuple[str, str]:
    """Return the lines before and after the figures of this name."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def find_document(name: str) -> Path:
    """Return the page of docs/ that has the marks of this name.

    Raises:
        InputError: no page has them, or several have.
    """
    pages = [
        page
        for page in sorted(DOCS.glob("*.md"))
        if marks(name)[0] in page.read_text(encoding="utf-8")
    ]
    if len(pages) != 1:
        change = (
            f"write {' and '.join(marks(name))} where the figures stand, each on a line of its own"
        )
        raise InputError(
            f"{len(pages)} pages have the mark of {name}", where=str(DOCS), change=change
        )
    return pages[0]


def write_between(name: str, text: str, document: Path | None = None) -> None:
    """Replace the text between the marks of this name by `text`.

    Args:
        name: of the figures.
        text: Markdown, without the newline at its end; prose is wrapped.
        document: the page with the marks; without it the page is found by its marks.

    Raises:
        InputError: the page has no marks, or only one.
    """
    begin, end = marks(name)
    document = document or find_document(name)
    written = document.read_text() if document.exists() else ""
    before, begun, rest = written.partition(f"{begin}\n")
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise InputError(
            f"the document has no place for {name}",
            where=str(document),
            change=f"put back the lines {begin} and {end}",
        )
    document.write_text(f"{before}{begun}{wrapped(text)}\n{ended}{after}")


def read_between(name: str) -> str:
    """Return the text between the marks of this name, as its page has it.

    Raises:
        InputError: no page has the marks, or several have.
    """
    begin, end = marks(name)
    return find_document(name).read_text().partition(f"{begin}\n")[2].partition(f"\n{end}")[0]


def wrapped(text: str) -> str:
    """Return Markdown without a line of prose wider than documents are; tables stay as they are."""
    return "\n".join(line if line.startswith("|") else _folded(line) for line in text.split("\n"))


def _folded(line: str) -> str:
    spans = re.sub(r"`[^`]*`", lambda span: span[0].replace(" ", _KEPT), line)
    indent = "  " if line.startswith("- ") else ""
    folded = textwrap.fill(
        spans, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return folded.replace(_KEPT, " ")
