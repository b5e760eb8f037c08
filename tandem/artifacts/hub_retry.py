"""What is asked of a hub, how often, and what its refusals mean.

Invariant: what passes (no connection, 408, 429, 5xx) is tried a bounded number of times with growing waits; what
stays is a fault at once, in words that name the model's page and the secret. No message quotes a whole address
of the hub's answer: those of large files are signed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.secret import SECRET_NAME_VARIABLE, HubToken
from tandem.errors import ExternalError, InputError, TandemError

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

MAX_TRIES = 5  # in a row without a new byte
FIRST_WAIT_S = 1.0  # doubled after each try
MAX_WAIT_S = 600.0  # of a Retry-After: who asks for more is down for the length of a Job
_TRANSIENT_STATUSES = {408, 429, 500, 502, 503, 504}
_QUOTE_CHARACTERS = 200  # characters of the hub's own message that are quoted
_RETRY_ADVICE = "run the job again, what is stored stays; if it stays down, name another hub or stage a copy by --from"


class HubAccessError(InputError):
    """The hub does not show it to this asker; a token may open it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubQuery:
    """A model of a hub, and who asks.

    Args:
        model: organisation/name. revision: commit or name.
        hub: its address, without a slash at the end.
        token: None asks as anybody.
    """

    model: str
    revision: str
    hub: str
    token: HubToken | None = field(repr=False)

    @property
    def page(self) -> str:
        """Return the model's page, where its licence is accepted."""
        return f"{self.hub}/{self.model}"

    @property
    def where(self) -> str:
        """Return the snapshot's address, for messages."""
        return f"{self.page}@{self.revision}"

    def gate_fault(self, hub_message: str = "") -> TandemError:
        """Return the fault of a gated model that this asker may not read."""
        if self.token is None:
            return HubAccessError(
                "the model is gated and no token was sent", where=self.where,
                change=f"accept its licence at {self.page}, store a token of that account in Secrets Manager and give "
                f"the secret's name to the environment ({SECRET_NAME_VARIABLE})",
            )  # fmt: skip
        return HubAccessError(
            f"the model is gated and the token in the secret {self.token.secret} does not open "
            f"it{_quote_message(hub_message)}",
            where=self.where,
            change=f"accept the licence at {self.page} with the token's own account, wait for its approval, and let "
            "the token read gated repositories",
        )

    def foreign_answer_fault(self, error: Exception) -> TandemError:
        """Return the fault of an answer that no hub gives."""
        return ExternalError(
            f"what answers is no hub ({type(error).__name__})", where=self.where,
            change="check HF_ENDPOINT, and whether a proxy or a login page stands before it",
        )  # fmt: skip

    def response_fault(self, error: HfHubHTTPError) -> TandemError:
        """Return the fault that an answer of the hub means."""
        status, headers = error.response.status_code, error.response.headers
        code, hub_message = headers.get("X-Error-Code", ""), headers.get("X-Error-Message", "")
        if code == "GatedRepo":
            return self.gate_fault(hub_message)
        if code == "RevisionNotFound":
            return InputError(
                f"the model has no revision {self.revision}", where=self.page,
                change=f"take a commit from {self.page}/commits/main",
            )  # fmt: skip
        if status == 401 and self.token:  # noqa: PLR2004 - unauthorized
            return HubAccessError(
                f"the hub does not accept the token in the secret {self.token.secret}{_quote_message(hub_message)}",
                where=self.page,
                change="put a token that is valid into the secret",
            )
        if code == "RepoNotFound" or status in {401, 404}:
            explanation = (
                f"the token in the secret {self.token.secret} may not see it" if self.token else "it is private"
            )
            return HubAccessError(
                f"the hub has no model {self.model}, or {explanation}", where=self.page,
                change=f"check the name; for a private one give a secret with a token ({SECRET_NAME_VARIABLE})",
            )  # fmt: skip
        if status == 403:  # noqa: PLR2004 - forbidden
            return HubAccessError(
                f"the hub forbids it{_quote_message(hub_message)}", where=self.where,
                change=f"read {self.page} with the account whose token is used",
            )  # fmt: skip
        return ExternalError(
            f"the hub answers {status}{_quote_message(hub_message)}", where=self.where, change=_RETRY_ADVICE
        )


@dataclass(slots=True)
class HubRetry:
    """The tries of one thing.

    Args:
        query: of whom.
        subject: the file, or the listing.
    """

    query: HubQuery
    subject: str
    tries_left: int = MAX_TRIES
    wait_s: float = 0.0

    def reset(self) -> None:
        """Begin to count anew, because something came."""
        self.tries_left, self.wait_s = MAX_TRIES, 0.0

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Do one try: what passes is swallowed after a wait, everything else leaves as a fault.

        Raises:
            TandemError: the hub refuses, or the last try failed.
        """
        from httpx import HTTPError, InvalidURL, TransportError  # noqa: PLC0415 - only when there is something to fetch
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled  # noqa: PLC0415

        try:
            yield
        except HfHubHTTPError as error:
            if error.response.status_code not in _TRANSIENT_STATUSES:
                raise self.query.response_fault(error) from None
            self._wait(f"the hub answers {error.response.status_code}", _read_retry_after_s(error))
        except OfflineModeIsEnabled:
            raise InputError("HF_HUB_OFFLINE is set", change="unset it, or stage a folder by --from") from None
        except (TransportError, EOFError) as error:
            self._wait(f"the hub does not answer ({type(error).__name__}: {error})", None)
        except (HTTPError, InvalidURL) as error:
            raise self.query.foreign_answer_fault(error) from None

    def _wait(self, reason: str, hub_wait_s: float | None) -> None:
        self.tries_left -= 1
        self.wait_s = hub_wait_s if hub_wait_s is not None else max(FIRST_WAIT_S, 2 * self.wait_s)
        if not self.tries_left or self.wait_s > MAX_WAIT_S:
            wait_note = f" and asks to wait {self.wait_s:.0f} seconds" if self.wait_s > MAX_WAIT_S else ""
            raise ExternalError(
                f"{reason}{wait_note}, asked {MAX_TRIES - self.tries_left} times for {self.subject}",
                where=self.query.where,
                change=_RETRY_ADVICE,
            )
        log_event(
            "trying again",
            level="warning",
            why=reason,
            what=self.subject,
            wait_s=self.wait_s,
            tries_left=self.tries_left,
        )
        time.sleep(self.wait_s)


def _read_retry_after_s(error: HfHubHTTPError) -> float | None:
    """Return the seconds that an answer asks to wait, by its rate limit or its Retry-After."""
    # in the library's list of public names, which mypy does not read
    from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]  # noqa: PLC0415

    headers = error.response.headers
    limit = parse_ratelimit_headers(headers)
    if limit is not None and limit.remaining == 0:
        return limit.reset_in_seconds + 1.0
    retry_after = headers.get("Retry-After", "").strip()
    if retry_after.isdigit():
        return float(retry_after)
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(tz=UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


def _quote_message(message: str) -> str:
    return f' (the hub: "{message[:_QUOTE_CHARACTERS]}")' if message else ""
