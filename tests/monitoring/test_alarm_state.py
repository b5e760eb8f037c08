"""Alarm states and muted notifications, against the user guide's own tables and examples."""

from __future__ import annotations

import pytest
from doubles.cloudwatch.alarm_state import (
    CompositeTick,
    compute_state,
    compute_states,
    list_actions,
)
from doubles.cloudwatch.series_store import MetricKey, SeriesStore

from tandem.monitoring.alarm import MetricAlarm
from tandem.monitoring.widget import MathExpression, MetricLine

NAMESPACE = "Tandem/test"
START = 1_699_999_200  # a whole quarter-hour


def line(metric: str = "m", statistic: str = "Maximum", *, shown: bool = True) -> MetricLine:
    return MetricLine(
        metric=metric,
        namespace=NAMESPACE,
        dimensions=(),
        statistic=statistic,
        id=metric,
        is_visible=shown,
    )


def alarm(name: str = "alarm", **changed) -> MetricAlarm:
    given = {
        "name": name,
        "sentence": "It is.",
        "reason": "so",
        "anchor": "here",
        "lines": (line(),),
        "comparison": "above",
        "threshold": 0,
        "period_s": 60,
        "periods": 3,
        "datapoints": 3,
        "missing": "missing",
    }
    return MetricAlarm(**(given | changed))


def looked_at(points: str) -> list[bool | None]:
    """0 is within the level, X beyond it, - is missing; the newest is on the right."""
    return [{"0": False, "X": True, "-": None}[point] for point in points.split()]


# user guide, "Configuring how CloudWatch alarms treat missing data": datapoints to alarm, points,
# then the state when missing data is missing, ignored, breaching, not breaching; `-` keeps the
# state there was
GUIDE = [
    (3, "0 - X - X", "OK OK OK OK"),
    (3, "0 - - - -", "OK OK OK OK"),
    (3, "- - - - -", "INSUFFICIENT_DATA - ALARM OK"),
    (3, "0 X X - X", "ALARM ALARM ALARM ALARM"),
    (3, "- - X - -", "ALARM - ALARM OK"),
    (2, "0 - X - X", "ALARM ALARM ALARM ALARM"),
    (2, "0 0 X 0 X", "ALARM ALARM ALARM ALARM"),
    (2, "0 - X - -", "OK OK ALARM OK"),
    (2, "- - - - 0", "OK OK ALARM OK"),
    (2, "- - - X -", "ALARM - ALARM OK"),
]
TREATMENTS = ("missing", "ignore", "breaching", "notBreaching")
CELLS = [
    (datapoints, points, treatment, told)
    for datapoints, points, row in GUIDE
    for treatment, told in zip(TREATMENTS, row.split(), strict=True)
]


@pytest.mark.parametrize("before", ["OK", "ALARM"])
@pytest.mark.parametrize(("datapoints", "points", "treatment", "told"), CELLS)
def test_a_state_is_as_the_guides_tables_have_it(datapoints, points, treatment, told, before):
    found = compute_state(
        alarm(datapoints=datapoints, missing=treatment), looked_at(points), before
    )
    assert found == (before if told == "-" else told)


def minutes(values: dict[str, list[float | None]]) -> SeriesStore:
    series = SeriesStore()
    for metric, one_a_minute in values.items():
        for minute, value in enumerate(one_a_minute):
            if value is not None:
                series.add(
                    MetricKey.from_dimensions(NAMESPACE, metric, ()),
                    START + 60 * minute,
                    {value: 1},
                )
    return series


def over_time(watched: MetricAlarm, values: dict[str, list[float | None]], length: int) -> str:
    """The states at the end of each minute, by their first letters."""
    found = compute_states(watched, minutes(values), START, START + 60 * length)
    return "".join(one[0] for one in found.values())


def test_an_alarm_needs_all_of_its_periods():
    assert (
        over_time(alarm(missing="notBreaching"), {"m": [0, 1, 1, 0, 1, 1, 1, 0]}, 8) == "OOOOOOOAO"
    )


def test_an_alarm_with_fewer_datapoints_than_periods_needs_no_row_of_them():
    watched = alarm(datapoints=2, missing="notBreaching")
    assert over_time(watched, {"m": [0, 1, 0, 1, 0, 0, 0]}, 7) == "OOOOAOOO"


def test_metric_math_is_compared_where_it_is_shown():
    ratio = MathExpression(text="100 * bad / all", label="percent", id="share")
    watched = alarm(
        lines=(line("bad", "Sum", shown=False), line("all", "Sum", shown=False), ratio),
        threshold=5,
        periods=1,
        datapoints=1,
        missing="notBreaching",
    )

    assert over_time(watched, {"bad": [0, 1, 1], "all": [10, 20, 19]}, 3) == "OOOA"


# user guide, "Suppressing composite alarm actions": WaitPeriod 2, ExtensionPeriod 3; A is in alarm,
# 0 is not
def acted(composite: str, suppressor: str) -> list[tuple[int, str]]:
    ticks = [
        CompositeTick(at, "ALARM" if one == "A" else "OK", muted == "A")
        for at, (one, muted) in enumerate(zip(composite, suppressor, strict=True))
    ]
    return list(list_actions(ticks, wait_s=2, extend_s=3))


@pytest.mark.parametrize(
    ("composite", "suppressor", "told"),
    [
        pytest.param(
            "00AAAAAAAAAA", "000000000000", [(4, "ALARM")], id="1 not suppressed after the wait"
        ),
        pytest.param("00AAAAAAAAAA", "000AAAAAAAAA", [], id="2 suppressed before the wait ends"),
        pytest.param("00A000000000", "000000000000", [(5, "OK")], id="3 a change during the wait"),
        pytest.param("00AAAAAAAAAA", "0AAAAAAAAAAA", [], id="4 suppressed from the start"),
        pytest.param(
            "00AAAAAAAAAA",
            "000AAA000000",
            [(9, "ALARM")],
            id="5 not suppressed after the extension",
        ),
        pytest.param(
            "00AAAAA00000", "000AAA000000", [(9, "OK")], id="6 a change during the extension"
        ),
    ],
)
def test_a_composite_acts_as_in_the_guides_example(composite, suppressor, told):
    assert acted(composite, suppressor) == told
