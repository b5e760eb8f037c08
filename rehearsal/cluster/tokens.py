"""Bound tokens: each for one pod and service account, with an end, and written anew before it.

Source: pkg/kubelet/token/token_manager.go (requiresRefresh), pkg/serviceaccount/claims.go
(Validate). Left out: audiences, signatures, the refresh's jitter, and the extended life that an API
server may give to tokens that every pod gets.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path

from rehearsal.cluster.store import ApiError, Object, ObjectStore

REFRESH_SHARE = 0.8  # of a token's life


@dataclass(slots=True)
class TokenMount:
    """The token file of a pod.

    Args:
        pod: the pod when it began.
        account: whose token it is.
        path: of the file.
        written_at: when the file got its present token.
    """

    pod: Object
    account: str
    path: Path
    written_at: datetime


@dataclass(frozen=True, slots=True)
class BoundToken:
    """What the API server knows of a token."""

    account: str
    namespace: str
    pod_name: str
    pod_uid: str
    end: datetime


class BoundTokens:
    """The tokens of a cluster's pods: the API server's knowledge and the kubelets' files.

    Args:
        store: of the cluster.
        life_s: of a token, in seconds; a real API server gives 600 at least.
        has_kubelet: tells whether the kubelet of a node lives; a dead one writes nothing.
        standing_tokens: tokens of people, which do not end.
    """

    def __init__(
        self,
        store: ObjectStore,
        life_s: float,
        has_kubelet: Callable[[str], bool] = lambda _: True,
        standing_tokens: Collection[str] = (),
    ) -> None:
        self._store = store
        self._life_s = life_s
        self._has_kubelet = has_kubelet
        self._standing_tokens = frozenset(standing_tokens)
        self._tokens: dict[str, BoundToken] = {}
        self._mounts: dict[Path, TokenMount] = {}

    def mount(self, pod: Object, account: str, path: Path) -> None:
        """Write a pod's first token into a file; `refresh` keeps the file fresh."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._mounts[path] = TokenMount(pod, account, path, self._store.now())
        self._write_token(self._mounts[path])

    def refresh(self) -> None:
        """Write a new token to each file at four fifths of its token's life; forget ended ones."""
        now = self._store.now()
        uids = (
            {pod["metadata"]["uid"] for pod in self._store.view_objects("pods")}
            if self._mounts
            else set()
        )
        for path, mount in list(self._mounts.items()):
            if mount.pod["metadata"]["uid"] not in uids:
                del self._mounts[path]
                continue
            age_s = (now - mount.written_at).total_seconds()
            is_alive = self._has_kubelet(mount.pod["spec"].get("nodeName", ""))
            if is_alive and age_s >= REFRESH_SHARE * self._life_s:
                self._write_token(mount)
        self._tokens = {text: token for text, token in self._tokens.items() if token.end > now}

    def find_account(self, text: str) -> str:
        """Return the account of a token, or the text itself if it is a standing one.

        Raises:
            ApiError: 401 for a token that nobody issued, that has ended, or whose pod is gone.
        """
        if text in self._standing_tokens:
            return text
        token = self._tokens.get(text)
        if token is None or self._store.now() >= token.end or not self._has_pod(token):
            raise ApiError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
        return token.account

    def _has_pod(self, token: BoundToken) -> bool:
        try:
            pod = self._store.get_object("pods", token.namespace, token.pod_name)
        except ApiError:
            return False
        return bool(pod["metadata"]["uid"] == token.pod_uid)

    def _write_token(self, mount: TokenMount) -> None:
        """Put a new token into the place of the old one at once, as a kubelet does."""
        text = secrets.token_urlsafe(32)
        metadata = mount.pod["metadata"]
        mount.written_at = self._store.now()
        self._tokens[text] = BoundToken(
            account=mount.account,
            namespace=metadata["namespace"],
            pod_name=metadata["name"],
            pod_uid=metadata["uid"],
            end=mount.written_at + timedelta(seconds=self._life_s),
        )
        new_path = mount.path.with_suffix(".new")
        new_path.write_text(text)
        new_path.replace(mount.path)
