"""Colors stand off their ground as WCAG 2.2 asks of text (4.5 to 1) and of marks (3 to 1), light
and dark."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import get_args

import pytest

from tandem.judge.schema import CellWord
from tandem.report import header
from tandem.report.colors import DARK, LIGHT, SHAPES, TONES

TEXTS = (
    "text",
    "muted",
    "link",
    "faster",
    "slower",
    "same",
    "none",
    "caution-text",
    *(f"arm-{n}" for n in range(4)),
)
ON_TINT = {
    "faster": "tint-good",
    "slower": "tint-bad",
    "same": "tint-even",
    "none": "tint-open",
    "caution-text": "marked",
    "text": "marked",
}


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(colors):
    weak = [
        (name, ground)
        for name, ground in itertools.product(TEXTS, ("card", "ground"))
        if contrast(colors[name], colors[ground]) < 4.5
    ]
    assert weak == []


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_words_can_be_read_on_their_tint(colors):
    weak = [name for name, tint in ON_TINT.items() if contrast(colors[name], colors[tint]) < 4.5]
    assert weak == []


def test_every_verdict_has_a_shape_of_its_own():
    assert len(set(SHAPES.values())) == len(SHAPES) == len(get_args(CellWord))


def test_the_charts_have_the_colors_of_the_pages_tones():
    style = (Path(header.__file__).parent / "templates" / "report.css").read_text()
    assert (
        dict(re.findall(r"^\.(\w+) \{ --tone: (var\(--[\w-]+\));", style, flags=re.MULTILINE))
        == TONES
    )
