"""The hub's HTTP: what the official client asks for, answered with the headers and error codes that it reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from tandem.twin import loopback
from tandem.twin.hub.repositories import MAIN, Blob, Repositories, Revision

_ID = r"(?P<id>[\w.-]+/[\w.-]+)"
_LARGE = "cdn"  # the path that the redirect of a large file leads to
# By another name of this machine, as the hub's CDN is another host: the client follows no redirect within the hub's
# own host when it asks for a file's head, and it sends its token to that host only.
LARGE_HOST = "localhost"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Who may read what.

    Args:
        tokens: those that open everything.
        strangers: those that the hub knows and that open no gated or private repository.
        gated: repositories whose files need an accepted licence, so a token of `tokens`.
        gates_metadata: whether that holds for their lists of files too.
        private: repositories that are not there without a token of `tokens`.
    """

    tokens: frozenset[str] = frozenset()
    strangers: frozenset[str] = frozenset()
    gated: frozenset[str] = frozenset()
    gates_metadata: bool = False
    private: frozenset[str] = frozenset()


class RefusalError(Exception):
    """The hub says no: status, its code for the client (may be ""), its message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Connection(BaseHTTPRequestHandler):
    """One client connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, repositories: Repositories, access: Access, *arguments: Any) -> None:
        self.repositories, self.access = repositories, access
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """The proxy in front has a log."""

    def _handle(self) -> None:
        path = unquote(urlsplit(self.path).path)
        for expression, serve in _ROUTES:
            if found := re.fullmatch(expression, path):
                try:
                    serve(self, **found.groupdict())
                except RefusalError as refused:
                    self._refuse(refused)
                return
        self._refuse(RefusalError(404, "", "Not found"))

    do_GET = do_HEAD = _handle  # noqa: N815

    def _refuse(self, refused: RefusalError) -> None:
        headers = {"X-Error-Message": refused.message, **({"X-Error-Code": refused.code} if refused.code else {})}
        self._answer(refused.status, json.dumps({"error": refused.message}).encode(), headers)

    def _answer(self, status: int, said: bytes, headers: dict[str, str]) -> None:
        head = {"Content-Type": "application/json; charset=utf-8", "Content-Length": str(len(said)), **headers}
        self._head(status, head)
        if self.command != "HEAD":
            self.wfile.write(said)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _json(self, value: Any) -> None:
        self._answer(HTTPStatus.OK, json.dumps(value).encode(), {})

    def _admit(self, repository: str, *, files: bool) -> None:
        """Refuse a repository that is not there or not for this client, in the hub's words."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        access = self.access
        if token and token not in access.tokens | access.strangers:
            raise RefusalError(401, "", "Invalid credentials in Authorization header")
        known = repository in self.repositories.names()
        if not known or (repository in access.private and token not in access.tokens):
            if not token:
                # The client tells this by its address being one of https; over http it needs the code.
                raise RefusalError(401, "RepoNotFound", "Invalid username or password.")
            raise RefusalError(404, "RepoNotFound", "Repository not found")
        if repository in access.gated and token not in access.tokens and (files or access.gates_metadata):
            said = f"Access to model {repository} is restricted"
            if not token:
                raise RefusalError(401, "GatedRepo", f"{said}. You must have access to it and be authenticated.")
            raise RefusalError(403, "GatedRepo", f"{said} and you are not in the authorized list.")

    def _revision(self, repository: str, said: str) -> Revision:
        found = self.repositories.revision(repository, said)
        if found is None:
            raise RefusalError(404, "RevisionNotFound", f"Invalid rev id: {said}")
        return found

    def _models(self) -> None:
        hidden = self.access.private
        self._json([{"id": name, "modelId": name} for name in self.repositories.names() if name not in hidden])

    def _model(self, id: str, revision: str | None = None) -> None:  # noqa: A002 - the hub's own name
        self._admit(id, files=False)
        found = self._revision(id, revision or MAIN)
        detailed = "blobs=" in urlsplit(self.path).query
        self._json({
            "id": id, "modelId": id, "sha": found.commit, "private": id in self.access.private,
            "gated": "manual" if id in self.access.gated else False, "disabled": False, "tags": [],
            "siblings": [_sibling(blob, detailed=detailed) for blob in found.files.values()],
        })  # fmt: skip

    def _tree(self, id: str, revision: str, below: str | None = None) -> None:  # noqa: A002
        self._admit(id, files=False)
        prefix = f"{below}/" if below else ""
        blobs = self._revision(id, revision).files.values()
        self._json([_entry(blob) for blob in blobs if blob.name.startswith(prefix)])

    def _refs(self, id: str) -> None:  # noqa: A002
        self._admit(id, files=False)
        branches = self.repositories.branches(id)
        self._json({"converts": [], "tags": [], "branches": [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit} for name, commit in branches.items()
        ]})  # fmt: skip

    def _may(self, id: str) -> None:  # noqa: A002
        self._admit(id, files=True)
        self._json({})

    def _resolve(self, id: str, revision: str, file: str) -> None:  # noqa: A002
        self._admit(id, files=True)
        found = self._revision(id, revision)
        blob = found.files.get(file)
        if blob is None:
            raise RefusalError(404, "EntryNotFound", "Entry not found")
        said = {"X-Repo-Commit": found.commit, "Accept-Ranges": "bytes"}
        if blob.sha256 is None:
            self._content(blob, {**said, "ETag": f'"{blob.oid}"'})
            return
        host = f"{LARGE_HOST}:{self.headers['Host'].rpartition(':')[2]}"
        location = f"http://{host}/{_LARGE}/{id}/{found.commit}/{quote(file)}?signature={blob.sha256}"
        linked = {"X-Linked-Size": str(blob.size), "X-Linked-Etag": f'"{blob.sha256}"', "Location": location}
        self._answer(HTTPStatus.FOUND, b"", {**said, **linked})

    def _large(self, id: str, revision: str, file: str) -> None:  # noqa: A002
        """Signed, so it asks for no token."""
        blob = self._revision(id, revision).files.get(file)
        if blob is None or urlsplit(self.path).query != f"signature={blob.sha256}":
            raise RefusalError(403, "", "the address is not signed")
        self._content(blob, {"ETag": f'"{blob.sha256}"', "Accept-Ranges": "bytes"})

    def _content(self, blob: Blob, headers: dict[str, str]) -> None:
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        start, end, status = 0, blob.size, HTTPStatus.OK
        if asked:
            start, end = int(asked[1]), min(int(asked[2] or blob.size) + 1, blob.size)
            if start >= blob.size:
                self._answer(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"",
                             {**headers, "Content-Range": f"bytes */{blob.size}"})  # fmt: skip
                return
            status = HTTPStatus.PARTIAL_CONTENT
            headers = {**headers, "Content-Range": f"bytes {start}-{end - 1}/{blob.size}"}
        self._head(status, {**headers, "Content-Length": str(end - start), "Content-Type": "application/octet-stream"})
        if self.command != "HEAD":
            self._send(blob, start, end)

    def _send(self, blob: Blob, start: int, end: int) -> None:
        with blob.path.open("rb") as file:
            file.seek(start)
            while start < end:
                piece = file.read(min(loopback.PIECE, end - start))
                if not piece:
                    self.close_connection = True  # it was cut behind our back: the client must see it
                    return
                start += len(piece)
                self.wfile.write(piece)


def _sibling(blob: Blob, *, detailed: bool) -> dict[str, Any]:
    if not detailed:
        return {"rfilename": blob.name}
    said = {"rfilename": blob.name, "size": blob.size, "blobId": blob.oid}
    if blob.sha256 is None:
        return said
    return {**said, "lfs": {"sha256": blob.sha256, "size": blob.size, "pointerSize": blob.pointer_size}}


def _entry(blob: Blob) -> dict[str, Any]:
    said = {"type": "file", "path": blob.name, "size": blob.size, "oid": blob.oid}
    if blob.sha256 is None:
        return said
    return {**said, "lfs": {"oid": blob.sha256, "size": blob.size, "pointerSize": blob.pointer_size}}


_ROUTES: tuple[tuple[str, Callable[..., None]], ...] = (
    (r"/api/models", Connection._models),  # noqa: SLF001 - its own
    (rf"/api/models/{_ID}", Connection._model),  # noqa: SLF001
    (rf"/api/models/{_ID}/revision/(?P<revision>.+)", Connection._model),  # noqa: SLF001
    (rf"/api/models/{_ID}/tree/(?P<revision>[^/]+)(?:/(?P<below>.+))?", Connection._tree),  # noqa: SLF001
    (rf"/api/models/{_ID}/refs", Connection._refs),  # noqa: SLF001
    (rf"/api/models/{_ID}/auth-check", Connection._may),  # noqa: SLF001
    (rf"/{_ID}/resolve/(?P<revision>[^/]+)/(?P<file>.+)", Connection._resolve),  # noqa: SLF001
    (rf"/{_LARGE}/{_ID}/(?P<revision>[^/]+)/(?P<file>.+)", Connection._large),  # noqa: SLF001
)
