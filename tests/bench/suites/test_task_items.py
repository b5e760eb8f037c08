"""Items of a task: which answer is right, and which files are refused."""

from __future__ import annotations

import pytest

from tandem.bench.suites.task_items import TaskItem, is_right, load_items
from tandem.errors import InputError

ITEM = TaskItem(item="one", prompt="What is 1000 + 24?", answer="1024")


@pytest.mark.parametrize(
    ("text", "right"), [("It is 1,024.", True), ("1024 or 7", False), ("-1024", False), ("", False)]
)
def test_the_last_number_is_the_answer(text, right):
    assert is_right(ITEM, text) is right


@pytest.mark.parametrize("count", [0, 2])
def test_no_item_or_a_name_twice_is_refused(tmp_path, count):
    path = tmp_path / "items.jsonl"
    path.write_text('{"item": "one", "prompt": "p", "answer": "a"}\n' * count)
    with pytest.raises(InputError, match="no item, or two of one name"):
        load_items(path)
