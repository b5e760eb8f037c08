"""What Argo CD and Flux are told, held against what there is to sync."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chart_cases import (
    CATALOGUE,
    ENVIRONMENTS,
    GITOPS,
    HOSTED,
    MIRRORS,
    controller,
    experiments,
    objects,
    of_kind,
    people,
    render_charts,
    render_tree,
    runner,
)

from charts.flux import revision_reference
from charts.gitops import build_gitops_charts
from tandem.declarations.environment import Environment

ARGOCD = ENVIRONMENTS["native-us-east-2"]
FLUX = ENVIRONMENTS["dev-trn2-3xlarge"]


def told(environment: Environment) -> list[dict[str, Any]]:
    charts = render_charts(build_gitops_charts(environment, experiments(environment), CATALOGUE))
    return [body for objects in charts.values() for body in objects]


def applications() -> list[dict[str, Any]]:
    """Every Application of the Argo CD environment, those of the set filled in."""
    bodies = controller("native-us-east-2")
    (result,) = of_kind(bodies, "ApplicationSet").values()
    (generator,) = result["spec"]["generators"]
    template = result["spec"]["template"]["spec"]
    specs = [body["spec"] for body in of_kind(bodies, "Application").values()]
    return specs + [filled(template, element) for element in generator["list"]["elements"]]


def filled(value: Any, element: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: filled(inner, element) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, element) for inner in value]
    for key, text in element.items():
        value = value.replace(f"{{{{.{key}}}}}", text) if isinstance(value, str) else value
    return value


def synced_folders(environment: str) -> list[str]:
    result = of_kind(controller(environment), "Kustomization").values()
    own = (
        [application["source"]["path"] for application in applications()]
        if environment == ARGOCD.name
        else []
    )
    return own + [body["spec"]["path"].removeprefix("./") for body in result]


def test_nothing_is_told_to_a_controller_where_the_cdk_delivers():
    assert told(ENVIRONMENTS["post-us-east-2"]) == []


@pytest.mark.parametrize("environment", GITOPS)
def test_every_synced_folder_has_a_kustomization_in_the_tree(environment):
    tree = {str(path) for path in render_tree(environment)}
    folders = [path for path in synced_folders(environment) if path != "."]
    missing = [
        path
        for path in folders
        if f"{Path(path).relative_to('manifests')}/kustomization.yaml" not in tree
    ]

    assert len(folders) > 0
    assert missing == []


def test_every_application_follows_the_declared_revision_or_a_pinned_chart():
    revisions = {application["source"]["targetRevision"] for application in applications()}
    assert revisions == {ARGOCD.delivery.revision, CATALOGUE.dra_chart.version.value}


OF_EXPERIMENTS = [
    body for name, experiment in HOSTED if name == ARGOCD.name for body in objects(name, experiment)
]


@pytest.mark.parametrize(
    ("name", "bodies"),
    [
        ("native-us-east-2", OF_EXPERIMENTS),
        ("native-us-east-2-people", people()),
        ("native-us-east-2-runner", runner("native-us-east-2")),
    ],
    ids=["experiments", "people", "runner"],
)
def test_a_project_admits_exactly_what_is_rendered(name, bodies):
    project = of_kind(controller("native-us-east-2"), "AppProject")[name]["spec"]
    rendered_kinds = {
        (body["apiVersion"].rpartition("/")[0], body["kind"], "namespace" in body["metadata"])
        for body in bodies
    }
    admitted_kinds = {
        (entry["group"], entry["kind"], False) for entry in project["clusterResourceWhitelist"]
    }
    if project.get("namespaceResourceBlacklist") != [{"group": "*", "kind": "*"}]:
        admitted_kinds |= {
            (entry["group"], entry["kind"], True) for entry in project["namespaceResourceWhitelist"]
        }

    assert admitted_kinds == rendered_kinds
    spaces = {
        body["metadata"].get("namespace", body["metadata"]["name"])
        for body in bodies
        if body["kind"] in SPACED
    }
    assert spaces <= {destination["namespace"] for destination in project["destinations"]}


SPACED = {"Namespace", "Role", "Deployment", "CronJob", "ConfigMap"}


@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        ("main", {"branch": "main"}),
        ("release/7", {"branch": "release/7"}),
        ("v1.2.0", {"tag": "v1.2.0"}),
        ("1.2.0-rc.1", {"tag": "1.2.0-rc.1"}),
        ("refs/tags/stable", {"name": "refs/tags/stable"}),
        ("81ce03ae" * 5, {"commit": "81ce03ae" * 5}),
    ],
)
def test_flux_is_told_what_kind_of_revision_it_follows(revision, expected):
    assert revision_reference(revision) == expected


@pytest.mark.parametrize(
    ("url", "expected"), [("ssh://git@git.example.com/x.git", True), ("https://x.example/y", False)]
)
def test_flux_is_given_a_key_for_ssh(url, *, expected):
    delivery = FLUX.delivery.model_copy(update={"repo_url": url})
    (source,) = of_kind(
        told(FLUX.model_copy(update={"delivery": delivery})), "GitRepository"
    ).values()
    assert ("secretRef" in source["spec"]) is expected


@pytest.mark.parametrize(
    ("mirrors", "expected"),
    [(MIRRORS, "aws"), ({}, None), ({"public.ecr.aws": "mirror.acme.dev/public"}, None)],
)
def test_flux_logs_in_to_private_ecr_with_its_own_identity(mirrors, expected):
    (source,) = of_kind(
        told(FLUX.model_copy(update={"registry_mirrors": mirrors})), "OCIRepository"
    ).values()
    assert source["spec"].get("provider") == expected
