"""HTML as values: what is not markup already is text, and is escaped.

Invariant: no string of a record becomes markup; control characters and those that turn the direction of a line are
shown by signs, so a file holds nothing that a browser would refuse or an eye be deceived by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tandem.judge.text_format import clean_text

_VOID = {"br", "meta", "col"}
HtmlContent = str | None


class HtmlFragment(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape_text(content: str) -> HtmlFragment:
    """Return a text as HTML; HTML stays what it is."""
    return content if isinstance(content, HtmlFragment) else HtmlFragment(escape(clean_text(content), quote=True))


def build_tag(name: str, *contents: HtmlContent, **attributes: str | bool | None) -> HtmlFragment:
    """Return an element.

    Args:
        name: of the element.
        contents: texts and HTML, in their order; None is nothing.
        attributes: by name, `class_` for class and `_` for `-`; None and False leave one out, True gives it no value.
    """
    attribute_text = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape_text(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return HtmlFragment(f"<{name}{attribute_text}>")
    return HtmlFragment(f"<{name}{attribute_text}>{join_html(contents)}</{name}>")


def join_html(contents: Iterable[HtmlContent], separator: str = "") -> HtmlFragment:
    """Return contents one after another."""
    return HtmlFragment(separator.join(escape_text(content) for content in contents if content is not None))


def build_table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[HtmlContent]],
    *,
    numbers: Sequence[int] = (),
    class_: str = "",
) -> HtmlFragment:
    """Return a table that scrolls on its own where it is too wide; the first column heads each row.

    Args:
        caption: what it shows, for whoever does not see what stands around it.
        heads: of the columns.
        rows: cells of each.
        numbers: columns whose cells are figures, from 0.
        class_: of the table.
    """

    def column_class(column: int) -> str | None:
        return "n" if column in numbers else None

    head = build_tag(
        "tr",
        *(build_tag("th", content, scope="col", class_=column_class(column)) for column, content in enumerate(heads)),
    )
    body = join_html(
        build_tag(
            "tr",
            build_tag("th", row[0], scope="row"),
            *(build_tag("td", content, class_=column_class(column)) for column, content in enumerate(row[1:], 1)),
        )
        for row in rows
    )
    inside = build_tag(
        "table",
        build_tag("caption", caption),
        build_tag("thead", head),
        build_tag("tbody", body),
        class_=class_ or None,
    )
    return build_tag("div", inside, class_="wide-table", tabindex="0", role="group", aria_label=caption)


def build_details(summary: str, *contents: HtmlContent) -> HtmlFragment:
    """Return what is read on demand."""
    return build_tag("details", build_tag("summary", summary), *contents)


def build_paragraphs(sentences: Iterable[str], class_: str | None = None) -> HtmlFragment:
    """Return each as a paragraph."""
    return join_html(build_tag("p", sentence, class_=class_) for sentence in sentences)


def build_list(sentences: Iterable[str], class_: str | None = None) -> HtmlFragment | None:
    """Return a list; None of nothing."""
    items = [build_tag("li", sentence) for sentence in sentences]
    return build_tag("ul", *items, class_=class_) if items else None
