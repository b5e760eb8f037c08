"""The page: put together from its sections, written whole; and the charts as pictures beside it.

Invariant: one file without script and without any outside reference, which its own policy forbids it too; the same
verdict and records give the same bytes. Where a report cannot be written whole, that of an earlier verdict stays.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template

from tandem.bench.fault import WorldError
from tandem.bench.judge.form import Verdict
from tandem.bench.judge.observations import Observations
from tandem.bench.report import accepted, behind, cost, opening, output, over_time, speed, spreads
from tandem.bench.report.colors import variables
from tandem.bench.report.drawing import Chart, figure, picture
from tandem.bench.report.markup import Html, joined, tag
from tandem.bench.report.section import Section
from tandem.bench.simulation import BAND

FILE = "report.html"
CHARTS = "charts"
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, kw_only=True)
class Written:
    """What was written: the page, and a PNG of each of the main charts."""

    html: Path
    charts: tuple[Path, ...]


def write(verdict: Verdict, seen: Observations, folder: Path) -> Written:
    """Write the report of a verdict into a folder: report.html and charts/*.png.

    Args:
        verdict: to be shown.
        seen: the records it was made of.
        folder: to write to; charts of an earlier report in it are replaced.

    Raises:
        WorldError: the folder cannot be written to.
    """
    sections = list(_sections(verdict, seen))
    page = _page(verdict, sections)
    html, charts = folder / FILE, folder / CHARTS
    new_html, new_charts = folder / f"{FILE}.new", folder / f"{CHARTS}.new"
    try:
        new_charts.mkdir(parents=True, exist_ok=True)
        charts.mkdir(exist_ok=True)
        band = BAND if verdict.simulated else None
        drawn = [picture(chart, new_charts, band) for chart in _charts(sections)]
        new_html.write_text(page, encoding="utf-8")
        for old in charts.glob("*.png"):
            old.unlink()
        pictures = tuple(one.replace(charts / one.name) for one in drawn)
        new_html.replace(html)
    except OSError as error:
        raise WorldError(
            f"the report cannot be written: {error.strerror or error}",
            where=str(folder),
            change="make room, or report a copy of the folder that may be written to",
        ) from error
    finally:
        shutil.rmtree(new_charts, ignore_errors=True)
        with suppress(OSError):
            new_html.unlink(missing_ok=True)
    return Written(html=html, charts=pictures)


def _sections(verdict: Verdict, seen: Observations) -> Iterator[Section]:
    yield speed.section(verdict)
    yield spreads.section(verdict, seen)
    yield over_time.section(verdict, seen)
    yield output.section(verdict)
    yield accepted.section(verdict)
    yield cost.section(verdict)
    yield behind.controls(verdict)
    yield behind.claims(verdict)
    yield behind.definitions(verdict)
    yield behind.recompute(verdict)


def _charts(sections: list[Section]) -> Iterator[Chart]:
    return (part for section in sections for part in section.parts if isinstance(part, Chart) and part.slide)


def _page(verdict: Verdict, sections: list[Section]) -> str:
    links = joined(tag("li", tag("a", each.short, href=f"#{each.name}")) for each in sections)
    return Template((_TEMPLATES / "report.html").read_text(encoding="utf-8")).substitute(
        title=tag("title", f"{'Simulated: ' if verdict.simulated else ''}{opening.title(verdict)}"),
        style=variables() + (_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        opening=opening.opening(verdict),
        links=links,
        sections=joined((_section(each) for each in sections), "\n"),
        version=joined([verdict.version]),
    )


def _section(section: Section) -> Html:
    head = f"{section.name}-head"
    parts = [figure(part) if isinstance(part, Chart) else part for part in section.parts]
    return tag("section", tag("h2", section.title, id=head), *parts, id=section.name, aria_labelledby=head)
