"""The rendered tree: golden files, the same bytes every time, buildable by kubectl."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from chart_cases import ENVIRONMENTS, GITOPS, parse_objects, render_tree
from committed import ROOT

from charts import tree
from tandem.declarations.faults import SpecError

MANIFESTS = ROOT / "manifests"


def render(environment: str, out: Path) -> list[Path]:
    return tree.write_tree(environment, render_tree(environment), out)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_committed_manifests_are_those_the_specs_render(environment):
    assert tree.list_stale_files(environment, render_tree(environment), MANIFESTS) == []


def test_render_removes_a_file_that_no_longer_belongs(tmp_path):
    render("post-us-east-2", tmp_path)
    stray = tmp_path / "post-us-east-2/retired/serve/serve.yaml"
    stray.parent.mkdir(parents=True)
    stray.write_text("kind: Deployment\n")

    render("post-us-east-2", tmp_path)

    assert not (tmp_path / "post-us-east-2/retired").exists()


def test_render_removes_nothing_from_a_folder_it_never_wrote(tmp_path):
    (tmp_path / "dev-trn2-3xlarge").mkdir()
    precious = tmp_path / "dev-trn2-3xlarge" / "app.py"
    precious.write_text("precious")

    with pytest.raises(SpecError):
        render("dev-trn2-3xlarge", tmp_path)

    assert [path.name for path in tmp_path.rglob("*")] == ["dev-trn2-3xlarge", "app.py"]


@pytest.mark.parametrize("change", ["edit", "delete", "add", "line endings"])
def test_stale_names_the_file_that_differs(change, tmp_path):
    render("post-us-east-2", tmp_path)
    path = Path("post-us-east-2/post/serve/serve.yaml")
    match change:
        case "edit":
            (tmp_path / path).write_text("")
        case "delete":
            (tmp_path / path).unlink()
        case "add":
            path = path.with_name("extra.yaml")
            (tmp_path / path).write_text("")
        case "line endings":
            (tmp_path / path).write_bytes((tmp_path / path).read_bytes().replace(b"\n", b"\r\n"))

    assert tree.list_stale_files("post-us-east-2", render_tree("post-us-east-2"), tmp_path) == [
        path
    ]


FORBIDDEN = re.compile(
    r"\$\{Token|\bNodePort\b|\bLoadBalancer\b|\bhostPath\b|\bhostNetwork\b|\bprivileged\b"
    r"|:latest\b|resource\.k8s\.io/v1(alpha|beta)"
    r"|\baws\.amazon\.com/neuron(core|device)?: *['\"]?\d"
)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_manifest_opens_a_way_in(environment):
    texts = render_tree(environment)
    assert [str(path) for path, text in texts.items() if FORBIDDEN.search(text)] == []


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_runner_alone_has_a_written_number_of_pods(environment):
    """The runner owns that number of everything that serves."""
    holders = [
        str(path)
        for path, text in render_tree(environment).items()
        if re.search(r"\breplicas:", text)
    ]
    assert holders == [f"{environment}/runner/runner.yaml"]


def read_folders(environment: str) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of each folder that is applied as one: of each experiment, people and
    runner."""
    folders: dict[str, list[dict[str, Any]]] = {}
    for path, text in render_tree(environment).items():
        if path.name != "kustomization.yaml" and "gitops" not in path.parts:
            folders.setdefault(path.parts[1], []).extend(parse_objects(text))
    return folders


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_folder_makes_every_namespace_that_it_uses(environment):
    """So folders can be applied in any order: the API server refuses an object of a namespace that
    is not there."""
    for folder, bodies in read_folders(environment).items():
        name = {body["metadata"]["name"] for body in bodies if body["kind"] == "Namespace"}
        used = {body["metadata"]["namespace"] for body in bodies if "namespace" in body["metadata"]}
        assert used <= name, folder


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_object_is_in_two_folders(environment):
    """Two Applications or Kustomizations that own one object would fight over it."""
    identities = [
        identity(body) for bodies in read_folders(environment).values() for body in bodies
    ]
    assert len(identities) == len(set(identities)) > 0


def built(kubectl: Path, folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(kubectl), "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return parse_objects(done.stdout)


def identity(body: dict[str, Any]) -> tuple[str, str, str]:
    return body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_kubectl_builds_every_object_below_a_kustomization_unchanged(
    environment, kubectl, tmp_path
):
    """The environment's own names all others but that of the controller, which is applied by hand,
    once."""
    render(environment, tmp_path)
    expected = {True: [], False: []}
    for path, text in render_tree(environment).items():
        if path.name != "kustomization.yaml":
            expected["gitops" in path.parts] += parse_objects(text)

    assert sorted(built(kubectl, tmp_path / environment), key=identity) == sorted(
        expected[False], key=identity
    )
    if environment in GITOPS:
        result = built(kubectl, tmp_path / environment / "gitops")
        assert sorted(result, key=identity) == sorted(expected[True], key=identity)
