# ruff: noqa: SLF001 - the table of routes stands behind the class
"""The hub's HTTP: answers the official client with the headers and error codes that it reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from rehearsal.hub.repositories import MAIN_BRANCH, HubBlob, HubRepositories, HubRevision

_ID_PATTERN = r"(?P<id>[\w.-]+/[\w.-]+)"
_LARGE_PATH = "cdn"  # the path that the redirect of a large file leads to
# Another name of this machine, as the hub's CDN is another host. The client follows no redirect
# within the hub's own host when it requests a file's head, and it sends its token to that host
# only.
LARGE_HOST = "localhost"
PIECE_BYTES = 256 * 1024  # of a file in memory at a time while it is sent
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class HubAccess:
    """Tokens and the repositories that they may read.

    Args:
        tokens: those that open everything.
        unauthorized_tokens: those that the hub knows and that open no gated or private repository.
        gated_repositories: repositories whose files need an accepted licence, so a token of
            `tokens`.
        gates_metadata: whether their lists of files need it too.
        private_repositories: repositories that are not there without a token of `tokens`.
    """

    tokens: frozenset[str] = frozenset()
    unauthorized_tokens: frozenset[str] = frozenset()
    gated_repositories: frozenset[str] = frozenset()
    gates_metadata: bool = False
    private_repositories: frozenset[str] = frozenset()


class HubError(Exception):
    """A refusal of the hub: status, its code for the client (may be ""), its message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class HubConnection(BaseHTTPRequestHandler):
    """One client connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, repositories: HubRepositories, access: HubAccess, *arguments: Any) -> None:
        self.repositories = repositories
        self.access = access
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing: the proxy in front has a log."""

    def _route_request(self) -> None:
        path = unquote(urlsplit(self.path).path)
        for expression, route_method in _ROUTES:
            if match := re.fullmatch(expression, path):
                try:
                    route_method(self, **match.groupdict())
                except HubError as error:
                    self._refuse(error)
                return
        self._refuse(HubError(404, "", "Not found"))

    do_GET = do_HEAD = _route_request  # noqa: N815

    def _refuse(self, error: HubError) -> None:
        headers = {
            "X-Error-Message": error.message,
            **({"X-Error-Code": error.code} if error.code else {}),
        }
        self._send_answer(error.status, json.dumps({"error": error.message}).encode(), headers)

    def _send_answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        head = {
            "Content-Type": "application/json; charset=utf-8",
            "Content-Length": str(len(content)),
            **headers,
        }
        self._send_head(status, head)
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_json(self, value: Any) -> None:
        self._send_answer(HTTPStatus.OK, json.dumps(value).encode(), {})

    def _check_access(self, repository: str, *, reads_files: bool) -> None:
        """Refuse a repository that is not there or not for this client, in the hub's words."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        access = self.access
        if token and token not in access.tokens | access.unauthorized_tokens:
            raise HubError(401, "", "Invalid credentials in Authorization header")
        exists = repository in self.repositories.names()
        if not exists or (repository in access.private_repositories and token not in access.tokens):
            if not token:
                # The client recognizes this case by an https address; over http it needs the code.
                raise HubError(401, "RepoNotFound", "Invalid username or password.")
            raise HubError(404, "RepoNotFound", "Repository not found")
        if (
            repository in access.gated_repositories
            and token not in access.tokens
            and (reads_files or access.gates_metadata)
        ):
            restriction = f"Access to model {repository} is restricted"
            if not token:
                raise HubError(
                    401,
                    "GatedRepo",
                    f"{restriction}. You must have access to it and be authenticated.",
                )
            raise HubError(
                403, "GatedRepo", f"{restriction} and you are not in the authorized list."
            )

    def _find_revision(self, repository: str, revision_name: str) -> HubRevision:
        commit = self.repositories.revision(repository, revision_name)
        if commit is None:
            raise HubError(404, "RevisionNotFound", f"Invalid rev id: {revision_name}")
        return commit

    def _describe_model(self, id: str, revision: str | None = None) -> None:  # noqa: A002 - the hub's own name
        self._check_access(id, reads_files=False)
        commit = self._find_revision(id, revision or MAIN_BRANCH)
        has_details = "blobs=" in urlsplit(self.path).query
        self._send_json(
            {
                "id": id,
                "modelId": id,
                "sha": commit.commit,
                "private": id in self.access.private_repositories,
                "gated": "manual" if id in self.access.gated_repositories else False,
                "disabled": False,
                "tags": [],
                "siblings": [
                    _sibling_fields(blob, has_details=has_details) for blob in commit.files.values()
                ],
            }
        )

    def _resolve_file(self, id: str, revision: str, file: str) -> None:  # noqa: A002
        self._check_access(id, reads_files=True)
        commit = self._find_revision(id, revision)
        blob = commit.files.get(file)
        if blob is None:
            raise HubError(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit.commit, "Accept-Ranges": "bytes"}
        if blob.sha256 is None:
            self._send_content(blob, {**headers, "ETag": f'"{blob.oid}"'})
            return
        host = f"{LARGE_HOST}:{self.headers['Host'].rpartition(':')[2]}"
        location = f"http://{host}/{_LARGE_PATH}/{id}/{commit.commit}/{quote(file)}?signature={blob.sha256}"
        link_headers = {
            "X-Linked-Size": str(blob.size),
            "X-Linked-Etag": f'"{blob.sha256}"',
            "Location": location,
        }
        self._send_answer(HTTPStatus.FOUND, b"", {**headers, **link_headers})

    def _send_large_file(self, id: str, revision: str, file: str) -> None:  # noqa: A002
        """Send a large file; its address is signed, so no token is needed."""
        blob = self._find_revision(id, revision).files.get(file)
        if blob is None or urlsplit(self.path).query != f"signature={blob.sha256}":
            raise HubError(403, "", "the address is not signed")
        self._send_content(blob, {"ETag": f'"{blob.sha256}"', "Accept-Ranges": "bytes"})

    def _send_content(self, blob: HubBlob, headers: dict[str, str]) -> None:
        range_match = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = 0
        end = blob.size
        status = HTTPStatus.OK
        if range_match:
            start = int(range_match[1])
            end = min(int(range_match[2] or blob.size) + 1, blob.size)
            if start >= blob.size:
                self._send_answer(
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                    b"",
                    {**headers, "Content-Range": f"bytes */{blob.size}"},
                )
                return
            status = HTTPStatus.PARTIAL_CONTENT
            headers = {**headers, "Content-Range": f"bytes {start}-{end - 1}/{blob.size}"}
        self._send_head(
            status,
            {
                **headers,
                "Content-Length": str(end - start),
                "Content-Type": "application/octet-stream",
            },
        )
        if self.command != "HEAD":
            self._send_range(blob, start, end)

    def _send_range(self, blob: HubBlob, start: int, end: int) -> None:
        with blob.path.open("rb") as file:
            file.seek(start)
            while start < end:
                piece = file.read(min(PIECE_BYTES, end - start))
                if not piece:
                    # somebody cut the file meanwhile: the client must see it
                    self.close_connection = True
                    return
                start += len(piece)
                self.wfile.write(piece)


def _sibling_fields(blob: HubBlob, *, has_details: bool) -> dict[str, Any]:
    if not has_details:
        return {"rfilename": blob.name}
    fields = {"rfilename": blob.name, "size": blob.size, "blobId": blob.oid}
    if blob.sha256 is None:
        return fields
    return {
        **fields,
        "lfs": {"sha256": blob.sha256, "size": blob.size, "pointerSize": blob.pointer_size},
    }


_ROUTES: tuple[tuple[str, Callable[..., None]], ...] = (
    (rf"/api/models/{_ID_PATTERN}", HubConnection._describe_model),
    (rf"/api/models/{_ID_PATTERN}/revision/(?P<revision>.+)", HubConnection._describe_model),
    (rf"/{_ID_PATTERN}/resolve/(?P<revision>[^/]+)/(?P<file>.+)", HubConnection._resolve_file),
    (
        rf"/{_LARGE_PATH}/{_ID_PATTERN}/(?P<revision>[^/]+)/(?P<file>.+)",
        HubConnection._send_large_file,
    ),
)
