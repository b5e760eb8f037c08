"""The watch on a server that a command is to restart: whether the old server is gone.

Invariant: a server counts as gone only by one of these facts, seen after the command began:

- a connection to its address is refused or reset;
- a page that it answered before gets 502, 503 or 504, from a proxy in front of it;
- the start time of its process is later than before;
- it closed a connection that had been open and in use for `STEADY_S` before.

A server that closes connections by a rule of its own, after each answer or after some of them,
announces it (`Connection: close`) or has no connection that is open for so long: neither counts.
Nor does a connection that this client closed, or a proxy of HTTP_PROXY that refuses.
"""

from __future__ import annotations

import asyncio
import errno

from tandem.bench.load.client import KEEP_ALIVE_S, CompletionClient
from tandem.bench.load.event import EventError
from tandem.bench.load.metrics_scraper import METRICS_BYTES
from tandem.bench.load.reply import ServerReply, read_page
from tandem.bench.records.counters import is_same_begin, parse_page
from tandem.bench.records.manifest import Timeouts
from tandem.errors import TandemError

POLL_S = 0.5
STEADY_S = 10.0
# together with POLL_S below KEEP_ALIVE_S, after which this client closes an idle connection itself
POLL_TIMEOUTS = Timeouts(connect_s=2.0, first_token_s=2.0, gap_s=2.0, whole_s=2.0)
KEPT_PATH = "/v1/models"
METRICS_PATH = "/metrics"
_GONE_ERRNOS = (errno.ECONNREFUSED, errno.ECONNRESET)
_GATEWAY_STATUSES = (502, 503, 504)
_FIRST_ERROR_STATUS = 500


class ServerWatch:
    """Watch on one server, by a client that nothing else uses.

    Attributes:
        evidence: the fact by which the old server is gone; empty while it may still answer.
    """

    def __init__(self, client: CompletionClient) -> None:
        self.evidence = ""
        self._client = client
        self._has_begun = False
        self._began_s: float | None = None
        self._statuses: dict[str, int] = {}  # of each page, before the command
        self._open_since_s: float | None = None  # the connection that is kept open
        self._used_s = 0.0

    def begin(self) -> None:
        """Count what is seen from now on: the command begins."""
        self._has_begun = True

    async def look(self) -> None:
        """Read both pages once, one over the connection that is kept open, one over a new one."""
        if self.evidence:
            return
        kept, fresh = await asyncio.gather(
            self._client.get(KEPT_PATH, POLL_TIMEOUTS),
            self._client.get(METRICS_PATH, POLL_TIMEOUTS, limit_bytes=METRICS_BYTES, apart=True),
        )
        facts = (
            self._judge_reply(KEPT_PATH, kept),
            self._judge_reply(METRICS_PATH, fresh),
            self._judge_begin(fresh),
            self._judge_connection(kept),
        )
        if self._has_begun:
            self.evidence = next(filter(None, facts), "")

    def _judge_reply(self, path: str, reply: ServerReply) -> str:
        """Return whether nobody accepts connections, or a proxy has nobody to ask."""
        if reply.status is None:
            has_answered = path in self._statuses
            if reply.error_number in _GONE_ERRNOS:
                return f"connections were {_name_refusal(reply.error_number)}"
            if reply.error == "closed" and has_answered:
                return "connections were closed without an answer"
            return ""
        if not self._has_begun:
            self._statuses[path] = reply.status
        before = self._statuses.get(path, _FIRST_ERROR_STATUS)
        if reply.status in _GATEWAY_STATUSES and before < _FIRST_ERROR_STATUS:
            return f"{path} answered {reply.status}, and {before} before"
        return ""

    def _judge_begin(self, reply: ServerReply) -> str:
        """Return whether the start time of the process is later."""
        try:
            began_s = parse_page(read_page(reply).decode()).get("began_s")
        except (EventError, TandemError, UnicodeDecodeError):
            return ""
        if began_s is None:
            return ""
        if not self._has_begun:  # several processes at one address: the latest counts
            self._began_s = max(began_s, self._began_s or began_s)
        before_s = began_s if self._began_s is None else self._began_s
        is_later = began_s > before_s and not is_same_begin(began_s, before_s)
        return "the start time of its process was later" if is_later else ""

    def _judge_connection(self, reply: ServerReply) -> str:
        """Return whether the server closed the connection that was kept open."""
        open_since_s = self._open_since_s
        idle_s = reply.start_s - self._used_s
        self._used_s = reply.start_s + reply.end_s
        if reply.status is None or _is_last(reply):
            self._open_since_s = None
        elif not reply.had_open_connection:
            self._open_since_s = reply.start_s
        if open_since_s is None or reply.had_open_connection or idle_s >= KEEP_ALIVE_S:
            return ""
        open_s = reply.start_s - open_since_s
        return f"it closed a connection after {open_s:.0f} s" if open_s >= STEADY_S else ""


def _name_refusal(number: int | None) -> str:
    return "refused" if number == errno.ECONNREFUSED else "reset"


def _is_last(reply: ServerReply) -> bool:
    """Return whether the answer announced that its connection ends, or this client cut it."""
    return reply.headers.get("Connection", "").lower() == "close" or reply.error == "endless"
