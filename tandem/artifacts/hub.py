"""A snapshot on a Hugging Face hub: resolved once to a commit, received and checked by file.

Invariants: a file that `receive` returns has the size and the checksum that the hub lists for that
commit; requests go only to the hub's host and to hosts of its redirects, and a redirect to another
host never carries the token. The token is read from Secrets Manager and stays in memory: no
manifest, argument, environment variable, file, log line or message has it. A transient error (no
connection, 408, 429, 500, 502, 503, 504) is retried a bounded number of times with growing waits;
any other error is a fault at once. No message quotes a whole address of the hub's answer: those of
large files are signed.

This module uses the listing, the session, the headers and the errors of huggingface_hub 1.33 (read
in its source). It does not use `hf_hub_download`: that writes each download to a new temporary name
and deletes it on failure, so a second process never resumes a download, and its Xet client contacts
further hosts. The library requests a listing once, gives up a download on a 5xx, and sleeps for any
Retry-After; our one retry loop bounds all of that.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from tandem.artifacts.driver.folders import read_file_size
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.files import (
    compute_sha256,
    describe_bad_name,
    require_disk_space,
    translate_disk_errors,
)
from tandem.artifacts.hub_secret import SECRET_NAME_VARIABLE, read_token
from tandem.artifacts.retry import retry_call
from tandem.artifacts.snapshot import SnapshotEntry
from tandem.errors import ExternalError, InputError, TandemError

# the library reads these at import: no telemetry, and no token except ours
os.environ.update({"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"})
import httpx
import huggingface_hub as library
from huggingface_hub import errors as hub_errors
from huggingface_hub import utils as hub_utils

Result = TypeVar("Result")

PUBLIC_HUB = "https://huggingface.co"
MAX_FETCHES = 3  # of one file with a wrong checksum
TIMEOUT_S = 30.0  # for a connection, and for the next bytes of an answer
# of HTTP
PARTIAL_CONTENT = 206
UNAUTHORIZED = 401
FORBIDDEN = 403
NOT_FOUND = 404
MAX_TRIES = 5  # in a row without a new byte
FIRST_WAIT_S = 1.0  # doubled after each try
MAX_WAIT_S = 600.0  # of a Retry-After: a hub that wants more is down for the length of a Job
_TRANSIENT_STATUSES = {408, 429, 500, 502, 503, 504}
_QUOTE_CHARACTERS = 200  # characters of the hub's own message that are quoted
_RETRY_ADVICE = (
    "run the job again, what is stored stays;"
    " if it stays down, name another hub or stage a copy by --from"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class HubAccessError(InputError):
    """The hub hides the model without a valid token."""


@dataclass(frozen=True, kw_only=True)
class HubSnapshot:
    """One revision of a model of a hub, with the token; same methods as `FolderSnapshot`.

    Args:
        model: organisation/name.
        commit: 40 hexadecimal digits; a branch or tag until the hub has resolved it.
        hub: address of the hub, without a slash at the end.
        token: never shown; empty for requests without a token.
        secret: name of the token's secret, for messages.
        entries: every file by its name.
        folder: local disk for the files of this commit.
    """

    model: str
    commit: str
    hub: str
    folder: Path
    token: str = field(default="", repr=False)
    secret: str = ""
    entries: Mapping[str, SnapshotEntry] = field(default_factory=dict)
    is_temporary: ClassVar[bool] = True  # a received file is deleted once it is stored

    @property
    def page(self) -> str:
        """Return the model's page, on which a person accepts its licence."""
        return f"{self.hub}/{self.model}"

    @property
    def where(self) -> str:
        """Return the snapshot's address, for messages."""
        return f"{self.page}@{self.commit}"

    @property
    def provenance(self) -> dict[str, Any]:
        """Return the manifest's record of the source of the files."""
        return {"from": "hub", "hub": self.hub, "checked": "size and checksum of the hub"}

    def foreign_answer_fault(self, error: Exception) -> TandemError:
        """Return the fault for an answer that is not from a hub."""
        return ExternalError(
            f"the answer is not from a hub ({type(error).__name__})",
            where=self.where,
            change="check HF_ENDPOINT, and whether a proxy or a login page stands before it",
        )

    def response_fault(self, error: hub_errors.HfHubHTTPError) -> TandemError:
        """Return the fault for an error answer of the hub."""
        status = error.response.status_code
        code = error.response.headers.get("X-Error-Code", "")
        message = error.response.headers.get("X-Error-Message", "")
        quote = ""
        if message:
            quote = f' (the hub: "{message[:_QUOTE_CHARACTERS]}")'
        if code == "GatedRepo":
            return self._describe_gate(quote)
        if code == "RevisionNotFound":
            return InputError(
                f"the model has no revision {self.commit}",
                where=self.page,
                change=f"take a commit from {self.page}/commits/main",
            )
        if code == "RepoNotFound" or status in {UNAUTHORIZED, FORBIDDEN, NOT_FOUND}:
            return self._describe_absence(quote)
        return ExternalError(
            f"the hub answers {status}{quote}", where=self.where, change=_RETRY_ADVICE
        )

    def _describe_gate(self, quote: str) -> HubAccessError:
        reason = "no token was sent"
        if self.token:
            reason = f"the token in the secret {self.secret} does not open it{quote}"
        change = (
            f"accept the licence at {self.page} with the token's own account, wait for its"
            " approval, store a token that may read gated models in the environment's secret"
            f" ({SECRET_NAME_VARIABLE})"
        )
        problem = f"the model is gated and {reason}"
        return HubAccessError(problem, where=self.where, change=change)

    def _describe_absence(self, quote: str) -> HubAccessError:
        reason = "it is private"
        if self.token:
            reason = f"does not accept the token in the secret {self.secret} for it"
        change = (
            f"check the name, and the token in the environment's secret ({SECRET_NAME_VARIABLE})"
        )
        problem = f"the hub has no model {self.model}, or {reason}{quote}"
        return HubAccessError(problem, where=self.page, change=change)

    def retry(
        self, subject: str, action: Callable[[], Result], count_bytes: Callable[[], int] = lambda: 0
    ) -> Result:
        """Repeat a request until the hub answers.

        Args:
            subject: the file, or the listing, for messages.
            action: one try.
            count_bytes: returns the bytes received so far; each new byte resets the count of tries.

        Raises:
            TandemError: the hub refuses, or the last try failed.
        """
        bytes_before = count_bytes()
        tries = 0

        def plan_wait(error: Exception, _number: int) -> float:
            nonlocal bytes_before, tries
            reason, hub_wait_s = self._read_failure(error)
            tries = 1 if count_bytes() > bytes_before else tries + 1
            bytes_before = count_bytes()
            wait_s: float = FIRST_WAIT_S * 2 ** (tries - 1)
            if hub_wait_s is not None:
                wait_s = hub_wait_s
            if tries == MAX_TRIES or wait_s > MAX_WAIT_S:
                wait_note = ""
                if wait_s > MAX_WAIT_S:
                    wait_note = f" and asks to wait {wait_s:.0f} seconds"
                problem = f"{reason}{wait_note}, asked {tries} times for {subject}"
                raise ExternalError(problem, where=self.where, change=_RETRY_ADVICE) from None
            log_event(
                "trying again",
                level="warning",
                why=reason,
                what=subject,
                wait_s=wait_s,
                tries_left=MAX_TRIES - tries,
            )
            return wait_s

        failures = (httpx.HTTPError, httpx.InvalidURL, hub_errors.OfflineModeIsEnabled, EOFError)
        return retry_call(action, failures, plan_wait)

    def _read_failure(self, error: Exception) -> tuple[str, float | None]:
        """Return a transient error and the hub's wait in seconds; raise any other error."""
        if isinstance(error, hub_errors.HfHubHTTPError):
            if error.response.status_code not in _TRANSIENT_STATUSES:
                raise self.response_fault(error) from None
            return f"the hub answers {error.response.status_code}", _read_wait_s(
                error.response.headers
            )
        if isinstance(error, hub_errors.OfflineModeIsEnabled):
            raise InputError(
                "HF_HUB_OFFLINE is set", change="unset it, or stage a folder by --from"
            ) from None
        if not isinstance(error, (httpx.TransportError, EOFError)):
            raise self.foreign_answer_fault(error) from None
        return f"the hub does not answer ({type(error).__name__}: {error})", None

    def check_entries(self, entries: Sequence[SnapshotEntry]) -> None:
        """Refuse files that the disk cannot hold; it has one at a time, so the largest must fit.

        Raises:
            ExternalError: the largest file does not fit.
        """
        if entries:
            largest = max(entries, key=lambda entry: entry.size)
            missing_bytes = largest.size - read_file_size(self.folder / largest.path)
            require_disk_space(
                self.folder, missing_bytes, f"{largest.path}, the largest file of {self.where},"
            )

    def receive(
        self, entry: SnapshotEntry, check: Callable[[], None] = lambda: None
    ) -> tuple[Path, str]:
        """Download one file to local disk; continue the file of an earlier run.

        Args:
            entry: one of `entries`.
            check: called after each piece; may raise to stop.

        Returns:
            the file, and the SHA-256 of its content.

        Raises:
            InputError: the model is gated and this token, or no token, gives no access.
            ExternalError: the hub cannot be reached, its bytes never match its checksum, or the
                disk is full.
        """
        path = self.folder / entry.path
        for _ in range(MAX_FETCHES):
            if read_file_size(path) > entry.size:
                path.unlink()
            with translate_disk_errors(path):
                self.folder.mkdir(parents=True, exist_ok=True)
                path.touch()  # an empty file needs no request
            require_disk_space(self.folder, entry.size - read_file_size(path), entry.path)
            if read_file_size(path) < entry.size:
                fetch = partial(self._stream, entry, path, check)
                self.retry(entry.path, fetch, lambda: read_file_size(path))
            sha256 = compute_sha256(path)
            if sha256 == entry.sha256 or (
                entry.git_sha1 and _compute_git_sha1(path) == entry.git_sha1
            ):
                return path, sha256
            log_event(
                "content is not what the hub lists, thrown away", level="warning", file=entry.path
            )
            path.unlink()
        problem = (
            f"{MAX_FETCHES} times the bytes of {entry.path}"
            " were not those of the checksum that the hub lists"
        )
        raise ExternalError(
            problem,
            where=self.where,
            change="look for a proxy that changes downloads, or use --from",
        )

    def _stream(self, entry: SnapshotEntry, path: Path, check: Callable[[], None]) -> None:
        """Request the missing bytes once; raise EOFError if the answer ended early."""
        present = read_file_size(path)
        # offsets are of the file itself
        headers = {"User-Agent": "tandem", "Accept-Encoding": "identity"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if present:
            headers["Range"] = f"bytes={present}-"
        url = library.hf_hub_url(self.model, entry.path, revision=self.commit, endpoint=self.hub)
        with library.get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S) as answer:
            library.hf_raise_for_status(answer)
            is_partial = answer.status_code == PARTIAL_CONTENT
            present = present if is_partial else 0
            with translate_disk_errors(path):
                file = path.open("ab" if is_partial else "wb", buffering=0)
            with file:
                # as they arrive: a larger piece would be lost if the answer is cut
                for piece in answer.iter_bytes():
                    rest = memoryview(piece)
                    with translate_disk_errors(path):
                        while rest:  # an unbuffered file may write less at once
                            rest = rest[file.write(rest) or 0 :]
                    present += len(piece)
                    check()
                    if present > entry.size:  # an endless answer must not fill the disk
                        return
        if present < entry.size:
            raise EOFError(f"the answer ended after {present} of {entry.size} bytes")


def _read_wait_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait in seconds that an answer wants, by its rate limit or its Retry-After."""
    limit = hub_utils.parse_ratelimit_headers(headers)  # type: ignore[attr-defined]  # public, in a list mypy does not read
    if limit is not None and limit.remaining == 0:
        return float(limit.reset_in_seconds) + 1.0
    retry_after = headers.get("Retry-After", "").strip()
    return float(retry_after) if retry_after.isdigit() else None


def resolve_snapshot(model: str, revision: str, work: Path) -> HubSnapshot:
    """Return the commit of a revision and the files of that commit, both from the hub.

    Args:
        model: organisation/name.
        revision: a commit, or a branch or tag.
        work: local disk for the files of this revision; no other run uses it at the same time.

    Raises:
        InputError: there is no such model or revision, the model is gated and no token gives
            access, or the hub's address cannot be used.
        ExternalError: the hub cannot be reached, or answers with another commit than the requested
            one.
    """
    # its warnings quote addresses, some are signed
    logging.getLogger(library.__name__).setLevel(logging.ERROR)
    snapshot, info = _list_model_files(
        HubSnapshot(model=model, commit=revision, hub=read_hub_address(), folder=work)
    )
    commit = str(info.sha or "")
    if not _COMMIT.fullmatch(commit) or (_COMMIT.fullmatch(revision) and commit != revision):
        raise ExternalError(
            f"the hub answers with the commit {commit or 'none'}",
            where=snapshot.where,
            change="check that HF_ENDPOINT is a hub that serves pinned commits",
        )
    return replace(
        snapshot, commit=commit, entries=_parse_entries(info, snapshot.where), folder=work / commit
    )


def read_hub_address() -> str:
    """Return the hub's address: HF_ENDPOINT, or the public hub.

    Raises:
        InputError: HF_ENDPOINT is no http(s) address, or has a user or password in it.
    """
    address = (os.environ.get("HF_ENDPOINT") or PUBLIC_HUB).rstrip("/")
    parts = urlsplit(address)
    if (
        parts.username
        or parts.password
        or parts.scheme not in {"http", "https"}
        or not parts.hostname
    ):
        raise InputError(
            "HF_ENDPOINT is not an http URL, or has a user or password in it",
            change=(
                "give the hub's alone, as https://hub.internal; a token comes by"
                f" {SECRET_NAME_VARIABLE}"
            ),
        )
    return address


def _list_model_files(snapshot: HubSnapshot) -> tuple[HubSnapshot, library.ModelInfo]:
    """Return the listing; send the token only if the model is not open.

    If no secret is named, a gated model is tried without a token: a mirror may serve it to
    everybody.
    """
    secret_name = os.environ.get(SECRET_NAME_VARIABLE)
    try:
        info = _request_model_info(snapshot)
    except HubAccessError:
        if not secret_name:
            raise
    else:
        if not info.gated or not secret_name:
            return snapshot, info
    parts = urlsplit(snapshot.hub)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise InputError(
            "a token is not sent over plain http",
            where=snapshot.hub,
            change="reach the hub by https",
        )
    token_snapshot = replace(snapshot, token=read_token(secret_name), secret=secret_name)
    return token_snapshot, _request_model_info(token_snapshot)


def _request_model_info(snapshot: HubSnapshot) -> library.ModelInfo:
    token = snapshot.token or False
    api = library.HfApi(endpoint=snapshot.hub, token=token, library_name="tandem")
    try:
        return snapshot.retry(
            "its list of files",
            partial(
                api.model_info,
                snapshot.model,
                revision=snapshot.commit,
                files_metadata=True,
                timeout=TIMEOUT_S,
            ),
        )
    except hub_errors.HFValidationError as error:
        raise InputError(
            f"it is not the name of a model ({error})", where=snapshot.model, change="correct it"
        ) from None
    except (KeyError, TypeError, ValueError) as error:  # no JSON, or not of this form
        raise snapshot.foreign_answer_fault(error) from None


def _parse_entries(info: library.ModelInfo, where: str) -> dict[str, SnapshotEntry]:
    entries = {}
    for sibling in info.siblings or ():
        path = str(sibling.rfilename)
        if problem := describe_bad_name(path):
            raise InputError(
                f"the hub lists {path!a}: {problem}", where=where, change="take another revision"
            )
        sha256 = sibling.lfs.sha256 if sibling.lfs else None
        size = sibling.lfs.size if sibling.lfs else sibling.size
        git_sha1 = None if sibling.lfs else sibling.blob_id
        if not isinstance(size, int) or not (_is_digest(sha256, 64) or _is_digest(git_sha1, 40)):
            raise ExternalError(
                f"the hub lists {path} without size or checksum",
                where=where,
                change="check that HF_ENDPOINT is a hub that lists files with sizes and checksums",
            )
        entries[path] = SnapshotEntry(path=path, size=size, sha256=sha256, git_sha1=git_sha1)
    return entries


def _is_digest(value: object, digits: int) -> bool:
    return isinstance(value, str) and re.fullmatch(rf"[0-9a-f]{{{digits}}}", value) is not None


def _compute_git_sha1(path: Path) -> str:
    """Return git's name of a file's content."""
    header = b"blob %d\0" % read_file_size(path)
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.sha1(header, usedforsecurity=False)
        ).hexdigest()
