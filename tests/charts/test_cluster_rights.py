"""What people may do in a cluster: the rendered RBAC against the table of docs/people.md."""

from __future__ import annotations

import itertools
import re

import pytest
from chart_cases import ENVIRONMENTS, everything, experiments
from committed import ROOT
from rbac_evaluator import EVERYTHING, ApiRequest, allows

from tandem.declarations import names
from tandem.ops.people.cluster_rights import CLUSTER_KINDS, ClusterKind, kubernetes_group

PLACES = ("an experiment", "elsewhere", "all namespaces")
Right = tuple[str, str, str, str]  # place, verb, group, resource


def page_rows() -> list[list[str]]:
    """The rows of the page's table: verbs, group, resources, where, then yes or no for each kind,
    reason."""
    text = (ROOT / "docs/people.md").read_text()
    table = text.partition("## In the cluster\n")[2].partition("\n**People create nothing")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line[:2] == "| "
    ]
    return rows[1:]


def rights_on_the_page(kind: ClusterKind) -> set[Right]:
    column = 4 + CLUSTER_KINDS.index(kind)
    return {
        (place, verb, group if group != "core" else "", resource)
        for verbs, group, resources, where, *cells in page_rows()
        if [verbs, group, resources, where, *cells][column] == "yes"
        for place in (("an experiment",) if where == "experiments" else PLACES)
        for verb in re.findall(r"`(.+?)`", verbs)
        for resource in re.findall(r"`(.+?)`", resources)
    }


def rights_by_rbac(environment: str, kind: ClusterKind) -> set[Right]:
    spaces = {
        "an experiment": names.experiment_namespace(experiments(ENVIRONMENTS[environment])[0]),
        "elsewhere": "kube-system",
        "all namespaces": None,
    }
    return {
        (place, *asked_item)
        for place, (verb, group, resource) in itertools.product(PLACES, EVERYTHING)
        for asked_item in [(verb, group, resource)]
        if allows(
            everything(environment),
            {kubernetes_group(kind), "system:authenticated"},
            ApiRequest(verb=verb, group=group, resource=resource, namespace=spaces[place]),
        )
    }


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("kind", CLUSTER_KINDS)
def test_rbac_allows_exactly_the_page(environment: str, kind: ClusterKind) -> None:
    assert rights_by_rbac(environment, kind) == rights_on_the_page(kind)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("kind", CLUSTER_KINDS)
def test_people_change_nothing(environment: str, kind: ClusterKind) -> None:
    assert {verb for _, verb, _, _ in rights_by_rbac(environment, kind)} == {"get", "list", "watch"}


@pytest.mark.parametrize("kind", CLUSTER_KINDS)
def test_what_the_page_denies_is_not_allowed_on_it_too(kind: ClusterKind) -> None:
    allowed_rights = {right[1:] for right in rights_on_the_page(kind)}
    denied_values = {
        (verb, group if group != "core" else "", resource)
        for verbs, group, resources, where, *_ in page_rows()
        if where == "nowhere"
        for verb in re.findall(r"`(.+?)`", verbs)
        for resource in re.findall(r"`(.+?)`", resources)
    }

    assert denied_values & allowed_rights == set()


# what kubectl asks for its commands, after the way to the object; `label` patches it
ASKED_BY_KUBECTL = {
    "create job": [("get", "batch", "cronjobs"), ("create", "batch", "jobs")],
    "create -f": [("create", "batch", "jobs")],
    "delete job": [("delete", "batch", "jobs")],
    "get cronjobs": [("list", "batch", "cronjobs")],
    "get pods": [("list", "", "pods")],
    "label node": [("patch", "", "nodes")],
    "logs": [
        ("get", "batch", "jobs"),
        ("get", "apps", "deployments"),
        ("list", "", "pods"),
        ("get", "", "pods/log"),
    ],
    "scale deploy": [("get", "apps", "deployments"), ("patch", "apps", "deployments/scale")],
}


@pytest.mark.parametrize(
    ("kind", "may"),
    [
        ("viewer", {"get cronjobs", "get pods"}),
        ("engineer", {"get cronjobs", "get pods", "logs"}),
        ("operator", {"get cronjobs", "get pods", "logs"}),
    ],
)
def test_a_run_by_hand_takes_an_admin(kind: ClusterKind, may: set[str]) -> None:
    page = (ROOT / "docs/run-by-hand.md").read_text()
    commands = re.findall(
        r"kubectl (?:-n tandem-post )?((?:apply|create|delete|get|label|scale)"
        r" [\w-]+|exec|logs|cp|rollout)",
        page,
    )
    allowed_commands = {
        command
        for command in commands
        if all(
            allows(
                everything("post-us-east-2"),
                {kubernetes_group(kind)},
                ApiRequest(verb=verb, group=group, resource=resource, namespace="tandem-post"),
            )
            for verb, group, resource in ASKED_BY_KUBECTL[command]
        )
    }

    assert (allowed_commands, set(commands)) == (may, {*ASKED_BY_KUBECTL})


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_rule_holds_a_wildcard(environment: str) -> None:
    roles = [body for body in everything(environment) if body["kind"] in {"Role", "ClusterRole"}]
    assert roles != []
    assert "*" not in {
        text
        for role in roles
        for rule in role["rules"]
        for texts in rule.values()
        for text in texts
    }
