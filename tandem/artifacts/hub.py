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

from tandem.artifacts.fault import RefusedError, WorldError
from tandem.artifacts.hub_tries import Asked, ClosedError, Tries
from tandem.artifacts.log import say
from tandem.artifacts.manifest import inside
from tandem.artifacts.room import require_room, writing
from tandem.artifacts.secret import NAMED_BY, Token, read_token, secret_name
from tandem.artifacts.snapshot import Entry

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

PUBLIC = "https://huggingface.co"
FETCHES = 3  # of one file whose content is not what the hub lists
TIMEOUT_S = 30.0  # for a connection, and for the next bytes of an answer
PIECE = 1024**2  # bytes hashed at once
PARTIAL_CONTENT = 206
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
# read by the library when it is imported: no telemetry, and no token but the one it is given
_SETTINGS = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSnapshot:
    """One commit of one model.

    Args:
        asked: model, commit, hub and token.
        entries: every file by its name.
        folder: local disk for what is received of this commit.
    """

    asked: Asked
    entries: Mapping[str, Entry]
    folder: Path

    @property
    def commit(self) -> str:
        """Return the commit, 40 hexadecimal digits."""
        return self.asked.revision

    @property
    def where(self) -> str:
        """Return the snapshot's address, for messages."""
        return self.asked.where

    @property
    def made(self) -> dict[str, Any]:
        """Return what the manifest says of where the files came from."""
        return {"from": "hub", "hub": self.asked.hub, "checked": "size and checksum of the hub"}

    def prepare(self) -> None:
        """Make the folder, and remove what an earlier run left there of another commit.

        Raises:
            WorldError: the disk refuses it.
        """
        with writing(self.folder, 0):
            self.folder.mkdir(parents=True, exist_ok=True)
            for other in self.folder.parent.iterdir():
                if other.name != self.folder.name:
                    shutil.rmtree(other)

    def expect(self, entries: Sequence[Entry]) -> None:
        """Refuse to begin what the disk cannot end: one file at a time lies on it, so the largest must fit.

        Raises:
            WorldError: it does not.
        """
        largest = max(entries, key=lambda entry: entry.size, default=None)
        if largest is not None:
            have = _size(self.folder / largest.path)
            require_room(self.folder, largest.size - have, f"{largest.path}, the largest file of {self.where},")

    def receive(self, entry: Entry, moved: Callable[[int], None]) -> tuple[Path, str]:
        """Bring one file to local disk, going on where an earlier run stopped.

        Args:
            entry: one of `entries`.
            moved: called with the bytes of each piece, negative for bytes thrown away; may raise to stop.

        Returns:
            the file, and the SHA-256 of its content.

        Raises:
            RefusedError: the model is gated and this token, or none, does not open it.
            WorldError: the hub cannot be reached, its bytes are never what it lists, or the disk is full.
        """
        path = self.folder / entry.path
        for _ in range(FETCHES):
            have = _size(path)
            if have > entry.size:
                path.unlink()
                have = 0
            require_room(self.folder, entry.size - have, entry.path)
            self._complete(entry, path, moved)
            sha256, whole = _held_against(entry, path)
            if whole:
                return path, sha256
            say("content is not what the hub lists, thrown away", level="warning", file=entry.path)
            moved(-_size(path))
            path.unlink()
        raise WorldError(
            f"{FETCHES} times the bytes of {entry.path} were not those of the checksum that the hub lists",
            where=self.where, change="look for a proxy that changes downloads, or stage a checked copy by --from",
        )  # fmt: skip

    def drop(self, entry: Entry) -> None:
        """Delete the local file, which is stored now."""
        (self.folder / entry.path).unlink(missing_ok=True)

    def _complete(self, entry: Entry, path: Path, moved: Callable[[int], None]) -> None:
        """Ask for what is missing until nothing is."""
        tries = Tries(self.asked, entry.path)
        while not path.exists() or _size(path) < entry.size:
            before = _size(path)
            with tries.one():
                self._stream(entry, path, moved)
                if _size(path) < entry.size:
                    raise EOFError(f"the answer ended after {_size(path)} of {entry.size} bytes")
            if _size(path) > before:
                tries.again()

    def _stream(self, entry: Entry, path: Path, moved: Callable[[int], None]) -> None:
        # not at the top: only when there is something to fetch
        from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status  # noqa: PLC0415

        have, token = _size(path), self.asked.token
        headers = {"User-Agent": "tandem", "Accept-Encoding": "identity"}  # offsets are those of the file itself
        if token:
            headers["Authorization"] = f"Bearer {token.value}"
        if have:
            headers["Range"] = f"bytes={have}-"
        url = hf_hub_url(self.asked.model, entry.path, revision=self.commit, endpoint=self.asked.hub)
        with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S) as answer:
            hf_raise_for_status(answer)
            resumed = answer.status_code == PARTIAL_CONTENT
            if have and not resumed:
                moved(-have)
                have = 0
            with writing(path, entry.size):
                file = path.open("ab" if resumed else "wb", buffering=0)
            with file:
                for piece in answer.iter_bytes():  # as they come: a larger piece would be lost when the answer is cut
                    with writing(path, entry.size):
                        _write(file.write, piece)
                    have += len(piece)
                    moved(len(piece))
                    if have > entry.size:  # an endless answer must not fill the disk
                        return


def resolve(model: str, revision: str, work: Path) -> HubSnapshot:
    """Ask the hub which commit a revision is, and for the files of that commit.

    Args:
        model: organisation/name.
        revision: a commit, or a name that moves.
        work: local disk for what is received of this revision; no other run uses it at the same time.

    Raises:
        RefusedError: there is no such model or revision, it is gated and no token opens it, or the hub's address
            cannot be used.
        WorldError: the hub cannot be reached, or answers with another commit than the one that was asked for.
    """
    _prepare_library()
    open_to_all = Asked(model=model, revision=revision, hub=endpoint(), token=None)
    asked, info = _listed(open_to_all)
    commit = str(info.sha or "")
    if not _COMMIT.fullmatch(commit) or (_COMMIT.fullmatch(revision) and commit != revision):
        raise WorldError(
            f"the hub answers with the commit {commit or 'none'}", where=asked.where,
            change="check that HF_ENDPOINT is a hub that serves pinned commits",
        )  # fmt: skip
    if commit != revision:
        say("revision resolved", model=model, revision=revision, commit=commit)
    pinned = Asked(model=model, revision=commit, hub=asked.hub, token=asked.token)
    return HubSnapshot(asked=pinned, entries=_entries(info, asked.where), folder=work / commit)


def endpoint() -> str:
    """Return the hub's address: HF_ENDPOINT, or the public hub.

    Raises:
        RefusedError: it is no http(s) address, or has a user or password in it.
    """
    said = (os.environ.get("HF_ENDPOINT") or PUBLIC).rstrip("/")
    parts = urlsplit(said)
    if parts.username or parts.password:
        raise RefusedError(
            "HF_ENDPOINT has a user or password in it", change=f"give the address alone; a token comes by {NAMED_BY}"
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise RefusedError(
            "HF_ENDPOINT is no http or https address", where=said, change="give the hub's, as https://hub.internal"
        )
    return said


def _listed(asked: Asked) -> tuple[Asked, ModelInfo]:
    """Return the listing, with a token where the model is not open: an open one never sees the token.

    A gated one is tried without a token where no secret is named: a mirror may hold it for everybody.
    """
    name = secret_name()
    try:
        info = _ask(asked)
    except ClosedError:
        if name is None:
            raise
    else:
        if not info.gated or name is None:
            return asked, info
    with_token = Asked(model=asked.model, revision=asked.revision, hub=asked.hub, token=_token(name, asked.hub))
    return with_token, _ask(with_token)


def _token(name: str, hub: str) -> Token:
    parts = urlsplit(hub)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise RefusedError(
            "the model needs a token, and a token is not sent over plain http", where=hub,
            change="reach the hub by https",
        )  # fmt: skip
    return read_token(name)


def _ask(asked: Asked) -> ModelInfo:
    from huggingface_hub import HfApi  # noqa: PLC0415 - only when there is something to fetch
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    api = HfApi(endpoint=asked.hub, token=asked.token.value if asked.token else False, library_name="tandem")
    tries = Tries(asked, "its list of files")
    while True:
        try:
            with tries.one():
                return api.model_info(asked.model, revision=asked.revision, files_metadata=True, timeout=TIMEOUT_S)
        except HFValidationError as error:
            raise RefusedError(f"it is no name of a model ({error})", where=asked.model, change="correct it") from None
        except (KeyError, TypeError, ValueError) as error:  # no JSON, or not of this form
            raise asked.no_hub(error) from None


def _entries(info: ModelInfo, where: str) -> dict[str, Entry]:
    change = "check that HF_ENDPOINT is a hub that lists files with sizes and checksums"
    entries: dict[str, Entry] = {}
    for sibling in info.siblings or ():
        try:
            path = inside(str(sibling.rfilename))
        except ValueError as error:
            raise RefusedError(str(error), where=where, change="do not use this model: no honest one is so") from None
        if not path.isprintable():
            raise RefusedError(f"the hub lists a file {path!a}, a name that cannot be carried", where=where,
                               change="take another revision")  # fmt: skip
        sha256 = sibling.lfs.sha256 if sibling.lfs else None
        size = sibling.lfs.size if sibling.lfs else sibling.size
        git_sha1 = None if sibling.lfs else sibling.blob_id
        if not isinstance(size, int) or not (_is_digest(sha256, 64) or _is_digest(git_sha1, 40)):
            raise WorldError(f"the hub lists {path} without size or checksum", where=where, change=change)
        entries[path] = Entry(path=path, size=size, sha256=sha256, git_sha1=git_sha1)
    return entries


def _is_digest(said: object, digits: int) -> bool:
    return isinstance(said, str) and re.fullmatch(rf"[0-9a-f]{{{digits}}}", said) is not None


def _held_against(entry: Entry, path: Path) -> tuple[str, bool]:
    """Return the SHA-256, and whether size and checksum are those of the listing; one pass over the file."""
    size = _size(path)
    sha256 = hashlib.sha256()
    blob = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            sha256.update(piece)
            if entry.git_sha1:
                blob.update(piece)
    found = sha256.hexdigest() if entry.sha256 else blob.hexdigest()
    return sha256.hexdigest(), size == entry.size and found == (entry.sha256 or entry.git_sha1)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _write(write: Callable[[memoryview], int | None], piece: bytes) -> None:
    """Write all of a piece: a file without a buffer may take less at once."""
    rest = memoryview(piece)
    while rest:
        rest = rest[write(rest) or 0 :]


class _Lines(logging.Handler):
    """The library's own warnings as log lines; addresses lose their signatures."""

    def emit(self, record: logging.LogRecord) -> None:
        text = re.sub(r"\?[^\s'\"]*", "", record.getMessage())
        say("the hub's client warns", level="warning", message=text)


def _prepare_library() -> None:
    """Import the library with the settings it reads at import, and take its log lines over."""
    os.environ.update(_SETTINGS)
    import huggingface_hub.utils  # noqa: PLC0415

    logger = logging.getLogger(huggingface_hub.__name__)
    logger.handlers = [_Lines(level=logging.WARNING)]
    logger.propagate = False
