"""Observability: what is drawn, what alarms and whom it tells, and the agent with its logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from assemblies import (
    COMMITTED,
    Template,
    Templates,
    changed,
    environment,
    hosted,
    one,
    resources,
    synth_alone,
    wide_experiment,
)

import app
from stacks import dashboards
from stacks.observability import ObservabilityStack
from tandem.cli.monitoring_cost import build_scope
from tandem.declarations.environment import Environment, ReferenceRun, ReferenceValue
from tandem.declarations.experiment import Experiment
from tandem.declarations.names import container_log_group_name
from tandem.monitoring.agent import build_addon_configuration, build_node_pattern
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.widget import MathExpression, MetricLine

pytestmark = pytest.mark.cdk

HOME = "post-us-east-2"
ALARM, COMPOSITE, DASHBOARD = (
    f"AWS::CloudWatch::{kind}" for kind in ("Alarm", "CompositeAlarm", "Dashboard")
)
GROUP = "AWS::Logs::LogGroup"
FILTER = "AWS::Logs::MetricFilter"
ADDON = "AWS::EKS::Addon"


def watched(name: str = HOME) -> Any:
    return build_scope(environment(name), hosted(environment(name)))


@pytest.fixture(scope="session")
def stack(stacks: Templates) -> Template:
    return stacks[f"{HOME}-Observability"]


def ids(template: Template, type_: str) -> dict[str, str]:
    """Return physical name -> logical id of every resource of a type."""
    key = {ALARM: "AlarmName", COMPOSITE: "AlarmName", GROUP: "LogGroupName"}[type_]
    return {
        found["Properties"][key]: name
        for name, found in template["Resources"].items()
        if found["Type"] == type_
    }


def alone(place: Environment, folder: Path, experiments: list[Experiment]) -> Template:
    scope = build_scope(place, experiments)
    return synth_alone(
        place, folder, ObservabilityStack, monitoring_scope=scope, agent_version=None
    )


class TestAlarms:
    @pytest.mark.parametrize("name", COMMITTED)
    def test_each_compares_what_its_value_says(self, stacks: Templates, name: str) -> None:
        made = {
            each["AlarmName"]: each for each in resources(stacks[f"{name}-Observability"], ALARM)
        }

        for alarm in build_alarms(watched(name)).alarms:
            said = made[alarm.name]
            assert (said["Threshold"], said["TreatMissingData"]) == (alarm.threshold, alarm.missing)
            assert (said["EvaluationPeriods"], said["DatapointsToAlarm"]) == (
                alarm.periods,
                alarm.datapoints,
            )
            assert (
                said["ComparisonOperator"]
                == {"above": "GreaterThanThreshold", "below": "LessThanThreshold"}[alarm.comparison]
            )

    def test_metric_math_reads_every_line_and_compares_the_shown_one(self, stack: Template) -> None:
        made = {
            each["AlarmName"]: each["Metrics"]
            for each in resources(stack, ALARM)
            if "Metrics" in each
        }
        meant = [alarm for alarm in build_alarms(watched()).alarms if len(alarm.lines) > 1]

        assert meant
        for alarm in meant:
            queries = {query["Id"]: query for query in made[alarm.name]}
            shown = [line.id for line in alarm.lines if line.is_visible]
            assert [id_ for id_, query in queries.items() if query["ReturnData"]] == shown
            for line in alarm.lines:
                assert line.id is not None
                assert read(queries[line.id]) == said(line)

    def test_a_percentile_is_an_extended_statistic_of_one_metric(self, tmp_path: Path) -> None:
        value = ReferenceValue(
            experiment="post", variant="qwen-vllm", prompt_class="all", concurrency=1, ttft_ms=100.0
        )
        place = changed(
            environment(HOME), observability={"reference": ReferenceRun(run="r", values=(value,))}
        )

        made = [
            each
            for each in resources(alone(place, tmp_path, hosted(place)), ALARM)
            if "-ttft" in each["AlarmName"]
        ]

        (found,) = made
        assert found["ExtendedStatistic"] == "p50"
        assert "Statistic" not in found
        assert {each["Name"]: each["Value"] for each in found["Dimensions"]} == {
            "Experiment": "post",
            "Variant": "qwen-vllm",
            "PromptClass": "all",
            "Concurrency": "1",
        }

    def test_a_composite_is_made_after_all_that_it_names_and_goes_before(
        self, stack: Template
    ) -> None:
        made = ids(stack, ALARM)

        for composite in build_alarms(watched()).composites:
            found = stack["Resources"][ids(stack, COMPOSITE)[composite.name]]
            assert composite.suppressor is not None
            assert {made[name] for name in (*composite.alarms, composite.suppressor)} <= set(
                found["DependsOn"]
            )


def read(query: dict[str, Any]) -> tuple[object, ...]:
    if "Expression" in query:
        return (query["Expression"],)
    metric = query["MetricStat"]["Metric"]
    dimensions = tuple((each["Name"], each["Value"]) for each in metric.get("Dimensions", []))
    return metric["Namespace"], metric["MetricName"], dimensions, query["MetricStat"]["Stat"]


def said(line: MetricLine | MathExpression) -> tuple[object, ...]:
    if isinstance(line, MathExpression):
        return (line.text,)
    return line.namespace, line.metric, line.dimensions, line.statistic


class TestContainerInsights:
    def test_every_log_group_of_the_agent_is_there_before_it(self, stack: Template) -> None:
        (agent,) = [found for found in stack["Resources"].values() if found["Type"] == ADDON]
        groups = ids(stack, GROUP)

        kinds = ("application", "dataplane", "host", "performance", "prometheus")
        assert set(groups) == {f"/aws/containerinsights/tandem-{HOME}/{kind}" for kind in kinds}
        assert set(groups.values()) <= set(agent["DependsOn"])

    def test_the_agent_is_told_what_is_said_of_it(self, stack: Template) -> None:
        told = json.loads(one(stack, ADDON)["ConfigurationValues"])
        assert told == build_addon_configuration(environment(HOME))

    def test_the_agent_writes_its_own_logs_and_nothing_else(self, stack: Template) -> None:
        role = one(stack, "AWS::IAM::Role")
        (policy,) = role["Policies"]
        write, look = policy["PolicyDocument"]["Statement"]

        assert "ManagedPolicyArns" not in role
        assert look["Action"] == ["ec2:DescribeTags", "ec2:DescribeVolumes"]
        assert {action.partition(":")[0] for action in write["Action"]} == {"logs"}
        assert {
            arn.partition("log-group:")[2].partition(":")[0] for arn in write["Resource"]
        } == set(ids(stack, GROUP))

    def test_accelerator_nodes_are_counted_in_the_performance_log(self, stack: Template) -> None:
        found = one(stack, FILTER)
        (counted,) = found["MetricTransformations"]

        assert (found["LogGroupName"], found["FilterPattern"]) == (
            container_log_group_name(environment(HOME), "performance"),
            build_node_pattern(environment(HOME)),
        )
        assert counted == {
            "MetricName": "accelerator_nodes",
            "MetricNamespace": f"Tandem/{HOME}",
            "MetricValue": "1",
            "DefaultValue": 0,
            "Unit": "Count",
        }

    def test_switched_off_it_leaves_dashboards_and_alarms(self, tmp_path: Path) -> None:
        place = changed(environment(HOME), observability={"container_insights": False})
        made = {
            found["Type"] for found in alone(place, tmp_path, hosted(place))["Resources"].values()
        }
        assert made & {ADDON, GROUP, FILTER, "AWS::IAM::Role", "AWS::KMS::Key"} == set()
        assert {DASHBOARD, ALARM, COMPOSITE} <= made


class TestLimits:
    def test_a_hundred_variants_fit_a_template(self, tmp_path: Path) -> None:
        place = changed(environment("native-us-east-2"), experiments=("e" * 50,))
        made = alone(place, tmp_path, [wide_experiment(100)])
        assert len(made["Resources"]) <= 500
        assert len(json.dumps(made)) < 1_000_000  # CloudFormation user guide, quotas

    def test_a_dashboard_beyond_a_limit_is_told_in_a_line_by_the_app(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(dashboards, "MAX_WIDGETS", 20)
        monkeypatch.setenv("CDK_OUTDIR", str(tmp_path))

        assert app.main(["-c", "env=dev-trn2-3xlarge"]) == 2

        told = "widgets, captions counted; at most 20; host fewer experiments"
        assert told in " ".join(capsys.readouterr().err.split())
