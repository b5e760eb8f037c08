"""The runner: what it may do and reach, which specs it reads, and that there is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chart_cases import (
    ENVIRONMENTS,
    everything,
    experiments,
    flag,
    of_kind,
    render_charts,
    runner,
)
from rbac_evaluator import EVERYTHING, ApiRequest, list_rules, matches
from test_ways_out import AGENT, METADATA, PEERED, PUBLIC, VPC_ENDPOINT, reaches

from charts.runner import build_runner_charts
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.workspace import load_workspace

Object = dict[str, Any]
HOME = ENVIRONMENTS["post-us-east-2"]
SPACE = "runner-system"
ACCOUNT = "system:serviceaccount:runner-system:runner"
each_environment = pytest.mark.parametrize("environment", ENVIRONMENTS)
# every call of the runner, and no other: group, resource, verbs
IN_EXPERIMENTS = (
    ("batch", "jobs", "create delete get list"),
    ("batch", "cronjobs", "get"),
    ("apps", "deployments", "get"),
    ("apps", "deployments/scale", "patch"),
    ("", "pods", "list"),
    ("", "pods/log", "get"),
    ("discovery.k8s.io", "endpointslices", "list"),
    ("resource.k8s.io", "resourceclaims", "list"),
)
EVERYWHERE = (("", "nodes", "list"), ("resource.k8s.io", "resourceslices", "list"))


def rows(*tables: tuple[tuple[str, str, str], ...]) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for table in tables
        for group, resource, verbs in table
        for verb in verbs.split()
    }


def allowed(
    environment: str, namespace: str | None, who: str = ACCOUNT
) -> set[tuple[str, str, str]]:
    rules = list(list_rules(everything(environment), {who}, namespace))
    return {
        (verb, group, resource)
        for verb, group, resource in EVERYTHING
        for request in [ApiRequest(verb=verb, group=group, resource=resource, namespace=namespace)]
        if any(matches(rule, request) for rule in rules)
    }


def deployment(environment: str) -> Object:
    (result,) = of_kind(runner(environment), "Deployment").values()
    return result


def pod(environment: str) -> Object:
    return deployment(environment)["spec"]["template"]["spec"]


@each_environment
def test_in_an_experiments_namespace_it_may_make_exactly_its_calls(environment):
    for experiment in experiments(ENVIRONMENTS[environment]):
        assert allowed(environment, names.experiment_namespace(experiment)) == rows(
            IN_EXPERIMENTS, EVERYWHERE
        )


@each_environment
@pytest.mark.parametrize("namespace", ["kube-system", SPACE, "tandem-of-nobody", None])
def test_elsewhere_it_lists_nodes_and_their_devices(environment, namespace):
    assert allowed(environment, namespace) == rows(EVERYWHERE)


def test_no_other_account_of_its_namespace_may_anything():
    assert allowed(HOME.name, "tandem-post", "system:serviceaccount:runner-system:default") == set()


def mount_specs(environment: str, folder: Path) -> Path:
    """Write what the kubelet shows at the mount of the ConfigMap."""
    (volume,) = [row["configMap"] for row in pod(environment)["volumes"] if "configMap" in row]
    (config_map,) = [body for body in runner(environment) if body["kind"] == "ConfigMap"]
    assert volume["name"] == config_map["metadata"]["name"]
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]+", key) for key in config_map["data"])
    for item in volume["items"]:
        path = folder / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config_map["data"][item["key"]])
    return folder


@each_environment
def test_it_reads_the_specs_that_were_rendered(environment, tmp_path):
    (container,) = pod(environment)["containers"]
    folder = mount_specs(environment, tmp_path)
    workspace = load_workspace(folder / "environments", folder / "experiments", (environment,))

    spec = ENVIRONMENTS[environment]
    assert flag(container["args"], "--specs") == "/specs"
    assert (workspace.faults, workspace.environments[environment].record) == ((), spec)
    assert {name: file.record for name, file in workspace.experiments.items()} == {
        experiment.name: experiment for experiment in experiments(spec)
    }


def annotations(environment: Environment) -> dict[str, str]:
    charts = render_charts(build_runner_charts(environment, experiments(environment)))
    bodies = [body for objects in charts.values() for body in objects]
    (value,) = of_kind(bodies, "Deployment").values()
    return value["spec"]["template"]["metadata"]["annotations"]


def test_other_specs_are_another_pod():
    capacity = HOME.capacity.model_copy(update={"usd_per_hour": 1.0})
    others = [
        HOME.model_copy(update={"capacity": capacity}),
        HOME.model_copy(update={"experiments": ("post",)}),
    ]
    assert len({str(annotations(place)) for place in (HOME, *others)}) == 3


def policies(environment: Environment) -> list[Object]:
    bodies = render_charts(build_runner_charts(environment, experiments(environment)))["cluster"]
    return [body["spec"] for body in of_kind(bodies, "NetworkPolicy").values()]


API = [("172.20.0.1", 443), ("10.100.0.1", 443)]


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (AGENT, True),
        (METADATA, False),
        (PUBLIC, True),
        ((PUBLIC[0], 80), False),
        (API[0], True),
        (API[1], True),
        (VPC_ENDPOINT, True),
        ((VPC_ENDPOINT[0], 8000), False),
        (("172.20.0.2", 443), False),
        (PEERED, False),
    ],
    ids=str,
)
def test_it_calls_aws_and_the_kubernetes_api_alone(to, *, expected):
    assert reaches(policies(HOME), "runner", to) is expected


def test_nobody_calls_it_and_another_pod_beside_it_calls_nobody():
    specs = policies(HOME)
    assert [spec for spec in specs if "ingress" in spec] == []
    assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in specs
    assert not any(reaches(specs, "other", to) for to in (AGENT, PUBLIC, *API))
