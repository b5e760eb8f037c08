"""docs/verdict.md is the form of verdict.json."""

from __future__ import annotations

from tandem.judge import schema_docs


def test_the_committed_page_is_the_one_that_the_code_writes() -> None:
    assert schema_docs.PAGE_PATH.read_text() == schema_docs.render_page()


def test_fields_are_spelled_as_in_the_file() -> None:
    assert "| `class` | `str` |" in schema_docs.render_page()
