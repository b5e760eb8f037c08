"""The generated pages say what the schemas say."""

from __future__ import annotations

from pathlib import Path

import pytest
from committed import ROOT

from tandem.spec import reference
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.record import SpecRecord
from tandem.spec.reference import render_pages, walk_schema_keys, write_pages

SCHEMAS: list[tuple[str, type[SpecRecord]]] = [("environment.md", Environment), ("experiment.md", Experiment)]
LEAVES = [(page, leaf) for page, record in SCHEMAS for leaf in walk_schema_keys(record)]


@pytest.mark.parametrize("page", render_pages())
def test_the_committed_page_is_current(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == render_pages()[page]


@pytest.mark.parametrize("page", [page for page, _ in SCHEMAS])
def test_every_leaf_but_the_name_is_a_row_and_says_what_it_means(page: str) -> None:
    leaves, text = [leaf for whose, leaf in LEAVES if whose == page], render_pages()[page]
    assert [leaf.path for leaf in leaves if not leaf.field.description] == []
    assert [leaf.path for leaf in leaves if f"| `{leaf.path}` |" not in text] == ["name"]


def test_a_row_says_type_limits_default_and_meaning() -> None:
    row = "| `capacity.nodes` | a whole number, from 1 to 64 | 1 | most nodes the fleet may ever have |"
    assert row in render_pages()["environment.md"]


def test_a_stale_page_is_told_and_left_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "DOCS", tmp_path)

    assert write_pages({"page.md": "new"}, ["--check"]) == 1
    assert list(tmp_path.iterdir()) == []
    assert write_pages({"page.md": "new"}, []) == 0
    assert write_pages({"page.md": "new"}, ["--check"]) == 0
    assert (tmp_path / "page.md").read_text() == "new"
