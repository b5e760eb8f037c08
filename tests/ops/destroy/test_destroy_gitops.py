"""What Argo CD or Flux must remove first."""

from __future__ import annotations

import pytest

from tandem.errors import InputError
from tandem.ops.destroy.survey import survey_teardown


def delivered(tool):
    def change(document):
        document["delivery"] = {
            "kind": "gitops",
            "repo_url": "https://example.com/fleet.git",
            "revision": "main",
            "path": "manifests/post",
            "tool": tool,
            "namespace": "delivery",
        }

    return change


def test_teardown_waits_for_the_operators_word(small):
    world = small(change=delivered("argocd")).deploy()

    with pytest.raises(InputError) as refusal:
        survey_teardown(world.account(), gitops_gone=False)
    survey_teardown(world.account(), gitops_gone=True)

    assert f"kubectl delete -k manifests/{world.name}/gitops" in str(refusal.value)
    assert "tandem-post, tandem-post-drafts-windows" in str(refusal.value)
    assert "--gitops-removed" in refusal.value.change


def test_without_a_cluster_no_tool_is_asked_about(small):
    world = small(change=delivered("flux")).deploy(("Artifacts", "Network"))
    assert survey_teardown(world.account(), gitops_gone=False).stacks
