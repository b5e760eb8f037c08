"""A parked environment looks parked: its pods wait, nobody's node is taken, no tool calls it
broken."""

from __future__ import annotations

from typing import Any

import pytest
from chart_cases import (
    ENVIRONMENTS,
    EXPERIMENTS,
    HOSTED,
    experiments,
    find_pod,
    of_kind,
    stages,
    templates,
)

from rehearsal.cluster.scheduling import NodeRoom, find_obstacle
from tandem.declarations import names

Pod = dict[str, Any]
TAINT = {"key": "aws.amazon.com/neuron", "value": "present", "effect": "NoSchedule"}


def build_node(labels: dict[str, str]) -> NodeRoom:
    """An accelerator node that serves, with these labels."""
    conditions = [{"type": "Ready", "status": "True"}]
    return NodeRoom(
        {
            "metadata": {"name": "node", "labels": labels},
            "spec": {"taints": [TAINT]},
            "status": {"conditions": conditions},
        }
    )


def fits(pod: Pod, node: NodeRoom) -> bool:
    return not find_obstacle({"spec": pod}, node, {})


def raised(environment: str, experiment: str, *variants: str) -> NodeRoom:
    """An accelerator node that was raised for these variants of one experiment."""
    result = {item.name: item for item in EXPERIMENTS[experiment].all_variants()}
    own = {names.raise_label(result[name]): experiment for name in variants}
    kind = {"node.kubernetes.io/instance-type": ENVIRONMENTS[environment].capacity.instance_type}
    return build_node(kind | own)


def pods(environment: str) -> dict[tuple[str, str], Pod]:
    """Every server's pod in an environment, by experiment and variant."""
    return {
        (experiment.name, name): template["spec"]
        for experiment in experiments(ENVIRONMENTS[environment])
        for name, template in templates(stages(environment, experiment.name)["serve"]).items()
    }


def compiles(environment: str, experiment: str) -> dict[str, Pod]:
    """Every compile job's pod of one experiment."""
    bodies = of_kind(stages(environment, experiment)["compile"], "CronJob")
    return {name: find_pod(body) for name, body in bodies.items()}


def raised_to_compile(environment: str, experiment: str) -> NodeRoom:
    label, value = names.compile_label(EXPERIMENTS[experiment])
    kind = {"node.kubernetes.io/instance-type": ENVIRONMENTS[environment].capacity.instance_type}
    return build_node(kind | {label: value})


SERVERS = [
    pytest.param(environment, *server, id=f"{server[0]}-{server[1]}")
    for environment in ENVIRONMENTS
    for server in pods(environment)
]


@pytest.mark.parametrize(("environment", "experiment", "variant"), SERVERS)
def test_one_pod_of_the_environment_fits_the_node_raised_for_it(environment, experiment, variant):
    node = raised(environment, experiment, variant)
    takers = [server for server, pod in pods(environment).items() if fits(pod, node)]
    assert takers == [(experiment, variant)]


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_a_compile_job_fits_the_node_raised_for_its_experiment(environment, experiment):
    node = raised_to_compile(environment, experiment)
    assert all(fits(pod, node) for pod in compiles(environment, experiment).values())


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_no_server_and_no_other_experiments_job_takes_that_node(environment, experiment):
    node = raised_to_compile(environment, experiment)
    others = [
        pod
        for item in ENVIRONMENTS[environment].experiments
        if item != experiment
        for pod in compiles(environment, item).values()
    ]

    assert not any(fits(pod, node) for pod in (*others, *pods(environment).values()))


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_the_quota_admits_a_claim_of_every_server_and_of_every_compile_job(environment, experiment):
    serving = [pod for (name, _), pod in pods(environment).items() if name == experiment]
    claims = sum(
        len(pod["resourceClaims"])
        for pod in (*serving, *compiles(environment, experiment).values())
    )
    quota = of_kind(stages(environment, experiment)["base"], "ResourceQuota")["claims"]["spec"][
        "hard"
    ]
    assert int(quota["count/resourceclaims.resource.k8s.io"]) == claims
