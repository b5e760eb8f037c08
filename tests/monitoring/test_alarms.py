"""The alarms of an environment: what they read, what they say, and CloudWatch's limits."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace

import alarmed
import pytest
from alarmed import BASELINE, DRAFTING, REFERENCE, crowded, every, of, watched
from hosted import ENVIRONMENTS

from tandem import cloudwatch_metrics, metrics
from tandem.bench.suites.suite import load_suite as suite
from tandem.monitoring import alarm as limits
from tandem.monitoring import bench_alarms
from tandem.monitoring.alarm import MetricAlarm
from tandem.monitoring.alarms import build_alarms, list_coverage_gaps
from tandem.monitoring.scope import ExperimentScope, MonitoringScope
from tandem.monitoring.widget import MathExpression, MetricLine

SCOPES = {name: watched(name) for name in ENVIRONMENTS} | {
    "reference": watched(only=["post"], reference=REFERENCE),
    "no Container Insights": watched(container_insights=False),
    "130 variants": crowded(130),
}
ALL = {name: build_alarms(scope) for name, scope in SCOPES.items()}
in_every_scope = pytest.mark.parametrize("name", ALL)


def each(name: str) -> list[MetricAlarm]:
    result = ALL[name]
    return [*result.alarms, *([result.suppressor] if result.suppressor else [])]


def lines(alarm: MetricAlarm) -> list[MetricLine]:
    return [line for line in alarm.lines if isinstance(line, MetricLine)]


@in_every_scope
def test_an_alarm_reads_what_somebody_was_recorded_to_send(name):
    series = {
        (cloudwatch_metrics.BENCH, metric.name) for metric in metrics.list_published_metrics()
    } | set(cloudwatch_metrics.CLOUDWATCH_METRICS)
    for alarm in each(name):
        for line in lines(alarm):
            (sender,) = (publisher for publisher, metric in series if metric == line.metric)
            dimensions = tuple(dimension for dimension, _ in line.dimensions)
            assert dimensions in cloudwatch_metrics.PUBLISHERS[sender].dimensions, line


@in_every_scope
def test_an_alarm_says_what_is_wrong_why_at_this_level_and_what_to_do(name):
    for alarm in each(name):
        alarmed.hold_texts(alarm, SCOPES[name].environment.name)


@in_every_scope
def test_an_alarm_keeps_cloudwatchs_limits(name):
    for alarm in each(name):
        assert len(lines(alarm)) <= limits.MAX_ALARM_METRICS
        assert alarm.period_s % 60 == 0
        assert alarm.periods * alarm.period_s <= alarmed.MAX_EVALUATION_S
        assert 1 <= alarm.datapoints <= alarm.periods
        assert [line.is_visible for line in alarm.lines].count(True) == 1
        assert "SEARCH" not in "".join(
            line.text for line in alarm.lines if isinstance(line, MathExpression)
        )
        assert re.fullmatch(r"[\x20-\x7e]{1,255}", alarm.name)


@in_every_scope
def test_names_are_unique_and_begin_with_the_environments(name):
    result = ALL[name]
    named_names = [
        item.name
        for item in (
            *result.alarms,
            *result.composites,
            *([result.suppressor] if result.suppressor else []),
        )
    ]
    assert max(Counter(named_names).values()) == 1
    assert all(item.startswith(f"{SCOPES[name].environment.name}-") for item in named_names)


@in_every_scope
def test_each_alarm_belongs_to_one_composite_and_none_holds_the_suppressor(name):
    result = ALL[name]
    held_counter = Counter(child for composite in result.composites for child in composite.alarms)
    assert held_counter == Counter(alarm.name for alarm in result.alarms)
    assert all(composite.anchor == "when-you-are-called" for composite in result.composites)


@in_every_scope
def test_a_composite_keeps_cloudwatchs_limits(name):
    region = SCOPES[name].environment.region
    for composite in ALL[name].composites:
        arns = composite.rule.replace('("', f'("arn:aws:cloudwatch:{region}:111122223333:alarm:')
        assert len(composite.alarms) <= limits.MAX_CHILDREN
        assert len(arns) <= limits.MAX_RULE_CHARACTERS
        assert len(composite.name) <= alarmed.MAX_NAME_CHARACTERS
        assert len(composite.description) <= alarmed.MAX_DESCRIPTION_CHARACTERS
        assert composite.rule.count("ALARM(") == len(composite.alarms)


def test_a_hundred_and_thirty_variants_take_several_composites_of_a_kind():
    named_names = [composite.name for composite in ALL["130 variants"].composites]
    assert "post-us-east-2-notify-requests-1" in named_names
    assert "post-us-east-2-notify-requests-2" in named_names
    assert "post-us-east-2-notify-requests" not in named_names


def test_without_container_insights_nothing_is_muted_and_no_server_is_watched_and_both_are_said():
    result = ALL["no Container Insights"]

    assert result.suppressor is None
    assert {item.suppressor for item in result.composites} == {None}
    assert not {alarm.anchor for alarm in result.alarms} & {
        "not-ready",
        "not-started",
        "nothing-runs",
    }
    (gap,) = [
        coverage_gap
        for coverage_gap in list_coverage_gaps(SCOPES["no Container Insights"])
        if "Container Insights" in coverage_gap
    ]
    assert "nothing is muted" in gap


def test_names_that_join_alike_are_told_apart_and_stay_the_same_from_one_time_to_the_next():
    plain = watched(only=["post"])
    (watching,) = plain.experiments

    def named(experiment: str, variant: str) -> ExperimentScope:
        variants = watching.experiment.variants[0].model_copy(update={"name": variant})
        changed_experiment = watching.experiment.model_copy(
            update={"name": experiment, "variants": (variants,)}
        )
        return replace(watching, experiment=changed_experiment)

    scope = MonitoringScope(
        environment=plain.environment, experiments=(named("a", "b-c"), named("a-b", "c"))
    )
    names = [alarm.name for alarm in build_alarms(scope).alarms]

    assert len(set(names)) == len(names)
    assert names == [alarm.name for alarm in build_alarms(scope).alarms]
    assert all(
        child in names for composite in build_alarms(scope).composites for child in composite.alarms
    )


@pytest.mark.parametrize(
    ("environment", "experiment", "watched_"),
    [
        pytest.param("post-us-east-2", "post", True, id="two halves of a node"),
        pytest.param(
            "post-us-east-2", "post-drafts-windows", False, id="nine variants on one node"
        ),
        pytest.param("dev-trn2-3xlarge", "dev", False, id="two variants on one chip"),
    ],
)
def test_a_server_that_runs_nothing_is_watched_only_where_all_variants_fit_the_fleet(
    environment, experiment, watched_
):
    scope = watched(environment, only=[experiment])
    assert any(alarm.anchor == "not-started" for alarm in build_alarms(scope).alarms) is watched_
    gaps = list_coverage_gaps(scope)
    assert any(experiment in item and "fit the fleet" in item for item in gaps) is not watched_


def test_acceptance_is_held_against_the_reference_where_it_has_it():
    alarm = of(every(), "acceptance", DRAFTING)

    assert (alarm.threshold, alarm.comparison) == (3.2, "below")
    assert dict(lines(alarm)[0].dimensions) == {
        "Experiment": "post",
        "Variant": DRAFTING,
        "PromptClass": "repeat",
        "Concurrency": "4",
    }
    assert REFERENCE.run in alarm.sentence


def test_without_a_reference_no_latency_is_watched_and_it_is_said():
    assert not {alarm.anchor for alarm in every(reference=None).alarms} & {"ttft", "tpot"}
    gaps = list_coverage_gaps(watched(only=["post"], reference=None))
    assert any("observability.reference is null" in item for item in gaps)


@pytest.mark.parametrize(
    ("what", "variant", "percent", "threshold"),
    [("ttft", BASELINE, 20, 240), ("tpot", BASELINE, 20, 54), ("tpot", DRAFTING, 50, 22.5)],
)
def test_a_regression_is_a_median_so_many_percent_above_the_reference(
    what, variant, percent, threshold
):
    alarm = of(every(regression_percent=percent), what, variant)
    assert alarm.threshold == threshold
    assert lines(alarm)[0].statistic == "p50"


def test_the_look_back_holds_two_rounds_of_the_longest_suite():
    result = suite("real")
    prompts = Counter(entry.class_ for entry in result.prompts)
    # tandem.bench.plan.estimate: at the post's 45 ms a token
    request_s = 0.5 + 0.045 * result.defaults.max_tokens

    # A B B A
    halves = 2
    arms = 2
    one_after_another = {
        streams: sum(halves * math.ceil(count / halves / streams) for count in prompts.values())
        for streams in result.defaults.concurrency
    }
    round_s = arms * request_s * sum(one_after_another.values())

    assert 2 * round_s < bench_alarms.LOOK_BACK_S < 3 * round_s
