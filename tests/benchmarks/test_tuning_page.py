"""docs/tuning.md has the tables that its command makes of the data of today."""

from __future__ import annotations

from pathlib import Path

import pytest
import tuning
from between_marks import marks, wrapped

PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"


@pytest.mark.parametrize("name", tuning.TABLES)
def test_table_is_current(name):
    begin, end = marks(name)
    held = PAGE.read_text().partition(f"{begin}\n")[2].partition(f"\n{end}")[0]
    assert held == wrapped("\n".join(tuning.TABLES[name]()))
