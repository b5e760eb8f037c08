"""The tables of docs/ are what their programs compute of the data of today."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import figures
import pytest
from between_marks import read_between

DOCS = Path(__file__).parents[2] / "docs"
GROUPS = (figures.QUICK, figures.SLOW, figures.SLOWEST, figures.MEASURED)


@pytest.mark.parametrize("name", figures.QUICK)
def test_a_table_is_what_its_program_computes(name):
    assert figures.list_differences(name, figures.QUICK[name]()) == []


def test_another_figure_on_the_page_is_a_difference():
    name = "tuning loads"
    text = "\n".join(figures.QUICK[name]())
    assert figures.list_differences(name, re.sub(r"\d", "9", text, count=1).splitlines()) != []


def test_every_table_between_marks_has_a_program():
    text = "\n".join(path.read_text() for path in DOCS.glob("*.md"))
    names = re.findall(r"^<!-- (.+): begin -->$", text, flags=re.MULTILINE)
    assert set(names) == set(itertools.chain.from_iterable(GROUPS))


@pytest.mark.parametrize("name", figures.MEASURED)
def test_a_measured_table_names_its_command_and_day(name):
    assert re.match(r"`python benchmarks/\w+\.py`, 20\d\d-\d\d-\d\d", read_between(name))


def test_lines_of_command_and_day_above_a_table_are_no_difference():
    text = read_between("worlds")
    table = text[text.index("| world") :].splitlines()
    assert figures.list_differences("worlds", table) == []
