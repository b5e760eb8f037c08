"""What ends a request that does not end by itself: time-outs, an endless answer, an interruption.

Invariant: a request is never longer than its time-outs allow by more than LOOK_S, and its read loop does nothing but
keep what it reads. All that has to be judged while a request runs is judged here, by a timer that looks a few times
a second at what has been kept. A look that comes late is put off once: where this process was held up, what the
server sent meanwhile is read before the server is blamed.

- First token: reads cannot be told from tokens without parsing (a role chunk and comment lines come before). When
  the time is up the watch parses what came so far, once, up to the first event with output; in time, nothing is
  parsed. A silence as long as the gap's time-out is judged the same way: before the first token it is no gap.
- Gap: the time since the last read that holds more than comment lines, which proxies send to keep connections open.
- Endless: more events than the request can have asked for. A text may itself hold `data:`, at most once a token, and
  an event holds a token or more, so EVENTS_FACTOR times max_tokens is never reached by an answer that keeps to them.
  Bytes are counted where they are read (`client.py`).
"""

from __future__ import annotations

import asyncio
import time

from tandem.bench.answer import bears_tokens
from tandem.bench.reply import NS_PER_S, Reply
from tandem.bench.sse import only_comments
from tandem.bench.wire import Ask, TimeOuts

LOOK_S = 0.25
LATE_S = 0.02
EVENTS_FACTOR, EVENTS_MORE = 4, 256


class Watch:
    """Watches one request.

    Args:
        reply: what the request keeps its reads in.
        outs: its time-outs.
        bound: cancels the request and nothing else: `asyncio.timeout(None)` around it.
    """

    def __init__(self, reply: Reply, outs: TimeOuts, bound: asyncio.Timeout) -> None:
        self.sent = False  # set once reply.start_ns is the time of the request's bytes
        self.most_events = EVENTS_MORE
        self.word: str | None = None
        self.detail: str | None = None
        self._reply, self._outs, self._bound = reply, outs, bound
        self._loop = asyncio.get_running_loop()
        self._looked, self._events = 0, 0
        self._alive_ns = 0
        self._parsed = -1  # reads there were when the first token was last looked for
        self._token = False
        self._late = False
        self._timer = self._again(self._pause(0.0))

    def expect(self, ask: Ask) -> None:
        """Set how many events the answer to `ask` can hold at most."""
        self.most_events = EVENTS_MORE + EVENTS_FACTOR * ask.max_tokens

    def cut(self, word: str, detail: str) -> None:
        """End the request with `word`; the first word stays."""
        if self.word is None:
            self.word, self.detail = word, detail
            self._bound.reschedule(self._loop.time())

    def stop(self) -> None:
        """Look no more: the request has ended."""
        self._timer.cancel()

    def _again(self, after_s: float) -> asyncio.TimerHandle:
        self._due_s = self._loop.time() + after_s
        return self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        if self._loop.time() - self._due_s > LATE_S and not self._late:
            self._late = True  # the loop itself was held up: what has come meanwhile is read first
            self._timer = self._again(LATE_S)
            return
        self._late = False
        age_s = 0.0
        if self.sent:
            now_ns = time.monotonic_ns()
            age_s = (now_ns - self._reply.start_ns) / NS_PER_S
            self._weigh()
            self._judge(age_s, (now_ns - max(self._alive_ns, self._reply.start_ns)) / NS_PER_S)
        if self.word is None:
            self._timer = self._again(self._pause(age_s))

    def _pause(self, age_s: float) -> float:
        dues = (self._outs.whole_s - age_s, self._outs.first_token_s - age_s, self._outs.gap_s)
        return max(0.001, min(LOOK_S, *(due for due in dues if due > 0)) if any(due > 0 for due in dues) else LOOK_S)

    def _weigh(self) -> None:
        """Take in what was read since the last look."""
        fresh = self._reply.reads[self._looked :]
        self._looked += len(fresh)
        for at_ns, piece in fresh:
            self._events += piece.count(b"data:")
            if not only_comments(piece):
                self._alive_ns = at_ns

    def _judge(self, age_s: float, quiet_s: float) -> None:
        if self._events > self.most_events:
            self.cut("endless", f"cut after {self._events} events")
        elif age_s >= self._outs.whole_s:
            self.cut("whole_timeout", f"not ended after {self._outs.whole_s:g} s, {self._events} events had come")
        elif age_s >= self._outs.first_token_s and not self._has_token():
            self.cut("first_token_timeout", f"no token after {self._outs.first_token_s:g} s")
        elif quiet_s >= self._outs.gap_s and self._has_token():
            self.cut("gap_timeout", f"nothing for {self._outs.gap_s:g} s after {self._events} events")

    def _has_token(self) -> bool:
        if not self._token and self._parsed != self._looked:
            self._parsed = self._looked
            self._token = bears_tokens(self._reply)
        return self._token
