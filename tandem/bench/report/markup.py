"""HTML as values: what is not markup already is text, and is escaped.

Invariant: no string of a record becomes markup; control characters and those that turn the direction of a line are
shown by signs, so a file holds nothing that a browser would refuse or an eye be deceived by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tandem.bench.judge.words import clean

_VOID = {"br", "meta", "col"}
Content = str | None


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(told: str) -> Html:
    """Return a text as HTML; HTML stays what it is."""
    return told if isinstance(told, Html) else Html(escape(clean(told), quote=True))


def tag(name: str, *contents: Content, **attributes: str | bool | None) -> Html:
    """Return an element.

    Args:
        name: of the element.
        contents: texts and HTML, in their order; None is nothing.
        attributes: by name, `class_` for class and `_` for `-`; None and False leave one out, True gives it no value.
    """
    told = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{told}>")
    return Html(f"<{name}{told}>{joined(contents)}</{name}>")


def joined(contents: Iterable[Content], between: str = "") -> Html:
    """Return contents one after another."""
    return Html(between.join(text(each) for each in contents if each is not None))


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Content]],
    *,
    numbers: Sequence[int] = (),
    class_: str = "",
) -> Html:
    """Return a table that scrolls on its own where it is too wide; the first column heads each row.

    Args:
        caption: what it shows, for whoever does not see what stands around it.
        heads: of the columns.
        rows: cells of each.
        numbers: columns whose cells are figures, from 0.
        class_: of the table.
    """

    def kind(place: int) -> str | None:
        return "n" if place in numbers else None

    head = tag("tr", *(tag("th", each, scope="col", class_=kind(place)) for place, each in enumerate(heads)))
    body = joined(
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", each, class_=kind(place)) for place, each in enumerate(row[1:], 1)),
        )
        for row in rows
    )
    inside = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body), class_=class_ or None)
    return tag("div", inside, class_="wide-table", tabindex="0", role="group", aria_label=caption)


def folded(summary: str, *contents: Content) -> Html:
    """Return what is read on demand."""
    return tag("details", tag("summary", summary), *contents)


def paragraphs(told: Iterable[str], class_: str | None = None) -> Html:
    """Return each as a paragraph."""
    return joined(tag("p", each, class_=class_) for each in told)


def listed(told: Iterable[str], class_: str | None = None) -> Html | None:
    """Return a list; None of nothing."""
    items = [tag("li", each) for each in told]
    return tag("ul", *items, class_=class_) if items else None
