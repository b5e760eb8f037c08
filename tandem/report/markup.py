"""HTML from the templates of this folder: what a template prints is text, and is escaped.

Invariant: no string of a record becomes markup; control characters and those that turn the direction of a line are
shown by signs, so a file holds nothing that a browser would refuse or an eye be deceived by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tandem.judge.text_format import clean_text

TEMPLATES = Path(__file__).parent / "templates"


def clean_value(value: object) -> str:
    """Return what a template prints of a value: nothing of None, signs for the control characters of a text."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else clean_text(str(value))


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=True, finalize=clean_value, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip


def render_template(name: str, **values: object) -> Markup:
    """Return a template of the folder, filled in."""
    return Markup(_ENVIRONMENT.get_template(f"{name}.html").render(values))  # noqa: S704 - autoescape is on


def build_sentence(text: str) -> Markup:
    """Return a sentence that stands by itself under a heading."""
    return Markup('<p class="says">{}</p>').format(clean_value(text))


def build_table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = (), class_: str = ""
) -> Markup:
    """Return a table; the first column heads each row.

    Args:
        caption: what it shows, for whoever does not see what stands around it.
        heads: of the columns.
        rows: cells of each.
        numbers: columns whose cells are figures, from 0.
        class_: of the table.
    """
    return render_template("table", caption=caption, heads=heads, rows=rows, numbers=numbers, class_=class_)
