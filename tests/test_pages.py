"""The generated pages say what the code says."""

from __future__ import annotations

import pytest
from write_pages import DOCS, REFERENCES, render_pages, walk_schema_keys, write_pages

PAGES = render_pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_current(name):
    assert (DOCS / name).read_text() == PAGES[name]


@pytest.mark.parametrize("name", REFERENCES)
def test_every_key_is_a_row_with_its_meaning(name):
    keys = list(walk_schema_keys(REFERENCES[name]))
    assert [key.path for key in keys if not key.field.description] == []
    assert [key.path for key in keys if f"| `{key.path}` |" not in PAGES[name]] == ["name"]


def test_a_stale_page_is_named_or_written(tmp_path):
    assert write_pages({"page.md": "new"}, tmp_path, ["--check"]) == 1
    assert list(tmp_path.iterdir()) == []
    assert write_pages({"page.md": "new"}, tmp_path, []) == 0
    assert write_pages({"page.md": "new"}, tmp_path, ["--check"]) == 0
