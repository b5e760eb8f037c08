"""HTML from the templates of this folder: values that a template prints are text, and are escaped.

Invariant: no string of a record becomes markup; control characters, and those that change the
direction of a line, are shown as visible signs, so a file has no character that a browser refuses
or that deceives a reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tandem.judge.text_format import clean_text

TEMPLATES = Path(__file__).parent / "templates"


def clean_value(value: object) -> str:
    """Return a value as a template prints it, with visible signs for control characters."""
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    return clean_text(str(value))


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    finalize=clean_value,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render_template(name: str, **values: object) -> Markup:
    """Return a filled-in template of the folder."""
    return Markup(_ENVIRONMENT.get_template(f"{name}.html").render(values))  # noqa: S704 - autoescape is on


def build_sentence(text: str) -> Markup:
    """Return a sentence as a separate paragraph under a heading."""
    return Markup('<p class="says">{}</p>').format(clean_value(text))


def build_table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    class_: str = "",
) -> Markup:
    """Return a table; the first column heads each row.

    Args:
        caption: content of the table, for readers who do not see its surroundings.
        heads: of the columns.
        rows: cells of each row.
        numbers: columns whose cells are figures, from 0.
        class_: CSS class of the table.
    """
    return render_template(
        "table", caption=caption, heads=heads, rows=rows, numbers=numbers, class_=class_
    )
