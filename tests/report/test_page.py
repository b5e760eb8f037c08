"""The page: whole in itself, usable without eyes or mouse, and nothing from a record breaks out of
it."""

from __future__ import annotations

import dataclasses
import itertools
import re
import struct
from errno import ENOSPC
from html.parser import HTMLParser
from pathlib import Path

import example_verdict as example
import msgspec
import pytest
from measured import failed, write_run

from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.errors import ExternalError
from tandem.judge import text_format
from tandem.judge.schema import RunControls, Verdict
from tandem.report import output
from tandem.report import page as report
from tandem.report.charts import ReportChart
from tandem.report.speed_up import build_speed_section

FASTER = "Faster (restarts not tested)"
_EMPTY = {"meta", "br", "col", "link", "img"}


class Parsed(HTMLParser):
    """Elements in their order, each with its attributes and the text in it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in _EMPTY:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self.elements[self._open.pop()][0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for place in self._open:
            self.elements[place][2].append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs, _ in self.elements if name == tag]

    def texts(self, tag: str) -> list[str]:
        return ["".join(words) for name, _, words in self.elements if name == tag]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    # letters of odd scripts are slow to draw
    two = {name: example.CLASSES[name] for name in ("repeat", "open")}
    return read_request_table(
        example.run(tmp_path_factory.mktemp("run") / "run", prompts=4, classes=two)
    )


@pytest.fixture(scope="module")
def verdict(seen):
    return example.verdict(seen)


@pytest.fixture(scope="module")
def page_file(seen, verdict, tmp_path_factory):
    evil_seen = dataclasses.replace(
        seen, classes=(*seen.classes, *(name + example.EVIL for name in seen.classes))
    )
    return report.write_report(example.evil(verdict), evil_seen, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def html(page_file):
    return page_file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html):
    return Parsed(html)


def test_nothing_of_the_page_is_elsewhere(html, page):
    # the names of SVG's vocabulary, and the measured servers
    allowed = ("http://www.w3.org", "http://127.0.0.1:1")
    addresses = {
        address
        for address in re.findall(r"https?://[^\s\"'<)]+", html)
        if not address.startswith(allowed)
    }
    links = [
        attrs[name]
        for (_, attrs, _), name in itertools.product(page.elements, ("src", "href", "xlink:href"))
        if attrs.get(name)
    ]
    assert addresses == set()
    assert [link for link in links if not str(link).startswith("#")] == []
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_the_page_has_no_script_and_forbids_any(page):
    policy = next(
        attrs["content"]
        for attrs in page.of("meta")
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert page.of("script") == []
    assert [
        attrs for _, attrs, _ in page.elements if any(name.startswith("on") for name in attrs)
    ] == []
    assert str(policy).startswith("default-src 'none'")
    assert "script-src" not in str(policy)


def test_what_records_hold_stays_text(html, page):
    assert page.of("img") == []
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in html
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u202a-\u202e\u2066-\u2069]", html)
    assert "\u241b[31m" in html  # the escape that moves a terminal's cursor, as a sign


def test_the_verdict_stands_before_every_figure(page):
    names = [name for name, _, _ in page.elements]
    assert page.texts("h1")[0] == f"\u25b2 {FASTER} {example.VARIANT} against {example.BASE}"
    assert names.index("h1") < names.index("nav") < names.index("svg")


@pytest.fixture(scope="module")
def simulated_page(seen, verdict, tmp_path_factory):
    """A report of simulated servers with limits, of which nothing says that they speculate."""
    changed_verdict = msgspec.structs.replace(
        verdict,
        simulated=True,
        acceptance=(),
        goodput={"ttft_ms": 500.0},
        arms=tuple(msgspec.structs.replace(figures, within_limits=190) for figures in verdict.arms),
    )
    return report.write_report(changed_verdict, seen, tmp_path_factory.mktemp("simulated"))


def test_simulated_servers_have_a_band_over_the_page(simulated_page, html):
    page = Parsed(simulated_page.read_text(encoding="utf-8"))
    names = [attrs.get("class") for _, attrs, _ in page.elements]
    assert page.texts("p")[0] == SIMULATED_BAND
    assert names.index("simulated") < names.index("eyebrow")
    assert (
        page.texts("title")[0] == f"Simulated: {FASTER}: {example.VARIANT} against {example.BASE}"
    )
    assert SIMULATED_BAND not in html


def test_every_picture_of_simulated_servers_has_the_band(page_file, simulated_page):
    def heights(files: Path) -> dict[str, int]:
        return {
            chart.name: struct.unpack(">I", chart.read_bytes()[20:24])[0]
            for chart in (files.parent / "charts").iterdir()
        }

    with_band = heights(simulated_page)
    plain = heights(page_file)
    names = with_band.keys() & plain
    assert len(names) > 3
    assert [name for name in names if with_band[name] <= plain[name]] == []


def test_a_screen_reader_finds_landmarks_and_a_skip_link(page):
    assert [len(page.of(name)) for name in ("main", "nav", "footer")] == [1, 1, 1]
    assert page.of("html")[0]["lang"] == "en"
    assert any(attrs.get("class") == "skip" for attrs in page.of("a"))


def test_every_name_that_is_referred_to_is_there_once(page):
    ids = [str(attrs["id"]) for _, attrs, _ in page.elements if attrs.get("id")]
    names = [
        *(str(attrs["href"])[1:] for attrs in page.of("a")),
        *(
            str(attrs[name])
            for (_, attrs, _), name in itertools.product(
                page.elements, ("aria-labelledby", "aria-describedby")
            )
            if attrs.get(name)
        ),
    ]

    assert len(ids) == len(set(ids))
    assert set(names) <= set(ids)


def test_every_drawing_has_a_name_and_a_description(page):
    drawings = page.of("svg")
    assert len(drawings) > 20
    assert all(
        attrs["role"] == "img" and attrs["aria-labelledby"] and attrs["aria-describedby"]
        for attrs in drawings
    )


def test_what_differs_in_an_example_is_marked_and_nothing_else(verdict):
    parts = [
        part
        for part in output.build_output_section(verdict).parts
        if not isinstance(part, ReportChart)
    ]
    marks = Parsed("".join(parts)).texts("mark")
    assert {"waves", "night"} <= {text.strip() for text in marks}
    assert "lighthouse" not in " ".join(marks)


@pytest.fixture
def dead(tmp_path):
    """A run in which every request of both arms failed."""
    return read_request_table(
        write_run(tmp_path / "run", [failed(), failed(arm="spec", request_id="r-1")])
    )


def write_page(verdict: Verdict, seen: RequestTable, folder: Path) -> Parsed:
    return Parsed(report.write_report(verdict, seen, folder).read_text(encoding="utf-8"))


def test_a_run_without_evidence_says_so_first(dead, tmp_path):
    page = write_page(example.nothing(dead), dead, tmp_path)
    assert page.texts("h1") == [f"? No evidence {example.VARIANT} against base"]
    assert "all requests failed" in page.texts("header")[0]
    assert page.of("svg") == []


@pytest.mark.parametrize(
    ("instance_type", "machine"),
    [("trn2.48xlarge", "trn2.48xlarge"), (None, "not stated")],
    ids=["known", "unknown"],
)
def test_the_first_screen_has_model_machine_and_next_step(
    dead, tmp_path, verdict, instance_type, machine
):
    run = msgspec.structs.replace(dead.run, instance_type=instance_type)
    bare = example.nothing(dead, headlines=verdict.headlines)
    page = write_page(bare, dataclasses.replace(dead, run=run), tmp_path)
    (head,) = page.texts("header")
    model = f"Model{run.arms[0].model}"
    servers = f"Servers run on{machine}"
    assert [
        text
        for text in (model, servers, "Next: Measure 6 starts")
        if text not in " ".join(head.split())
    ] == []


def test_the_first_screen_has_output_rarity_and_the_servers(verdict, simulated_page):
    (head,) = Parsed(simulated_page.read_text(encoding="utf-8")).texts("header")
    for figures in verdict.arms:
        times = (figures.ttft_p50_ms, figures.ttft_p99_ms, figures.tpot_p50_ms, figures.tpot_p99_ms)
        texts = (
            figures.url,
            "concurrency 4",
            *(f"{text_format.format_number(value)} ms" for value in times),
        )
        assert [text for text in texts if text not in head] == []
    assert f"190 of {verdict.arms[0].requests}" in head
    assert "requests within every --goodput limit (TTFT 500 ms)" in head
    assert "Output: differs in 2 of 60 pairs; the baseline differs from itself in 1 of 60." in head
    assert "a slow or failing request rarer than 1 in 10 may not show here." in head


def test_all_prompts_are_the_first_row_of_each_plot(verdict):
    charts = [part for part in build_speed_section(verdict).parts if isinstance(part, ReportChart)]
    rows = [Parsed(chart.table).texts("tr")[1] for chart in charts]
    assert [row.startswith("all prompts") for row in rows] == [True] * 4
    assert verdict.overall[0].deciding.why in rows[0]
    assert ["not tested" in row for row in rows] == [False, True, True, True]


def test_a_page_is_silent_on_speculation_and_claims_unless_stated(simulated_page):
    page = Parsed(simulated_page.read_text(encoding="utf-8"))
    words = " ".join(page.texts("body")).lower()
    assert [
        word
        for word in ("speculati", "the post", "acceptance", "num_spec", "draft", "claim")
        if word in words
    ] == []


def test_all_that_voids_a_run_stands_once_above_its_verdicts(dead, tmp_path, verdict):
    causes = tuple(f"control {number} failed" for number in range(7))
    reasons = (*(f"{cause}." for cause in causes), "outputs were not held against each other.")
    headline = msgspec.structs.replace(
        verdict.headlines[0],
        verdict="void",
        finding="void",
        sentence="The run is void.",
        reasons=reasons,
    )

    page = write_page(
        example.nothing(dead, controls=RunControls(void=causes), headlines=(headline,)),
        dead,
        tmp_path,
    )

    (head,) = page.texts("header")
    assert [head.count(reason) for reason in reasons] == [1] * 8
    assert (
        head.index("This run is void")
        < head.index(causes[0])
        < head.index(causes[-1])
        < head.index("Void ")
    )
    assert head.index("What limits it") < head.index(reasons[-1])


def test_charts_of_an_earlier_report_are_taken_away(dead, tmp_path):
    old = tmp_path / "charts" / "speed-up-9.png"
    old.parent.mkdir()
    old.write_bytes(b"old")
    report.write_report(example.nothing(dead), dead, tmp_path)
    assert not old.exists()


def test_a_disk_that_fills_leaves_the_earlier_report_whole(tmp_path, verdict, dead, monkeypatch):
    two_charts = example.nothing(
        dead, variants=verdict.variants, equality=verdict.equality, acceptance=verdict.acceptance
    )
    earlier = {
        tmp_path / "report.html": b"earlier",
        tmp_path / "charts" / "speed-up-0.png": b"earlier",
    }
    (tmp_path / "charts").mkdir()
    for path, content in earlier.items():
        path.write_bytes(content)
    names = []

    def fills(path: Path, content: bytes) -> int:
        names.append(path.name)
        with path.open("wb") as file:
            file.write(content[:100])
        if len(names) > 1:
            raise OSError(ENOSPC, "No space left on device")
        return len(content)

    monkeypatch.setattr(Path, "write_bytes", fills)

    with pytest.raises(ExternalError, match="No space left on device"):
        report.write_report(two_charts, dead, tmp_path)

    assert len(names) == 2
    assert {path: path.read_bytes() for path in earlier} == earlier
    assert sorted(path.name for path in tmp_path.iterdir()) == ["charts", "report.html", "run"]


def test_several_variants_have_a_heading_each_under_one(dead, tmp_path, verdict):
    both = tuple(
        msgspec.structs.replace(verdict.headlines[0], variant=name) for name in ("eagle", "ngram")
    )
    page = write_page(
        example.nothing(dead, headlines=both, variants=("eagle", "ngram")), dead, tmp_path
    )
    assert page.texts("h1") == [f"Verdict on 2 variants of {dead.baseline}"]
    assert [text for text in page.texts("h2") if "against" in text] == [
        f"\u25b2 {FASTER} {name} against {dead.baseline}" for name in ("eagle", "ngram")
    ]
