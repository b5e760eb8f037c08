"""docs/verdict.md is the form of verdict.json."""

from __future__ import annotations

import inspect

import msgspec

from tandem.judge import schema, schema_docs


def test_the_committed_page_is_the_one_that_the_code_writes() -> None:
    assert schema_docs.PAGE_PATH.read_text() == schema_docs.render_page()


def test_every_value_of_the_form_has_a_section() -> None:
    kinds = [kind for kind in vars(schema).values() if inspect.isclass(kind) and issubclass(kind, msgspec.Struct)]

    assert [kind.__name__ for kind in kinds if f"## {kind.__name__}\n" not in schema_docs.render_page()] == []


def test_fields_are_spelled_as_in_the_file() -> None:
    assert "| `class` | `str` |" in schema_docs.render_page()


def test_every_word_of_a_verdict_is_named() -> None:
    assert "faster but not the same output" in schema_docs.render_page()
