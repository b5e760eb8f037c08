"""Figures are written between the marks of their name, and nowhere else."""

from __future__ import annotations

import load
import pytest
import real
from between_marks import find_document, marks, write_between

from tandem.errors import InputError

BEGIN, END = marks("bursts")


@pytest.fixture
def document(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    return page


def test_only_what_stands_between_the_marks_is_written(document):
    write_between("bursts", "new", document)
    assert document.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize("missing", [BEGIN, END])
def test_a_document_with_one_of_the_marks_alone_is_left_alone(document, missing):
    document.write_text(document.read_text().replace(missing, ""))
    before = document.read_text()

    with pytest.raises(InputError, match="put back the lines"):
        write_between("bursts", "new", document)

    assert document.read_text() == before


def test_figures_without_a_page_are_refused():
    with pytest.raises(InputError, match="0 pages have the mark of nothing"):
        write_between("nothing", "new")


LLMPERF = [f"llmperf {name}" for name in ("comparison", "tokenizers", "machine")]


@pytest.mark.parametrize("name", [*load.PARTS, "usual ways", real.FIGURES, *LLMPERF])
def test_one_page_has_one_place_for_each_benchmark(name):
    page = find_document(name).read_text()
    assert [page.count(f"{mark}\n") for mark in marks(name)] == [1, 1]
