"""The colors of the report, light and dark: the page's CSS variables, and the colors of a PNG.

Invariant: text and marks have the contrast that WCAG 2.2 requires, 4.5 to 1 and 3 to 1
(tests/report measures the contrast); color is never the only sign: verdicts have shapes and words,
arms and classes have shapes and dashes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tandem.judge.schema import CellWord

LIGHT: Mapping[str, str] = {
    "ground": "#f5f6f8",
    "card": "#ffffff",
    "text": "#1b2330",
    "muted": "#566071",
    "faint": "#a9b1bd",
    "grid": "#e9ecf0",
    "edge": "#dfe3e9",
    "link": "#1f5fae",
    "band": "#e6eaf1",
    "floor": "#7e8896",
    "faster": "#0b6e4f",
    "slower": "#b3261e",
    "same": "#33558b",
    "none": "#5b6472",
    "caution-text": "#8a5300",
    "arm-0": "#5a6b85",
    "arm-1": "#ad5500",
    "arm-2": "#7b3fa8",
    "arm-3": "#13705c",
    "marked": "#fbe3c4",
    "tint-good": "#e5f3ee",
    "tint-bad": "#fbe9e7",
    "tint-even": "#e9eef7",
    "tint-open": "#eef0f3",
}
DARK: Mapping[str, str] = {
    "ground": "#0f1318",
    "card": "#171c23",
    "text": "#e7ebf0",
    "muted": "#a2acba",
    "faint": "#566171",
    "grid": "#252c36",
    "edge": "#29313c",
    "link": "#8ab9f5",
    "band": "#232b37",
    "floor": "#8d98a8",
    "faster": "#5fd0a5",
    "slower": "#ff9a8f",
    "same": "#9dbbf0",
    "none": "#a9b1bd",
    "caution-text": "#f0b45f",
    "arm-0": "#9fb0ca",
    "arm-1": "#f3a055",
    "arm-2": "#c493e8",
    "arm-3": "#4fc6a8",
    "marked": "#5a3d12",
    "tint-good": "#14302a",
    "tint-bad": "#3a1d1c",
    "tint-even": "#1c273b",
    "tint-open": "#222832",
}

MAX_ARMS = 4
"""Most arms in one chart: the baseline and three variants."""

TONES: Mapping[str, str] = {
    "good": "var(--faster)",
    "bad": "var(--slower)",
    "even": "var(--same)",
    "caution": "var(--caution-text)",
    "open": "var(--none)",
}
"""Class of a tone -> color of its words and marks; templates/report.css has the same colors for the
page's classes."""

LINE_LOOKS = (
    ("var(--text)", [1, 0], "circle"),
    ("var(--arm-1)", [6, 3], "square"),
    ("var(--same)", [2, 2], "diamond"),
    ("var(--arm-3)", [9, 3, 2, 3], "triangle-up"),
    ("var(--arm-2)", [4, 6], "triangle-down"),
    ("var(--arm-0)", [12, 4], "cross"),
)
"""Color, dash and shape of each line; a chart has at most so many lines."""

SHAPES: Mapping[CellWord, str] = {
    "faster": "triangle-right",
    "slower": "triangle-left",
    "same": "square",
    "mixed": "diamond",
    "no evidence": "circle",
}


def arm_color(index: int) -> str:
    """Return the color of an arm by its place: 0 is the baseline."""
    return f"var(--arm-{index % MAX_ARMS})"


def build_css_variables() -> str:
    """Return the CSS of the colors: light, then dark for who prefers it; paper is light."""
    return (
        f":root {{ color-scheme: light dark; {_format_css_variables(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_format_css_variables(DARK)} }} }}\n"
        f"@media print {{ :root {{ color-scheme: light; {_format_css_variables(LIGHT)} }} }}\n"
    )


def _format_css_variables(colors: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {color};" for name, color in colors.items())
