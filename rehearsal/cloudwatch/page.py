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

from rehearsal.cloudwatch import chart
from rehearsal.cloudwatch.page_data import PageSource, build_page_data
from tandem.monitoring.layout import COLUMNS
from tandem.monitoring.widget import Dashboard

_TEMPLATES = Path(__file__).parent / "templates"
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_UNITS = {"1": "", "percent": "%"}
_LONG_TEXT = 600  # characters of a text that reads better in two columns


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHeader:
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


def render_page(dashboards: Sequence[Dashboard], source: PageSource, header: PageHeader) -> str:
    """Return the page.

    Args:
        dashboards: in their order.
        source: what there is to draw from.
        header: what its head says.

    Raises:
        ExpressionError: an expression of a graph is of no form that is evaluated.
    """
    page_data = build_page_data(dashboards, source)
    library, program = chart.load_vega_library(), _read_template("page.js")
    return Template(_read_template("page.html")).substitute(
        policy=_build_content_policy([library, program]),
        title=escape(header.title),
        place=escape(header.place),
        band="" if header.band is None else f'<p class="band" role="note">{escape(header.band)}</p>',
        licences=_read_template("licences.txt"),
        style=_read_template("page.css"),
        facts="".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
            for name, value in _list_facts(header, page_data)
        ),
        notes="".join(f"<p>{escape(note)}</p>" for note in (*header.notes, *page_data["notes"])),
        links="".join(
            f'<a href="#{escape(dashboard["name"])}">{escape(dashboard["title"])}</a>'
            for dashboard in page_data["dashboards"]
        ),
        sections="\n".join(_render_section(dashboard) for dashboard in page_data["dashboards"]),
        data=_build_script_json({"chart": chart.build_chart_specification(), **page_data}),
        library=library,
        program=program,
    )


def _read_template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _build_content_policy(scripts: Iterable[str]) -> str:
    """Return the content security policy; Vega compiles its expressions, which is what 'unsafe-eval' lets it do."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes} 'unsafe-eval'; "
        "base-uri 'none'; form-action 'none'"
    )


def _build_script_json(value: dict[str, Any]) -> str:
    """Return JSON that ends no script element: `<`, `>` and `&` are written as escapes."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _list_facts(header: PageHeader, page_data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from header.facts
    first_moment, last_moment = (datetime.fromtimestamp(page_data[end], UTC) for end in ("start_s", "end_s"))
    same_day = first_moment.date() == last_moment.date()
    yield "Measured", f"{first_moment:%Y-%m-%d %H:%M} to {last_moment:{'%H:%M' if same_day else '%Y-%m-%d %H:%M'}} UTC"


def _format_duration(seconds: int) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {unit}{'' if seconds == size else 's'}"
    return f"{seconds} s"


def _render_section(dashboard: dict[str, Any]) -> str:
    name = escape(dashboard["name"])
    cards = "\n".join(_render_card(widget, f"{name}-{place}") for place, widget in enumerate(dashboard["widgets"]))
    controls = "".join(
        _render_control(dashboard, place, variable) for place, variable in enumerate(dashboard["variables"])
    )
    chooser = f'<form class="choices" aria-label="What is drawn">{controls}</form>' if controls else ""
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n'
        f'<header><h2 id="{name}-title">{escape(dashboard["title"])}</h2>{chooser}</header>\n'
        f'<div class="grid">\n{cards}\n</div>\n</section>'
    )


def _render_control(dashboard: dict[str, Any], place: int, variable: dict[str, Any]) -> str:
    default_value = dashboard["chosen"][place]

    def render_option(value: dict[str, Any]) -> str:
        name = escape(value["value"])
        return f'<option value="{name}"{" selected" if value["value"] == default_value else ""}>{name}</option>'

    option_html = "".join(render_option(value) for value in variable["values"] if value["listed"])
    extra_html = "".join(render_option(value) for value in variable["values"] if not value["listed"])
    group_html = f'<optgroup label="In these records only">{extra_html}</optgroup>' if extra_html else ""
    return f"<label>{escape(variable['label'])} <select>{option_html}{group_html}</select></label>"


def _render_card(widget: dict[str, Any], name: str) -> str:
    width = widget["width"]
    if widget["kind"] == "text":
        wide = " wide" if width == COLUMNS and len(widget["markdown"]) > _LONG_TEXT else ""
        return f'<div class="card text{wide}" style="--span:{width}">{_MARKDOWN.render(widget["markdown"])}</div>'
    heading_html = f'<h3 id="{name}">{escape(widget["title"].removesuffix(" [1]"))}</h3>'
    sentence_html = f'<p class="says">{_MARKDOWN.renderInline(widget["sentence"])}</p>'
    publisher_text = f"Published by <strong>{escape(', '.join(widget['publishers']))}</strong>"
    if widget["kind"] == "absent":
        absence_html = f'<p class="absent">{publisher_text}; not in these records{escape(widget["why"])}.</p>'
        return f'<div class="card gone" style="--span:{width}">{heading_html}{absence_html}{sentence_html}</div>'
    period_text = f". A point is {_format_duration(widget['period_s'])}" if widget["kind"] == "lines" else ""
    caption_html = f'<figcaption>{sentence_html}<p class="by">{publisher_text}{period_text}.</p></figcaption>'
    unit = _UNITS.get(widget["unit"], widget["unit"])
    body = (
        '<div class="chart"></div><div class="legend"></div>'
        if widget["kind"] == "lines"
        else '<div class="numbers"></div>'
    )
    return (
        f'<figure class="card graph" style="--span:{width}" data-unit="{escape(unit)}" aria-labelledby="{name}">'
        f"{heading_html}{body}{caption_html}</figure>"
    )
