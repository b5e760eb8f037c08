"""The tokens of played pods, from the API server as a kubelet gets them: bound to their pod, and
renewed in time."""

from __future__ import annotations

import base64
import ssl
import time
from http import HTTPStatus
from pathlib import Path

import httpx2
from api_store import ApiStore

from rehearsal.cluster.store import ApiError, Object
from rehearsal.cluster.tokens import REFRESH_SHARE, TokenMount

LIFE_S = 600  # the shortest that an API server grants
END_S = 60.0  # an API server remembers for some seconds that it accepted a token


class RequestedTokens:
    """The tokens of the played pods, with the methods of a rehearsed cluster's.

    Args:
        store: of the cluster.
    """

    def __init__(self, store: ApiStore) -> None:
        self._store = store
        self._mounts: dict[Path, TokenMount] = {}

    def mount(self, pod: Object, _: str, path: Path) -> None:
        """Write a pod's first token into a file; `refresh` keeps the file fresh.

        Raises:
            ApiError: the API server gives none.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        account = pod["spec"]["serviceAccountName"]
        self._mounts[path] = TokenMount(pod, account, path, self._store.now())
        self._write(self._mounts[path])

    def refresh(self) -> None:
        """Write each token anew that has lived four fifths of its life; forget those of pods that
        are gone."""
        for path, mount in list(self._mounts.items()):
            age_s = (self._store.now() - mount.written_at).total_seconds()
            if age_s < REFRESH_SHARE * LIFE_S:
                continue
            try:
                self._write(mount)
            except ApiError:
                del self._mounts[path]

    def _write(self, mount: TokenMount) -> None:
        metadata = mount.pod["metadata"]
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        spec = {"audiences": [], "expirationSeconds": LIFE_S, "boundObjectRef": reference}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{mount.account}/token"
        mount.path.write_text(self._store.call("POST", path, body)["status"]["token"])
        mount.written_at = self._store.now()


def wait_for_refusal(address: Object, token: str) -> float:
    """Wait until an API server refuses a token, and return after how many seconds.

    Args:
        address: of the cluster, as a kubeconfig has it.

    Raises:
        AssertionError: it accepts the token after END_S.
    """
    authority = base64.b64decode(address["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    headers = {"Authorization": f"Bearer {token}"}
    begin_s = time.monotonic()
    while time.monotonic() < begin_s + END_S:
        answer = httpx2.get(
            f"{address['server']}/api", headers=headers, verify=context, trust_env=False
        )
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            return time.monotonic() - begin_s
        time.sleep(1.0)
    raise AssertionError(f"the token of a deleted pod is accepted after {END_S:g} s")
