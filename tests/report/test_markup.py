"""Text never becomes markup."""

from __future__ import annotations

import pytest

from tandem.report.markup import build_sentence, build_table


@pytest.mark.parametrize(
    "build", [build_sentence, lambda text: build_table("all", ["name"], [[text]])]
)
def test_text_is_escaped_and_shows_its_control_characters(build):
    html = build("<b>\x1b")
    assert ("<b>" in html, "&lt;b&gt;\u241b" in html) == (False, True)
