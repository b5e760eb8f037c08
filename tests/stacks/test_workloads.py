"""Workloads: the same manifests as the rendered files, by a hand that may do little else."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import yaml
from assemblies import (
    Template,
    environment,
    hosted,
    inputs,
    resources,
    wide_experiment,
)
from chart_cases import render_charts

from charts import build_charts, list_stages
from charts.people import build_people_charts
from charts.runner import build_runner_charts
from charts.tree import render_files
from stacks.kubectl import SETTINGS
from stacks.workloads import split_chart
from tandem.rules.speculation import MAX_CDK_VARIANTS

pytestmark = pytest.mark.cdk

MANIFEST = "Custom::AWSCDK-EKS-KubernetesResource"
# CloudFormation sends a custom resource's properties, the old ones too at an update, in one
# asynchronous Lambda invocation, 256 KiB at most (Lambda developer guide, quotas, 2024)
MOST_BYTES = 256 * 1024
ENVELOPE = 2000
MOST_TEMPLATE = 1_000_000  # CloudFormation user guide, quotas


@pytest.fixture(scope="session")
def workloads(stacks):
    return stacks["post-us-east-2-Workloads"]


PEOPLE = ("people", "people")
RUNNER = ("runner", "runner")


@cache
def rendered() -> dict[tuple[str, str], list[dict[str, Any]]]:
    tree = render_files(
        environment("post-us-east-2"), hosted(environment("post-us-east-2")), inputs().catalogue
    )
    return {
        (path.parts[1], path.parts[-2]): list(yaml.load_all(text, Loader=yaml.CSafeLoader))
        for path, text in tree.items()
        if path.name == f"{path.parts[-2]}.yaml"
    }


def placed(template: Template) -> dict[tuple[str, str], list[str]]:
    """Return (experiment, stage) -> resources; a template lists manifests in the order they are
    applied."""
    ids = iter(
        name for name, resource in template["Resources"].items() if resource["Type"] == MANIFEST
    )
    objects = rendered()
    charts = [
        (item.name, stage)
        for item in hosted(environment("post-us-east-2"))
        for stage in list_stages(item)
    ]
    content = {
        chart: [next(ids) for _ in split_chart(chart[1], objects[chart])] for chart in charts
    }
    return content | {PEOPLE: [next(ids)], RUNNER: list(ids)}


def applied(template: Template) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return (experiment, stage) -> objects as the template holds them, prune label included."""
    return {
        chart: [
            body
            for name in item
            for body in json.loads(template["Resources"][name]["Properties"]["Manifest"])
        ]
        for chart, item in placed(template).items()
    }


def without_prune_label(found: dict[str, Any]) -> dict[str, Any]:
    labels = {
        key: value
        for key, value in found["metadata"]["labels"].items()
        if "aws.cdk.eks/prune-" not in key
    }
    return {**found, "metadata": {**found["metadata"], "labels": labels}}


def test_both_doors_hold_the_same_objects_but_for_the_prune_label(workloads):
    mine = {
        key: [without_prune_label(item) for item in objects]
        for key, objects in applied(workloads).items()
    }
    assert mine == rendered()


def list_prunable_kinds() -> set[str]:
    """Return `group/version/kind` of what kubectl's settings in the handler's layer let it
    prune."""
    (defaults,) = yaml.safe_load(SETTINGS.read_text())["defaults"]
    assert defaults["command"] == "apply"
    return {
        option["default"] for option in defaults["options"] if option["name"] == "prune-allowlist"
    }


def test_every_applied_kind_can_be_pruned(stacks):
    bodies = [
        body
        for name in stacks
        if name.endswith("-Workloads")
        for resource in resources(stacks[name], MANIFEST)
        for body in json.loads(resource["Manifest"])
    ]
    kinds = {f"{body['apiVersion']}/{body['kind']}" for body in bodies}
    applied_kinds = {kind if kind.count("/") == 2 else f"core/{kind}" for kind in kinds}

    assert applied_kinds
    assert applied_kinds - list_prunable_kinds() == set()


def test_the_deployed_kubectl_reads_the_settings(kubectl):
    words = [kubectl, "kuberc", "view", "--kuberc", SETTINGS]
    result = subprocess.run(words, capture_output=True, text=True, check=True)

    (defaults,) = yaml.safe_load(result.stdout)["defaults"]
    assert {option["default"] for option in defaults["options"]} == list_prunable_kinds()


@pytest.mark.parametrize("experiment", ["post", "post-drafts-windows"])
def test_charts_wait_for_each_other_in_order(workloads, experiment):
    (outcome,) = [item for item in hosted(environment("post-us-east-2")) if item.name == experiment]
    stages = list_stages(outcome)
    content = placed(workloads)
    ids = {stage: content[experiment, stage] for stage in stages}

    assert all(
        set(ids[earlier]) <= set(workloads["Resources"][name]["DependsOn"])
        for earlier, later in pairwise(stages)
        for name in ids[later]
    )


def test_another_variant_moves_no_object_to_another_resource():
    """An object that moved would be deleted by its old resource before its new one makes it."""
    serve = rendered()["post-drafts-windows", "serve"]
    some = split_chart("serve", serve[4:])
    all_ = split_chart("serve", serve)
    assert some.items() <= all_.items()


def associations(template: Template, namespace: str) -> set[str]:
    return {
        name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::EKS::PodIdentityAssociation"
        and resource["Properties"]["Namespace"] == namespace
    }


def list_pieces(variants: int) -> dict[str, list[Any]]:
    """What the CDK sends of an environment that hosts a wide experiment alone: custom resource ->
    objects."""
    place = environment("post-us-east-2")
    experiment = wide_experiment(variants)
    pieces = render_charts(build_people_charts())
    for chart_id, objects in render_charts(
        build_charts(place, experiment, inputs().catalogue)
    ).items():
        pieces |= split_chart(chart_id, objects)
    for chart_id, objects in render_charts(build_runner_charts(place, [experiment])).items():
        pieces[f"runner-{chart_id}"] = objects
    return pieces


def test_as_many_variants_as_the_rule_admits_can_be_sent():
    """All of them in one template, and each piece in one call of the handler."""
    texts = [json.dumps(json.dumps(objects)) for objects in list_pieces(MAX_CDK_VARIANTS).values()]
    rest = len(list_stages(wide_experiment(1))) * 1000 + MAX_CDK_VARIANTS * 3000
    assert sum(map(len, texts)) + rest < MOST_TEMPLATE
    assert 2 * max(map(len, texts)) + ENVELOPE < MOST_BYTES


@pytest.mark.parametrize("experiment", ["post", "post-drafts-windows"])
def test_no_pod_starts_before_its_account_is_bound(workloads, experiment):
    """A pod that was there before its association is not given credentials until it is made
    again."""
    bound = associations(workloads, f"tandem-{experiment}")
    first = [workloads["Resources"][name] for name in placed(workloads)[experiment, "base"]]

    assert len(bound) == 4
    assert all(bound <= set(item["DependsOn"]) for item in first)
