"""The page: whole in itself, the same bytes for the same input, and nothing from a file breaks out of it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
import vl_convert

from rehearsal.cloudwatch.page import PageHeader, render_page
from rehearsal.cloudwatch.page_data import MAX_POINTS, PageSource
from rehearsal.cloudwatch.series_store import MetricKey, SeriesStore
from tandem.monitoring.widget import (
    Dashboard,
    DashboardVariable,
    GraphMark,
    GraphWidget,
    MetricLine,
    TextWidget,
)

pytestmark = pytest.mark.xdist_group("watch-chart")  # the library is bundled once, for this module and test_chart
START = 1_700_000_100
EVIL = """</script><script>alert(1)</script>'"><img src=x onerror=alert(2)>&amp;\u2028<!--"""
MARKDOWN = "## Head\n\n**Bold** {}\n\n<b>raw</b> [do](javascript:alert(3))"
ABOUT = PageHeader(title="A & B", place="here / there", facts=(("Run", "r-1"),), notes=("Note <one>.",))


class Parsed(HTMLParser):
    """Elements with their attributes, and what stands in scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_script = tag in {"script", "style"}
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag not in {"script", "style"}

    def handle_data(self, data: str) -> None:
        if not self._in_script:
            self.text.append(data)
        elif self.elements[-1][0] == "script":
            self.scripts[-1] += data

    def of(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        found = [found for name, found in self.elements if name == tag]
        return [each for each in found if attributes.items() <= each.items()]


def drawn(class_: str = "json", arm: str = "base", **options: object) -> str:
    series = SeriesStore()
    dimensions = (("Variant", arm), ("PromptClass", class_))
    series.add(MetricKey.from_dimensions("N", "tpot_ms", dimensions), START, {45.0: 3})
    line = MetricLine(metric="tpot_ms", namespace="N", dimensions=dimensions, statistic="p50", label=arm)
    graph = GraphWidget(
        title=f"TPOT of {arm} [ms]", sentence=f"Says `tandem bench` of {class_}.", unit="ms", publishers=("bench",),
        lines=(line,), marks=(GraphMark(label=arm, value=50.0),),
    )  # fmt: skip
    absent = dataclasses.replace(graph, title="CPU [percent]", publishers=("container-insights",))
    numbers = dataclasses.replace(graph, title="Speed-up [1]", unit="1", view="numbers")
    dashboard = Dashboard(
        name="tandem-x", title=f"Arms of {arm}",
        variables=(DashboardVariable(dimension="PromptClass", label="Class", values=("json", "open")),),
        widgets=(TextWidget(markdown=MARKDOWN.format(class_)), graph, numbers, absent),
    )  # fmt: skip
    held = PageSource(series=series, publishers=frozenset({"bench"}), start_s=START, end_s=START + 60)
    return render_page([dashboard], held, dataclasses.replace(ABOUT, **options))


@pytest.fixture(scope="module")
def plain() -> str:
    return drawn()


def test_the_same_input_gives_the_same_bytes(plain: str) -> None:
    assert drawn() == plain


def test_the_page_loads_nothing(plain: str) -> None:
    found = Parsed(plain)
    loading = [
        each for _, attributes in found.elements for each in attributes if each in {"src", "srcset", "data", "action"}
    ]

    assert loading == []
    assert found.of("link") == []
    assert [each["href"] for each in found.of("a") if not each["href"].startswith("#")] == []
    assert not re.search(r"@import|url\(", plain.partition("<style>")[2].partition("</style>")[0])


def test_the_page_s_policy_lets_its_own_two_scripts_run_and_nothing_else(plain: str) -> None:
    found = Parsed(plain)
    (policy,) = found.of("meta", **{"http-equiv": "Content-Security-Policy"})
    programs = found.scripts[1:]
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in programs]

    assert len(programs) == 2
    assert policy["content"] == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashes[0]}' 'sha256-{hashes[1]}' "
        "'unsafe-eval'; base-uri 'none'; form-action 'none'"
    )


def test_what_files_say_never_becomes_an_element() -> None:
    found, plain = Parsed(drawn(class_=EVIL, arm=EVIL, title=EVIL, place=EVIL, facts=((EVIL, EVIL),))), Parsed(drawn())

    assert found.of("img") == []
    assert len(found.scripts) == len(plain.scripts) == 3
    assert [attributes for _, attributes in found.elements if "onerror" in attributes] == []
    assert "alert(2)" in "".join(found.text)  # it is there, as text


def test_what_files_say_comes_whole_out_of_the_json() -> None:
    data = json.loads(Parsed(drawn(class_=EVIL, arm=EVIL)).scripts[0])

    (dashboard,) = data["dashboards"]
    assert dashboard["variables"][0]["values"][-1]["value"] == EVIL
    assert dashboard["widgets"][1]["lines"][EVIL][0]["label"] == EVIL


def test_no_character_of_the_json_can_end_its_script() -> None:
    source = drawn(class_=EVIL, arm=EVIL)
    json_text = source.partition('id="data">')[2].partition("</script>")[0]

    assert not re.search("[<>&\u2028\u2029]", json_text)
    assert json.loads(json_text)


def test_markdown_is_drawn_without_raw_html_and_without_script_links(plain: str) -> None:
    assert "<strong>Bold</strong>" in plain
    assert "<b>raw</b>" not in plain
    assert "javascript:" not in "".join(str(each.get("href")) for each in Parsed(plain).of("a"))


def test_every_graph_shows_title_sentence_publisher_and_period(plain: str) -> None:
    said = " ".join("".join(Parsed(plain).text).split())

    assert "TPOT of base [ms]" in said
    assert "Says tandem bench of json." in said
    assert "Published by bench. A point is 5 minutes." in said or "Published by bench. A point is 1 minute." in said


def test_a_graph_without_its_publisher_is_said_and_not_drawn(plain: str) -> None:
    said = " ".join("".join(Parsed(plain).text).split())

    assert "CPU [percent]Published by container-insights; not in these records." in said
    assert len(Parsed(plain).of("figure")) == 2


def test_a_plain_number_shows_no_unit(plain: str) -> None:
    assert "Speed-up<" in plain


def test_a_choice_is_a_labelled_select_with_the_first_measured_value_selected() -> None:
    found = Parsed(drawn(class_="open"))

    assert [each["value"] for each in found.of("option") if "selected" in each] == ["open"]
    assert len(found.of("label")) == len(found.of("select")) == 1


def test_what_is_no_choice_of_the_dashboard_stands_in_a_group_of_its_own() -> None:
    assert [each["label"] for each in Parsed(drawn(class_="new")).of("optgroup")] == ["In these records only"]


def test_headings_go_down_one_level_at_a_time(plain: str) -> None:
    levels = [int(tag[1]) for tag, _ in Parsed(plain).elements if re.fullmatch(r"h[1-6]", tag)]

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_every_reference_by_id_leads_to_an_element(plain: str) -> None:
    found = Parsed(plain)
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    wanted = [each["aria-labelledby"] for _, each in found.elements if "aria-labelledby" in each]
    wanted += [each["href"].removeprefix("#") for each in found.of("a")]

    assert len(ids) == len(set(ids))
    assert set(wanted) <= set(ids)


def test_the_page_has_a_language_a_title_and_says_what_it_needs_without_scripts(plain: str) -> None:
    assert '<html lang="en">' in plain
    assert "<title>A &amp; B</title>" in plain
    assert "<noscript>" in plain


def test_a_page_with_all_the_points_that_it_has_room_for_is_below_two_megabytes(plain: str) -> None:
    """A point is at most a period of five digits and a value of four, with sign, point and commas: 13 characters."""
    longest = len("99999,") + len("0.0001234,") - 2

    assert len(plain.encode()) + MAX_POINTS * longest < 2_000_000


def test_light_dark_and_paper_define_the_same_colors() -> None:
    style = (Path(__file__).parents[2] / "rehearsal/cloudwatch/templates/page.css").read_text()
    roots = [set(re.findall(r"(--[\w-]+):", root)) for root in re.findall(r":root \{(.*?)\}", style, re.DOTALL)]

    assert len(roots) == 3
    assert roots[0] == roots[1] == roots[2]


def test_the_page_carries_the_licences_of_the_version_that_draws_it(plain: str) -> None:
    assert f"drawn by Vega {vl_convert.get_vega_version()} with parts of d3" in plain
    assert "University of Washington Interactive Data Lab" in plain
    assert "Mike Bostock" in plain


def light_of(color: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("names", "least"),
    [(("text", "muted", "link"), 4.5), ([f"hue-{hue}" for hue in range(6)], 3.0)],
    ids=["text", "lines"],
)
def test_words_and_lines_are_seen_on_what_they_stand_on(scheme: int, names: tuple[str, ...], least: float) -> None:
    style = (Path(__file__).parents[2] / "rehearsal/cloudwatch/templates/page.css").read_text()
    root = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]
    colors = dict(re.findall(r"--([\w-]+): (#\w{6});", root))

    for name in names:
        for ground in ("card", "ground"):
            low, high = sorted((light_of(colors[name]), light_of(colors[ground])))
            assert (high + 0.05) / (low + 0.05) >= least, (name, ground)
