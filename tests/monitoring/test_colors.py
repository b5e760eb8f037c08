"""Colors of arms are told apart by whoever looks, on white and on dark."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from tandem.monitoring.dashboard_arms import BASELINE_COLOR, VARIANT_COLORS
from tandem.monitoring.experiment_dashboard import PROMPT_COLORS

Triple = tuple[float, float, float]
# Machado, Oliveira and Fernandes 2009, "A physiologically-based model for simulation of color
# vision deficiency", severity 1.0, applied to linear RGB
SIGHTS: dict[str, tuple[Triple, Triple, Triple]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
# CIE 1976 difference; 2.3 is just noticeable side by side, lines of a graph lie apart
TOLD_APART = 20
FIGURES = tuple(color for pair in PROMPT_COLORS.values() for color in pair)


def linear(color: str) -> Triple:
    red, green, blue = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return expanded(red), expanded(green), expanded(blue)


def expanded(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def seen(color: str, sight: str) -> Triple:
    """The color in CIE Lab, as someone of that sight sees it."""
    rgb = linear(color)
    red, green, blue = (
        min(1, max(0, sum(weight * value for weight, value in zip(row, rgb, strict=True))))
        for row in SIGHTS[sight]
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z)
    )
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize(
    "palette", [(BASELINE_COLOR, *VARIANT_COLORS), FIGURES], ids=["arms", "figures"]
)
def test_any_two_colors_of_a_graph_are_told_apart(palette, sight):
    closest = min(
        math.dist(seen(first, sight), seen(second, sight))
        for first, second in combinations(palette, 2)
    )
    assert closest >= TOLD_APART
