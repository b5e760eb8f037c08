"""The forced end of a request: time-outs, an endless answer, an interruption.

Invariant: a request exceeds its time-outs by at most CHECK_INTERVAL_S, and its read loop only keeps
reads. All checks during a request are here: a timer looks at the reads a few times a second. A late
check is postponed once: if this process was delayed, the check comes after the reads of the
meantime, so the server is not blamed.

- First token: only parsing shows whether a read has tokens (a role chunk and comment lines come
  first). When the time is up, the check parses the reads so far, once; before that, it parses
  nothing. A silence as long as the gap's time-out is checked the same way: before the first token
  it is no gap.
- Gap: the time since the last read with more than comment lines, which proxies send to keep
  connections open.
- Endless: more events than the request allows. A text may contain `data:`, at most once a token,
  and an event has a token or more, so an answer within max_tokens never reaches EVENTS_FACTOR times
  max_tokens. `client.py` counts bytes in its read loop.
"""

from __future__ import annotations

import asyncio
import time

from tandem.bench.load.answer import has_tokens
from tandem.bench.load.reply import NS_PER_S, ServerReply
from tandem.bench.load.sse import has_only_comments
from tandem.bench.records.manifest import Timeouts

CHECK_INTERVAL_S = 0.25
LATE_TOLERANCE_S = 0.02
EVENTS_FACTOR = 4
EVENTS_EXTRA = 256


class RequestDeadline:
    """Watch on the time and events of one request.

    Args:
        reply: gets the reads of the request.
        timeouts: of the request.
        timeout: cancels only the request: `asyncio.timeout(None)` around it.
        max_tokens: of the request; infinite for a page, which may have any text.
    """

    def __init__(
        self,
        reply: ServerReply,
        timeouts: Timeouts,
        timeout: asyncio.Timeout,
        max_tokens: float = 0,
    ) -> None:
        self.is_sent = False  # true once reply.start_ns is the time of the request's bytes
        self.word: str | None = None
        self.detail: str | None = None
        self._max_events = EVENTS_EXTRA + EVENTS_FACTOR * max_tokens
        self._reply = reply
        self._timeouts = timeouts
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._read_count = self._event_count = self._last_read_ns = 0
        self._token_check_reads = -1  # number of reads at the last search for the first token
        self._has_first_token = self._is_late = False
        self._schedule_check(0.001)

    def cut(self, word: str, detail: str) -> None:
        """End the request with `word`, unless an earlier call ended it."""
        if self.word is None:
            self.word = word
            self.detail = detail
            self._timeout.reschedule(self._loop.time())

    def stop(self) -> None:
        """Stop the checks after the end of the request."""
        self._timer.cancel()

    def _schedule_check(self, after_s: float) -> None:
        self._due_s = self._loop.time() + after_s
        self._timer = self._loop.call_at(self._due_s, self._check)

    def _check(self) -> None:
        """Check the reads so far; check again at the next time limit, or after CHECK_INTERVAL_S."""
        if self._loop.time() - self._due_s > LATE_TOLERANCE_S and not self._is_late:
            self._is_late = True  # the loop was delayed: it reads the waiting bytes first
            self._schedule_check(LATE_TOLERANCE_S)
            return
        self._is_late = False
        age_s = 0.0
        if self.is_sent:
            now_ns = time.monotonic_ns()
            age_s = self._reply.since_start_s(now_ns)
            self._count_reads()
            silence_s = (now_ns - max(self._last_read_ns, self._reply.start_ns)) / NS_PER_S
            self._cut_if_due(age_s, silence_s)
        if self.word is None:
            limits = self._timeouts
            dues_s = (limits.whole_s - age_s, limits.first_token_s - age_s, limits.gap_s)
            after_s = min([CHECK_INTERVAL_S, *(due_s for due_s in dues_s if due_s > 0)])
            self._schedule_check(max(0.001, after_s))

    def _count_reads(self) -> None:
        """Count the events of the reads since the last check, and note when the last one came."""
        new_reads = self._reply.reads[self._read_count :]
        self._read_count += len(new_reads)
        for at_ns, piece in new_reads:
            self._event_count += piece.count(b"data:")
            if not has_only_comments(piece):
                self._last_read_ns = at_ns

    def _cut_if_due(self, age_s: float, silence_s: float) -> None:
        """End the request if it exceeds a limit."""
        limits = self._timeouts
        events = f"{self._event_count} events"
        if self._event_count > self._max_events:
            self.cut("endless", f"cut after {events}")
        elif age_s >= limits.whole_s:
            self.cut("whole_timeout", f"not ended after {limits.whole_s:g} s, {events} had come")
        elif age_s >= limits.first_token_s and not self._has_token():
            self.cut("first_token_timeout", f"no token after {limits.first_token_s:g} s")
        elif silence_s >= limits.gap_s and self._has_token():
            self.cut("gap_timeout", f"nothing for {limits.gap_s:g} s after {events}")

    def _has_token(self) -> bool:
        if not self._has_first_token and self._token_check_reads != self._read_count:
            self._token_check_reads = self._read_count
            self._has_first_token = has_tokens(self._reply)
        return self._has_first_token
