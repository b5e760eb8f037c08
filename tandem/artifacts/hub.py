"""A snapshot on a Hugging Face hub: resolved once to a commit, received file by file, held against the hub's checksums.

Invariant: a file that `receive` returns has the size and the checksum that the hub lists for that very commit; no
host is spoken to but the hub's own and those it redirects to, and a redirect to another host never carries the token.

Of huggingface_hub 1.33 (read in its source) the listing, the session, the headers and the errors are used. Its
`hf_hub_download` is not: it writes each download to a new temporary name and deletes it on failure, so a second
process never resumes one, and its Xet client speaks to further hosts. It asks for a listing once, gives a download
up on a 5xx, and sleeps as long as a Retry-After says; the one loop of tries (`hub_tries`) bounds all of that.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.hub_retry import HubAccessError, HubQuery, HubRetry
from tandem.artifacts.local_disk import read_file_size, require_disk_space, translate_disk_errors
from tandem.artifacts.manifest import validate_path
from tandem.artifacts.secret import SECRET_NAME_VARIABLE, HubToken, read_token, secret_name
from tandem.artifacts.snapshot import SnapshotEntry
from tandem.errors import ExternalError, InputError

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

PUBLIC_HUB = "https://huggingface.co"
MAX_FETCHES = 3  # of one file whose content is not what the hub lists
TIMEOUT_S = 30.0  # for a connection, and for the next bytes of an answer
READ_BYTES = 1024**2  # bytes hashed at once
PARTIAL_CONTENT = 206
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
# read by the library when it is imported: no telemetry, and no token but the one it is given
_SETTINGS = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSnapshot:
    """One commit of one model.

    Args:
        query: model, commit, hub and token.
        entries: every file by its name.
        folder: local disk for what is received of this commit.
    """

    query: HubQuery
    entries: Mapping[str, SnapshotEntry]
    folder: Path

    @property
    def commit(self) -> str:
        """Return the commit, 40 hexadecimal digits."""
        return self.query.revision

    @property
    def where(self) -> str:
        """Return the snapshot's address, for messages."""
        return self.query.where

    @property
    def provenance(self) -> dict[str, Any]:
        """Return what the manifest says of where the files came from."""
        return {"from": "hub", "hub": self.query.hub, "checked": "size and checksum of the hub"}

    def prepare(self) -> None:
        """Make the folder, and remove what an earlier run left there of another commit.

        Raises:
            ExternalError: the disk refuses it.
        """
        with translate_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for sibling in self.folder.parent.iterdir():
                if sibling.name != self.folder.name:
                    shutil.rmtree(sibling)

    def check_entries(self, entries: Sequence[SnapshotEntry]) -> None:
        """Refuse to begin what the disk cannot end: one file at a time lies on it, so the largest must fit.

        Raises:
            ExternalError: it does not.
        """
        largest = max(entries, key=lambda entry: entry.size, default=None)
        if largest is not None:
            present_bytes = read_file_size(self.folder / largest.path) or 0
            require_disk_space(
                self.folder, largest.size - present_bytes, f"{largest.path}, the largest file of {self.where},"
            )

    def receive(self, entry: SnapshotEntry, on_progress: Callable[[int], None]) -> tuple[Path, str]:
        """Bring one file to local disk, going on where an earlier run stopped.

        Args:
            entry: one of `entries`.
            on_progress: called with the bytes of each piece, negative for bytes thrown away; may raise to stop.

        Returns:
            the file, and the SHA-256 of its content.

        Raises:
            InputError: the model is gated and this token, or none, does not open it.
            ExternalError: the hub cannot be reached, its bytes are never what it lists, or the disk is full.
        """
        path = self.folder / entry.path
        for _ in range(MAX_FETCHES):
            present_bytes = read_file_size(path) or 0
            if present_bytes > entry.size:
                path.unlink()
                present_bytes = 0
            require_disk_space(self.folder, entry.size - present_bytes, entry.path)
            self._complete(entry, path, on_progress)
            sha256, is_whole = _verify_checksum(entry, path)
            if is_whole:
                return path, sha256
            log_event("content is not what the hub lists, thrown away", level="warning", file=entry.path)
            on_progress(-(read_file_size(path) or 0))
            path.unlink()
        raise ExternalError(
            f"{MAX_FETCHES} times the bytes of {entry.path} were not those of the checksum that the hub lists",
            where=self.where, change="look for a proxy that changes downloads, or stage a checked copy by --from",
        )  # fmt: skip

    def drop(self, entry: SnapshotEntry) -> None:
        """Delete the local file, which is stored now."""
        (self.folder / entry.path).unlink(missing_ok=True)

    def _complete(self, entry: SnapshotEntry, path: Path, on_progress: Callable[[int], None]) -> None:
        """Ask for what is missing until nothing is."""
        retry = HubRetry(self.query, entry.path)
        while not path.exists() or (read_file_size(path) or 0) < entry.size:
            bytes_before = read_file_size(path) or 0
            with retry.attempt():
                self._stream(entry, path, on_progress)
                if (read_file_size(path) or 0) < entry.size:
                    raise EOFError(f"the answer ended after {(read_file_size(path) or 0)} of {entry.size} bytes")
            if (read_file_size(path) or 0) > bytes_before:
                retry.reset()

    def _stream(self, entry: SnapshotEntry, path: Path, on_progress: Callable[[int], None]) -> None:
        # not at the top: only when there is something to fetch
        from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status  # noqa: PLC0415

        present_bytes, token = (read_file_size(path) or 0), self.query.token
        headers = {"User-Agent": "tandem", "Accept-Encoding": "identity"}  # offsets are those of the file itself
        if token:
            headers["Authorization"] = f"Bearer {token.value}"
        if present_bytes:
            headers["Range"] = f"bytes={present_bytes}-"
        url = hf_hub_url(self.query.model, entry.path, revision=self.commit, endpoint=self.query.hub)
        with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S) as answer:
            hf_raise_for_status(answer)
            is_partial = answer.status_code == PARTIAL_CONTENT
            if present_bytes and not is_partial:
                on_progress(-present_bytes)
                present_bytes = 0
            with translate_disk_errors(path):
                file = path.open("ab" if is_partial else "wb", buffering=0)
            with file:
                for piece in answer.iter_bytes():  # as they come: a larger piece would be lost when the answer is cut
                    with translate_disk_errors(path):
                        _write_all(file.write, piece)
                    present_bytes += len(piece)
                    on_progress(len(piece))
                    if present_bytes > entry.size:  # an endless answer must not fill the disk
                        return


def resolve_snapshot(model: str, revision: str, work: Path) -> HubSnapshot:
    """Ask the hub which commit a revision is, and for the files of that commit.

    Args:
        model: organisation/name.
        revision: a commit, or a name that moves.
        work: local disk for what is received of this revision; no other run uses it at the same time.

    Raises:
        InputError: there is no such model or revision, it is gated and no token opens it, or the hub's address
            cannot be used.
        ExternalError: the hub cannot be reached, or answers with another commit than the one that was asked for.
    """
    _prepare_library()
    anonymous_query = HubQuery(model=model, revision=revision, hub=read_hub_address(), token=None)
    query, info = _list_model_files(anonymous_query)
    commit = str(info.sha or "")
    if not _COMMIT.fullmatch(commit) or (_COMMIT.fullmatch(revision) and commit != revision):
        raise ExternalError(
            f"the hub answers with the commit {commit or 'none'}", where=query.where,
            change="check that HF_ENDPOINT is a hub that serves pinned commits",
        )  # fmt: skip
    if commit != revision:
        log_event("revision resolved", model=model, revision=revision, commit=commit)
    commit_query = HubQuery(model=model, revision=commit, hub=query.hub, token=query.token)
    return HubSnapshot(query=commit_query, entries=_parse_entries(info, query.where), folder=work / commit)


def read_hub_address() -> str:
    """Return the hub's address: HF_ENDPOINT, or the public hub.

    Raises:
        InputError: it is no http(s) address, or has a user or password in it.
    """
    address = (os.environ.get("HF_ENDPOINT") or PUBLIC_HUB).rstrip("/")
    parts = urlsplit(address)
    if parts.username or parts.password:
        raise InputError(
            "HF_ENDPOINT has a user or password in it",
            change=f"give the address alone; a token comes by {SECRET_NAME_VARIABLE}",
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(
            "HF_ENDPOINT is no http or https address", where=address, change="give the hub's, as https://hub.internal"
        )
    return address


def _list_model_files(query: HubQuery) -> tuple[HubQuery, ModelInfo]:
    """Return the listing, with a token where the model is not open: an open one never sees the token.

    A gated one is tried without a token where no secret is named: a mirror may hold it for everybody.
    """
    name = secret_name()
    try:
        info = _request_model_info(query)
    except HubAccessError:
        if name is None:
            raise
    else:
        if not info.gated or name is None:
            return query, info
    token_query = HubQuery(
        model=query.model, revision=query.revision, hub=query.hub, token=_read_hub_token(name, query.hub)
    )
    return token_query, _request_model_info(token_query)


def _read_hub_token(name: str, hub: str) -> HubToken:
    parts = urlsplit(hub)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise InputError(
            "the model needs a token, and a token is not sent over plain http", where=hub,
            change="reach the hub by https",
        )  # fmt: skip
    return read_token(name)


def _request_model_info(query: HubQuery) -> ModelInfo:
    from huggingface_hub import HfApi  # noqa: PLC0415 - only when there is something to fetch
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    api = HfApi(endpoint=query.hub, token=query.token.value if query.token else False, library_name="tandem")
    retry = HubRetry(query, "its list of files")
    while True:
        try:
            with retry.attempt():
                return api.model_info(query.model, revision=query.revision, files_metadata=True, timeout=TIMEOUT_S)
        except HFValidationError as error:
            raise InputError(f"it is no name of a model ({error})", where=query.model, change="correct it") from None
        except (KeyError, TypeError, ValueError) as error:  # no JSON, or not of this form
            raise query.foreign_answer_fault(error) from None


def _parse_entries(info: ModelInfo, where: str) -> dict[str, SnapshotEntry]:
    change = "check that HF_ENDPOINT is a hub that lists files with sizes and checksums"
    entries: dict[str, SnapshotEntry] = {}
    for sibling in info.siblings or ():
        try:
            path = validate_path(str(sibling.rfilename))
        except ValueError as error:
            raise InputError(str(error), where=where, change="do not use this model: no honest one is so") from None
        if not path.isprintable():
            raise InputError(f"the hub lists a file {path!a}, a name that cannot be carried", where=where,
                               change="take another revision")  # fmt: skip
        sha256 = sibling.lfs.sha256 if sibling.lfs else None
        size = sibling.lfs.size if sibling.lfs else sibling.size
        git_sha1 = None if sibling.lfs else sibling.blob_id
        if not isinstance(size, int) or not (_is_digest(sha256, 64) or _is_digest(git_sha1, 40)):
            raise ExternalError(f"the hub lists {path} without size or checksum", where=where, change=change)
        entries[path] = SnapshotEntry(path=path, size=size, sha256=sha256, git_sha1=git_sha1)
    return entries


def _is_digest(value: object, digits: int) -> bool:
    return isinstance(value, str) and re.fullmatch(rf"[0-9a-f]{{{digits}}}", value) is not None


def _verify_checksum(entry: SnapshotEntry, path: Path) -> tuple[str, bool]:
    """Return the SHA-256, and whether size and checksum are those of the listing; one pass over the file."""
    size = read_file_size(path) or 0
    sha256 = hashlib.sha256()
    git_hash = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            sha256.update(piece)
            if entry.git_sha1:
                git_hash.update(piece)
    digest = sha256.hexdigest() if entry.sha256 else git_hash.hexdigest()
    return sha256.hexdigest(), size == entry.size and digest == (entry.sha256 or entry.git_sha1)


def _write_all(write: Callable[[memoryview], int | None], piece: bytes) -> None:
    """Write all of a piece: a file without a buffer may take less at once."""
    remaining = memoryview(piece)
    while remaining:
        remaining = remaining[write(remaining) or 0 :]


class _HubLogHandler(logging.Handler):
    """The library's own warnings as log lines; addresses lose their signatures."""

    def emit(self, record: logging.LogRecord) -> None:
        text = re.sub(r"\?[^\s'\"]*", "", record.getMessage())
        log_event("the hub's client warns", level="warning", message=text)


def _prepare_library() -> None:
    """Import the library with the settings it reads at import, and take its log lines over."""
    os.environ.update(_SETTINGS)
    import huggingface_hub.utils  # noqa: PLC0415

    logger = logging.getLogger(huggingface_hub.__name__)
    logger.handlers = [_HubLogHandler(level=logging.WARNING)]
    logger.propagate = False
