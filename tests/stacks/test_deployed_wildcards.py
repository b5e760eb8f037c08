"""docs/reference/rights.md says of each `*` in the templates' statements why it cannot be narrower,
and of no other."""

from __future__ import annotations

import re

import pytest
from assemblies import ROOT, Templates, places
from wildcards import list_wildcards

pytestmark = pytest.mark.cdk

Row = tuple[tuple[str, ...], tuple[str, ...], str]  # actions, texts, why


def page_rows() -> list[Row]:
    text = (ROOT / "docs/reference/rights.md").read_text()
    table = text.partition("## Wildcards of what is deployed\n")[2].partition("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line[:2] == "| "
    ]
    return [(words(actions), words(texts), why) for _, actions, texts, why in cells[1:]]


def words(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`(.+?)`", cell))


def covers(row: Row, actions: frozenset[str], text: str) -> bool:
    """Whether a row has the text and every action of a statement; `kms:*` alone stands for actions
    written out."""
    keys = set(row[0])
    return text in row[1] and all(
        action in keys or ("kms:*" in keys and action.startswith("kms:")) for action in actions
    )


@pytest.fixture(scope="session")
def deployed(stacks: Templates) -> set[tuple[frozenset[str], str]]:
    """Actions and text of each `*` of every environment and variant."""
    return {
        wildcard
        for place in places()
        for name, template in stacks.items()
        if name.rpartition("-")[0] == place.name
        for wildcard in list_wildcards(template, place)
    }


def test_the_page_has_every_wildcard_of_the_templates(
    deployed: set[tuple[frozenset[str], str]],
) -> None:
    rows = page_rows()
    missing = [
        (text, sorted(actions))
        for actions, text in deployed
        if not any(covers(row, actions, text) for row in rows)
    ]

    assert (missing, deployed != set()) == ([], True)


def test_the_page_has_no_wildcard_that_no_template_has(
    deployed: set[tuple[frozenset[str], str]],
) -> None:
    unused_values = [
        (text, row[0])
        for row in page_rows()
        for text in row[1]
        if not any(covers(row, actions, text) for actions, of in deployed if of == text)
    ]

    assert unused_values == []


def test_every_wildcard_of_the_page_has_a_sentence() -> None:
    assert [row for row in page_rows() if len(row[2].split()) < 5] == []
