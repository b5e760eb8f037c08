"""What names no cluster is refused before anything is called."""

from __future__ import annotations

import pytest
from named_cluster import NamedCluster, NamedClusterError

# prints what `kubectl config get-contexts --output name` prints
KUBECTL = "#!/bin/sh\necho lab\necho other\n"


@pytest.fixture
def variables(tmp_path):
    """The variables of a cluster that is there."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    (tmp_path / "config").write_text("current-context: lab\n")
    return {
        "CONFORM_KUBECONFIG": str(tmp_path / "config"),
        "CONFORM_CONTEXT": "other",
        "KUBECTL": str(kubectl),
    }


def test_a_named_context_is_chosen(variables):
    assert NamedCluster.choose(variables).context == "other"


@pytest.mark.parametrize("name", ["CONFORM_KUBECONFIG", "CONFORM_CONTEXT"])
def test_a_name_that_is_missing_is_refused(variables, name):
    del variables[name]
    with pytest.raises(NamedClusterError, match="the current one is never taken"):
        NamedCluster.choose(variables | {"KUBECONFIG": variables.get("CONFORM_KUBECONFIG", "")})


def test_a_context_that_the_file_has_not_is_refused(variables):
    with pytest.raises(NamedClusterError, match="has no lost, only lab, other"):
        NamedCluster.choose(variables | {"CONFORM_CONTEXT": "lost"})


def test_a_file_that_is_not_there_is_refused(variables):
    with pytest.raises(NamedClusterError, match="is no file"):
        NamedCluster.choose(variables | {"CONFORM_KUBECONFIG": "nowhere"})
