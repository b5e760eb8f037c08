"""What Argo CD or Flux must remove first: the names are those that are rendered."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from small_stacks import ROOT, declared

from charts.gitops import render_gitops
from tandem.errors import InputError
from tandem.ops.account import AccountClients
from tandem.ops.destroy.gitops import list_gitops_objects, require_objects_removed
from tandem.ops.destroy.survey import survey_teardown
from tandem.spec.catalogue import load_catalogue
from tandem.spec.workspace import load_workspace


def delivered(tool):
    def change(document):
        document["delivery"] = {
            "kind": "gitops", "repo_url": "https://example.com/fleet.git", "revision": "main",
            "path": "manifests/post", "tool": tool, "namespace": "delivery",
        }  # fmt: skip

    return change


@pytest.mark.parametrize("tool", ["argocd", "flux"])
def test_it_names_every_object_that_the_tool_was_told_and_no_other(tmp_path: Path, tool: str):
    environment = declared(tmp_path, "post", delivered(tool))
    workspace = load_workspace(tmp_path / "environments", ROOT / "experiments", ("post",))
    hosted = [found.record for found in workspace.experiments.values()]
    told = {
        f"{body['kind']}/{body['metadata']['name']}"
        for body in render_gitops(environment, hosted, load_catalogue())[tool]
    }  # fmt: skip

    named = set(list_gitops_objects(environment))

    made = {f"Application/post-{one.name}" for one in hosted} if tool == "argocd" else set()
    assert {one for one in told if not any(fnmatchcase(one, pattern) for pattern in named)} == set()
    assert {one for one in named - made if not any(fnmatchcase(body, one) for body in told)} == set()
    assert made <= named


def test_a_teardown_waits_for_the_operators_word_and_names_command_and_namespaces(small):
    one = small(change=delivered("argocd")).deploy()

    with pytest.raises(InputError) as refused:
        survey_teardown(one.account(), gitops_gone=False)
    survey_teardown(one.account(), gitops_gone=True)

    assert f"Application/{one.name}-neuron-dra" in str(refused.value)
    assert f"kubectl delete -k manifests/{one.name}/gitops" in str(refused.value)
    assert "tandem-post, tandem-post-drafts-windows" in str(refused.value)
    assert "--gitops-removed" in refused.value.change


def test_without_a_cluster_no_tool_is_asked_about(small):
    one = small(change=delivered("flux")).deploy(("Artifacts", "Network"))
    assert survey_teardown(one.account(), gitops_gone=False).stacks


def test_where_the_cdk_delivers_there_is_nothing_to_remove_before(small):
    one = small()
    require_objects_removed(AccountClients(one.environment), gitops_gone=False)
    assert list_gitops_objects(one.environment) == ()
