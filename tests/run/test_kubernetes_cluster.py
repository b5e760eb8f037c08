"""What the client makes of answers that come from before the API server."""

import json

import httpx2
import pytest

from tandem.errors import ExternalError
from tandem.run.cluster import KubernetesCluster, RefusedCallError


def ask(monkeypatch, tmp_path, answer):
    config = {
        "clusters": [{"name": "a", "cluster": {"server": "https://api"}}],
        "users": [{"name": "a", "user": {}}],
    }
    config |= {
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    cluster = KubernetesCluster()
    cluster._client._client._client = httpx2.Client(
        transport=httpx2.MockTransport(lambda _: answer), base_url="https://api"
    )
    cluster.list_objects("pods", "experiment-post")


def test_503_without_content_type_is_tried_again(monkeypatch, tmp_path):
    with pytest.raises(ExternalError, match="did not answer") as info:
        ask(monkeypatch, tmp_path, httpx2.Response(503))
    assert not isinstance(info.value, RefusedCallError)


def test_403_is_a_refusal(monkeypatch, tmp_path):
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "code": 403,
        "message": "no",
        "status": "Failure",
    }
    with pytest.raises(RefusedCallError, match="403 no"):
        ask(monkeypatch, tmp_path, httpx2.Response(403, json=status))
