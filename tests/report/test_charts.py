"""What charts draw is what the records and the verdict say, bounded; looked at in the
specification, not drawn."""

from __future__ import annotations

import dataclasses
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import example_verdict as example
import msgspec
import numpy as np
import pytest

from tandem.bench.figures.request_table import read_request_table
from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.schema import TokenCost
from tandem.report import acceptance, appendix, distributions, speed_up, time_series
from tandem.report.charts import FULL_PX, NARROW_PX, ReportChart, ReportSection, compose_slide

MEASURED = Path(__file__).parents[1] / "monitoring" / "measured" / "run"


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    return read_request_table(example.run(tmp_path_factory.mktemp("run") / "run", prompts=4))


@pytest.fixture(scope="module")
def measured():
    return read_request_table(MEASURED)


@pytest.fixture(scope="module")
def verdict(seen):
    return example.verdict(seen)


def charts(section: ReportSection) -> dict[str, ReportChart]:
    return {part.name: part for part in section.parts if isinstance(part, ReportChart)}


def rows(chart: ReportChart) -> list[dict[str, Any]]:
    return list(chart.spec(FULL_PX)["data"]["values"])


def said(section: ReportSection) -> str:
    return " ".join(
        part.caption if isinstance(part, ReportChart) else unescape(part) for part in section.parts
    )


def test_a_forest_has_all_prompts_then_classes_by_speed(verdict):
    points = rows(speed_up.build_forest_charts(verdict, verdict.headlines[0], 0)[0])
    values = [
        cell.speed_up.value for cell in verdict.cells if cell.metric == "e2e_ms" and cell.speed_up
    ]
    (load,) = verdict.overall
    assert load.deciding.speed_up is not None
    assert [load.deciding.speed_up.value, *sorted(values, reverse=True)] == [
        row["value"] for row in points
    ]


@pytest.mark.parametrize(
    ("result", "color"),
    [("the same", "faster"), ("not shown", "caution-text"), ("not the same", "slower")],
)
def test_faster_is_green_beside_equal_outputs_alone(verdict, result, color):
    headline = msgspec.structs.replace(verdict.headlines[0], output=result)
    points = [
        spec
        for chart in speed_up.build_forest_charts(verdict, headline, 0)
        for spec in (chart.spec(FULL_PX), chart.spec(NARROW_PX), compose_slide(chart, None))
    ]
    ranges = re.findall(r'"domain": \["faster"[^]]*\], "range": \["(var[^"]*)"', json.dumps(points))

    assert len(ranges) >= 3 * len(points)
    assert set(ranges) == {f"var(--{color})"}


def test_of_thousands_of_classes_the_extremes_are_drawn(
    verdict,
):
    many = msgspec.structs.replace(verdict, cells=example.classes(3000))

    section = speed_up.build_speed_section(many)
    points = rows(charts(section)["speed-up-0"])[1:]

    assert len(points) == speed_up.MAX_FOREST_ROWS
    assert {row["verdict"] for row in points} == {"faster", "slower"}
    assert "The chart shows 30 of 3,000" in said(section)
    assert "160 of 12,000 cells" in said(section)
    assert sum(len(part) for part in section.parts if isinstance(part, str)) < 200_000


def test_a_box_has_the_quantiles_of_its_requests(seen, verdict):
    points = rows(charts(distributions.build_distribution_section(verdict, seen))["spread-e2e-ms"])
    there = seen.arm_mask(seen.baseline) & (seen.class_ == seen.classes.index("json"))
    expected = np.quantile(seen.figures["e2e_ms"][there], (0.05, 0.25, 0.5, 0.75, 0.95))
    box = [row for row in points if row["arm"] == seen.baseline][1]
    assert [box[name] for name in ("p5", "p25", "p50", "p75", "p95")] == pytest.approx(
        expected.tolist()
    )


def test_a_point_over_time_is_the_median_of_its_window(measured):
    chart = charts(time_series.build_time_series_section(example.verdict(measured), measured))[
        "over-time-tpot-ms"
    ]
    repeat = [row["value"] for row in rows(chart) if row["series"] == "repeat, qwen-sd-vllm"]
    there = measured.arm_mask("qwen-sd-vllm") & (
        measured.class_ == measured.classes.index("repeat")
    )
    own = measured.figures["tpot_ms"][there]
    assert len(repeat) <= time_series.MAX_WINDOWS
    assert own.min() <= min(repeat) <= max(repeat) <= own.max()
    assert float(np.median(repeat)) == pytest.approx(float(np.median(own)), rel=0.1)


def test_a_line_over_time_breaks_where_nothing_was_asked(measured):
    late = measured.round == measured.round.max()
    hour_s = np.where(late, 3600.0, 0.0)
    apart = dataclasses.replace(
        measured, start_s=measured.start_s + hour_s, end_s=measured.end_s + hour_s
    )
    chart = charts(time_series.build_time_series_section(example.verdict(apart), apart))[
        "over-time-e2e-ms"
    ]
    lines: dict[tuple[str, int], list[float]] = {}
    for row in rows(chart):
        lines.setdefault((row["series"], row["part"]), []).append(row["at"])
    assert any(part for _, part in lines)
    assert all(max(at) - min(at) < 3_600_000 for at in lines.values())
    assert chart.spec(FULL_PX)["layer"][0]["encoding"]["detail"] == {"field": "part"}


def test_acceptance_is_drawn_of_speculating_arms_alone(verdict):
    section = acceptance.build_acceptance_section(verdict)
    assert {row["arm"] for row in rows(charts(section)["acceptance-length"])} == {example.VARIANT}
    assert "the baseline does not speculate" in said(section)


def test_without_a_price_no_cost_is_made_up(verdict):
    bare = TokenCost(
        arm=example.BASE,
        load=LoadLevel(concurrency=4),
        good_tokens=100,
        busy_s=3.0,
        sentence="give one with --price",
    )
    text = said(appendix.build_cost_section(msgspec.structs.replace(verdict, cost=(bare,))))
    assert "give one with --price" in text
    assert "0.00" not in text
