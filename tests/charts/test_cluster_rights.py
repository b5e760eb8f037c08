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
        (place, verb, group, resource)
        for place, (verb, group, resource) in itertools.product(PLACES, EVERYTHING)
        if allows(
            everything(environment),
            {kubernetes_group(kind), "system:authenticated"},
            ApiRequest(verb=verb, group=group, resource=resource, namespace=spaces[place]),
        )
    }


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("kind", CLUSTER_KINDS)
def test_rbac_allows_exactly_the_page(environment, kind):
    assert rights_by_rbac(environment, kind) == rights_on_the_page(kind)


@pytest.mark.parametrize("kind", CLUSTER_KINDS)
def test_people_change_nothing(kind):
    assert {verb for _, verb, _, _ in rights_on_the_page(kind)} == {"get", "list", "watch"}
