"""Alarms against series in which things happen: each fires, and each stays silent when it must."""

from __future__ import annotations

from itertools import pairwise

import pytest
from alarmed import BASELINE, DRAFTING, HOUR, MINUTE, QUARTER, START, Happening, every, of
from doubles.cloudwatch.alarm_state import compute_state_at, compute_states, list_notifications

from tandem.monitoring.alarm import SUPPRESSOR_WAIT_S, EnvironmentAlarms, MetricAlarm

ALARMS = every()


def fired(alarm: MetricAlarm, happening: Happening, minutes: int) -> list[int]:
    """The minutes after START in which an alarm goes into alarm."""
    found = compute_states(alarm, happening.series, START, START + MINUTE * minutes)
    times = sorted(found)
    return [
        (at - START) // MINUTE
        for before, at in pairwise(times)
        if found[at] == "ALARM" and found[before] != "ALARM"
    ]


def called(found: EnvironmentAlarms, happening: Happening, minutes: int) -> list[tuple[int, str]]:
    """Who is called: minute after START, kind of the composite."""
    told = list_notifications(found, happening.series, START, START + MINUTE * minutes)
    return [
        ((one.at_s - START) // MINUTE, one.composite.split("-notify-")[1])
        for one in told
        if one.state == "ALARM"
    ]


# a server that does not come up


def test_a_pod_that_runs_for_half_an_hour_and_is_not_ready_fires():
    alarm = of(ALARMS, "not-ready", DRAFTING)
    assert fired(alarm, Happening().container(DRAFTING, range(2, 60)), 60) == [32]


def test_a_start_of_twenty_nine_minutes_does_not_fire():
    happening = Happening().container(DRAFTING, range(60)).ready(DRAFTING, range(29, 60))
    assert fired(of(ALARMS, "not-ready", DRAFTING), happening, 60) == []


def test_a_server_that_loses_readiness_fires_and_one_missed_reading_does_not():
    alarm = of(ALARMS, "not-ready", DRAFTING)
    lost = Happening().container(DRAFTING, range(120)).ready(DRAFTING, range(20))
    blinked = (
        Happening()
        .container(DRAFTING, range(120))
        .ready(DRAFTING, [at for at in range(120) if at != 50])
    )
    assert (fired(alarm, lost, 120), fired(alarm, blinked, 120)) == ([50], [])


def test_a_variant_that_nobody_raised_a_node_for_does_not_fire():
    happening = Happening().nodes(1, range(200)).serves(BASELINE, range(200))
    assert fired(of(ALARMS, "not-ready", DRAFTING), happening, 200) == []


# 7 of 8 chips: one half of the node serves, the other's claim is never allocated


def test_a_server_whose_claim_waits_beside_one_that_serves_fires():
    happening = Happening().nodes(1, range(60)).serves(BASELINE, range(3, 60))
    assert fired(of(ALARMS, "not-started", DRAFTING), happening, 60) == [33]
    assert fired(of(ALARMS, "not-started", BASELINE), happening, 60) == []


# nodes that live for nothing


def test_a_node_on_which_nothing_runs_fires():
    assert fired(of(ALARMS, "nothing-runs"), Happening().nodes(1, range(5, 60)), 60) == [35]


# requests that fail


def rounds(metric: str, values: list[float], *, apart: int = QUARTER, **cell) -> Happening:
    """One value a round; a round begins every so many minutes."""
    happening = Happening()
    for at, value in enumerate(values):
        happening.bench(metric, [value], apart * at, **cell)
    return happening


def errors(failed: list[float], asked: float = 40) -> Happening:
    happening = rounds("failed_requests", failed, variant=DRAFTING)
    for at in range(len(failed)):
        happening.bench("requests", [asked], QUARTER * at, variant=DRAFTING)
    return happening


def test_more_failed_requests_than_the_environment_allows_fire():
    assert fired(of(ALARMS, "errors", DRAFTING), errors([0, 0, 3]), 90) == [45]


def test_exactly_as_many_failed_requests_as_are_allowed_do_not_fire():
    assert fired(of(ALARMS, "errors", DRAFTING), errors([0, 2, 2]), 90) == []


def test_a_round_that_is_sent_when_it_ends_five_hours_later_fires_then():
    alarm = of(ALARMS, "errors", DRAFTING)
    now = START + 5 * HOUR * MINUTE
    late = errors([8], asked=8)
    assert compute_state_at(alarm, Happening().series, now) == "OK"
    assert compute_state_at(alarm, late.series, now) == "ALARM"


# acceptance and latency

REGRESSED = [
    pytest.param("acceptance", "acceptance_length", DRAFTING, "repeat", 4.0, 3.1, id="acceptance"),
    pytest.param("ttft", "ttft_ms", BASELINE, "open", 200.0, 241.0, id="ttft"),
    pytest.param("tpot", "tpot_ms", BASELINE, "open", 45.0, 55.0, id="tpot of the baseline"),
    pytest.param(
        "tpot", "tpot_ms", DRAFTING, "repeat", 15.0, 18.1, id="tpot of the speculating arm"
    ),
]


@pytest.mark.parametrize(("what", "metric", "variant", "class_", "good", "bad"), REGRESSED)
def test_a_figure_that_stays_worse_fires_at_its_third_quarter_hour(
    what, metric, variant, class_, good, bad
):
    happening = rounds(
        metric,
        [good, good, bad, bad, bad, bad],
        apart=HOUR,
        variant=variant,
        class_=class_,
        load="4",
    )
    assert fired(of(ALARMS, what, variant), happening, 8 * HOUR) == [4 * HOUR + QUARTER]


@pytest.mark.parametrize(
    ("values", "times"), [([1.0] * 4, [2 * HOUR + QUARTER]), ([1.06] * 4, []), ([1.0, 1.0], [])]
)
def test_without_a_reference_drafts_of_which_none_is_accepted_fire(values, times):
    alarm = of(every(reference=None), "acceptance", DRAFTING)
    happening = rounds("acceptance_length", values, apart=HOUR, variant=DRAFTING)
    assert fired(alarm, happening, 6 * HOUR) == times


# publishing


@pytest.mark.parametrize(
    ("values", "times"),
    [
        pytest.param([0, 1, 2, 3], [45], id="more and more are waiting"),
        pytest.param([0, 1, 0, 0], [], id="one was late"),
        pytest.param([0, 0, 0, 0], [], id="all arrive"),
        pytest.param([1, 0, 1, 0], [60 - 15], id="late again and again"),
    ],
)
def test_rounds_that_stay_unpublished_fire(values, times):
    happening = rounds("unpublished_rounds", values, variant=BASELINE)
    assert fired(of(ALARMS, "unpublished", BASELINE), happening, 3 * HOUR) == times


# who is called: parked, woken, silent


def test_whoever_is_called_is_called_once_by_kind_after_the_wait():
    happening = (
        Happening().nodes(1, range(90)).serves(BASELINE, range(90)).container(DRAFTING, range(90))
    )
    assert called(ALARMS, happening, 90) == [(30 + SUPPRESSOR_WAIT_S // MINUTE, "serving")]


def test_a_parked_fleet_calls_nobody_whatever_the_bench_sends():
    happening = errors([8, 8, 8, 8], asked=8).nodes(0, range(240))
    assert of(ALARMS, "errors", DRAFTING)
    assert fired(of(ALARMS, "errors", DRAFTING), happening, 240) != []
    assert called(ALARMS, happening, 240) == []


def test_a_fleet_that_is_parked_takes_its_servers_along_and_calls_nobody():
    alive = range(100)
    happening = Happening().nodes(1, alive).nodes(0, range(100, 240))
    happening.serves(BASELINE, alive).serves(DRAFTING, alive)
    happening.bench("requests", [8], 99, variant=DRAFTING).bench(
        "failed_requests", [8], 99, variant=DRAFTING
    )

    assert fired(of(ALARMS, "errors", DRAFTING), happening, 240) == [105]
    assert fired(ALARMS.suppressor, happening, 240) == [103]
    assert called(ALARMS, happening, 240) == []
