"""Dashboards as one page that needs nothing but itself: no network, no server, no AWS.

Invariant: the same dashboards and series give the same bytes; the page's own policy forbids it to load anything, and
lets no script run but the two whose hashes it names. Whatever comes from files is text: escaped in HTML, and in the
JSON of the page no `<` stands.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from markdown_it import MarkdownIt

from tandem.watch import chart
from tandem.watch.layout import COLUMNS
from tandem.watch.picture import Held, picture
from tandem.watch.widget import Dashboard

_TEMPLATES = Path(__file__).parent / "templates"
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_UNITS = {"1": "", "percent": "%"}
_LONG = 600  # characters of a text that reads better in two columns


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the page says of the records it draws.

    Args:
        title: of the page.
        place: environment and experiment.
        facts: name and value, in their order.
        notes: sentences that a reader must know.
        band: stands over everything; None for none.
    """

    title: str
    place: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    band: str | None = None


def page(dashboards: Sequence[Dashboard], held: Held, about: About) -> str:
    """Return the page.

    Args:
        dashboards: in their order.
        held: what there is to draw from.
        about: what its head says.

    Raises:
        ExpressionError: an expression of a graph is of no form that is evaluated.
    """
    drawn = picture(dashboards, held)
    library, program = chart.library(), _template("page.js")
    return Template(_template("page.html")).substitute(
        policy=_policy([library, program]),
        title=escape(about.title),
        place=escape(about.place),
        band="" if about.band is None else f'<p class="band" role="note">{escape(about.band)}</p>',
        licences=_template("licences.txt"),
        style=_template("page.css"),
        facts="".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in _facts(about, drawn)
        ),
        notes="".join(f"<p>{escape(note)}</p>" for note in (*about.notes, *drawn["notes"])),
        links="".join(
            f'<a href="#{escape(dashboard["name"])}">{escape(dashboard["title"])}</a>'
            for dashboard in drawn["dashboards"]
        ),
        sections="\n".join(_section(dashboard) for dashboard in drawn["dashboards"]),
        data=_json({"chart": chart.chart(), **drawn}),
        library=library,
        program=program,
    )


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """Return the content security policy; Vega compiles its expressions, which is what 'unsafe-eval' lets it do."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts
    )
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes} 'unsafe-eval'; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: dict[str, Any]) -> str:
    """Return JSON that ends no script element: `<`, `>` and `&` are written as escapes."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _facts(about: About, drawn: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from about.facts
    first, last = (datetime.fromtimestamp(drawn[end], UTC) for end in ("start_s", "end_s"))
    same_day = first.date() == last.date()
    yield "Measured", f"{first:%Y-%m-%d %H:%M} to {last:{'%H:%M' if same_day else '%Y-%m-%d %H:%M'}} UTC"


def _duration(seconds: int) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {unit}{'' if seconds == size else 's'}"
    return f"{seconds} s"


def _section(dashboard: dict[str, Any]) -> str:
    name = escape(dashboard["name"])
    cards = "\n".join(_card(widget, f"{name}-{place}") for place, widget in enumerate(dashboard["widgets"]))
    controls = "".join(_control(dashboard, place, variable) for place, variable in enumerate(dashboard["variables"]))
    chooser = f'<form class="choices" aria-label="What is drawn">{controls}</form>' if controls else ""
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n'
        f'<header><h2 id="{name}-title">{escape(dashboard["title"])}</h2>{chooser}</header>\n'
        f'<div class="grid">\n{cards}\n</div>\n</section>'
    )


def _control(dashboard: dict[str, Any], place: int, variable: dict[str, Any]) -> str:
    chosen = dashboard["chosen"][place]

    def option(value: dict[str, Any]) -> str:
        name = escape(value["value"])
        return f'<option value="{name}"{" selected" if value["value"] == chosen else ""}>{name}</option>'

    listed = "".join(option(value) for value in variable["values"] if value["listed"])
    others = "".join(option(value) for value in variable["values"] if not value["listed"])
    grouped = f'<optgroup label="In these records only">{others}</optgroup>' if others else ""
    return f"<label>{escape(variable['label'])} <select>{listed}{grouped}</select></label>"


def _card(widget: dict[str, Any], name: str) -> str:
    width = widget["width"]
    if widget["kind"] == "text":
        wide = " wide" if width == COLUMNS and len(widget["markdown"]) > _LONG else ""
        return f'<div class="card text{wide}" style="--span:{width}">{_MARKDOWN.render(widget["markdown"])}</div>'
    head = f'<h3 id="{name}">{escape(widget["title"].removesuffix(" [1]"))}</h3>'
    said = f'<p class="says">{_MARKDOWN.renderInline(widget["sentence"])}</p>'
    by = f"Published by <strong>{escape(', '.join(widget['publishers']))}</strong>"
    if widget["kind"] == "absent":
        gone = f'<p class="absent">{by}; not in these records{escape(widget["why"])}.</p>'
        return f'<div class="card gone" style="--span:{width}">{head}{gone}{said}</div>'
    each = f". A point is {_duration(widget['period_s'])}" if widget["kind"] == "lines" else ""
    under = f'<figcaption>{said}<p class="by">{by}{each}.</p></figcaption>'
    unit = _UNITS.get(widget["unit"], widget["unit"])
    body = (
        '<div class="chart"></div><div class="legend"></div>'
        if widget["kind"] == "lines"
        else '<div class="numbers"></div>'
    )
    return (
        f'<figure class="card graph" style="--span:{width}" data-unit="{escape(unit)}" aria-labelledby="{name}">'
        f"{head}{body}{under}</figure>"
    )
