"""Observability: what is drawn, what alarms and whom it tells, and the agent with its logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from assemblies import (
    Template,
    changed,
    environment,
    hosted,
    resources,
    synth_alone,
    wide_experiment,
)

from stacks import dashboards
from stacks.observability import ObservabilityStack
from stacks.stack import TemplateLimitError
from tandem.cli.monitoring_cost import build_scope
from tandem.declarations.environment import Environment, ReferenceRun, ReferenceValue
from tandem.declarations.experiment import Experiment

pytestmark = pytest.mark.cdk

HOME = "post-us-east-2"
ALARM = "AWS::CloudWatch::Alarm"


def alone(place: Environment, folder: Path, experiments: list[Experiment]) -> Template:
    scope = build_scope(place, experiments)
    return synth_alone(
        place, folder, ObservabilityStack, monitoring_scope=scope, agent_version=None
    )


def test_percentile_is_an_extended_statistic(tmp_path):
    value = ReferenceValue(
        experiment="post", variant="qwen-vllm", prompt_class="all", concurrency=1, ttft_ms=100.0
    )
    reference = ReferenceRun(run="r", values=(value,))
    place = changed(environment(HOME), observability={"reference": reference})
    (alarm,) = [
        alarm
        for alarm in resources(alone(place, tmp_path, hosted(place)), ALARM)
        if "-ttft" in alarm["AlarmName"]
    ]
    assert (alarm["ExtendedStatistic"], alarm.get("Statistic")) == ("p50", None)


def test_a_hundred_variants_fit_a_template(tmp_path):
    place = changed(environment("native-us-east-2"), experiments=("e" * 50,))
    result = alone(place, tmp_path, [wide_experiment(100)])
    assert len(result["Resources"]) <= 500
    assert len(json.dumps(result)) < 1_000_000  # CloudFormation user guide, quotas


def test_a_dashboard_beyond_a_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(dashboards, "MAX_WIDGETS", 20)
    place = environment(HOME)
    with pytest.raises(TemplateLimitError, match="at most 20; host fewer experiments"):
        alone(place, tmp_path, hosted(place))
