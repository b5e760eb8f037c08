"""The words of a knee: the load that is held, its limits, and why there is none."""

from __future__ import annotations

import re

import msgspec
import pytest
from measured import arm, run_manifest

from tandem.judge.knee import ArmKnee, KneeFinding, KneePoint, KneeRange, KneeRatio
from tandem.report.knee_page import build_knee_spec, write_knee_report
from tandem.report.knee_text import describe_arm, render_knee_lines

POINTS = tuple(
    KneePoint(rate_per_s=rate, counted=672, good=good, fitted=good / 672)
    for rate, good in ((3.3, 670), (4.4, 638), (5.7, 400))
)
KNEE = KneeRange(value=4.4, low=4.0, high=4.8)
FOUND = ArmKnee(arm="a", word="found", rate_per_s=KNEE, rounds=6, points=POINTS, slope=9.0)


def make_finding(low: float = 1.4) -> KneeFinding:
    ratio = KneeRatio(variant="b", baseline="a", ratio=KneeRange(value=1.6, low=low, high=1.8))
    return KneeFinding(
        share=0.95,
        limits={"ttft_ms": 500.0},
        arms=(FOUND, msgspec.structs.replace(FOUND, arm="b")),
        ratios=(ratio,),
    )


def test_first_line_is_the_ratio_with_interval_limit_and_share():
    lines = list(render_knee_lines(make_finding(), (), is_simulated=False))

    assert lines[0] == (
        "b holds 1.60 times the load of a (1.40 to 1.80) at TTFT 500 ms, 95 % of requests"
    )
    assert "a: holds 4.40 requests/s (4.00 to 4.80) at TTFT 500 ms" in lines[1]
    assert next(line.split()[:4] for line in lines if line.startswith("b    ")) == [
        "b",
        "3.30",
        "670",
        "672",
    ]


def test_ratio_that_may_be_one_is_no_difference():
    lines = list(render_knee_lines(make_finding(low=0.9), (), is_simulated=True, width=200))

    assert lines[0].startswith("SIMULATED SERVERS")
    assert lines[1].endswith("95 % of requests: no difference is shown")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"word": "too fast to send", "rate_per_s": None, "bound_per_s": 58.6},
            "a: at least 58.6 requests/s; this machine cannot send more",
        ),
        (
            {"word": "not reached", "rate_per_s": None},
            "a: no knee; fewer than 95 % keep TTFT 500 ms even alone: choose other limits",
        ),
        ({"word": "below", "rate_per_s": None, "bound_per_s": 3.3}, "a: below 3.30 requests/s"),
        (
            {"word": "too few rounds", "rate_per_s": KneeRange(value=4.4), "rounds": 1},
            "a: holds 4.40 requests/s at TTFT 500 ms, 95 % of requests; 1 round; an interval needs",
        ),
    ],
)
def test_arm_without_a_knee_says_why(changes, text):
    arm_knee = msgspec.structs.replace(FOUND, **changes)

    assert describe_arm(arm_knee, make_finding()).startswith(text)


def test_page_without_a_round_has_no_chart(tmp_path):
    lone = ArmKnee(arm="a", word="not reached")
    finding = msgspec.structs.replace(make_finding(), arms=(lone,), ratios=())
    path = write_knee_report(finding, run_manifest(arms=(arm("a"),)), [], tmp_path)

    assert "No round was measured" in path.read_text()
    assert list((tmp_path / "charts").iterdir()) == []


def test_page_draws_the_curve_of_each_arm(tmp_path):
    run = run_manifest(arms=(arm("a"), arm("b")), goodput_share=0.95, simulated=True)
    path = write_knee_report(make_finding(), run, ["a note"], tmp_path)

    page = path.read_text()
    assert "b holds 1.60 times the load of a (1.40 to 1.80)" in page
    assert "SIMULATED SERVERS" in page
    assert len(re.findall(r"<svg", page)) == 2
    assert (tmp_path / "charts" / "knee.png").stat().st_size > 1000
    curve = build_knee_spec(make_finding(), 800)["layer"][2]["data"]["values"]
    assert {row["series"] for row in curve} == {"a", "b"}
    assert curve[0]["share"] == pytest.approx(670 / 672)
