"""Which start of its server a scrape met, and whether one server answers at an address at all.

Invariant: two start words differ only if the server was restarted between them, as far as its page
shows. Several servers behind one address are never taken for starts of one: their starts are
unknown, because a request and a scrape may have met different servers.

A vLLM with one API server gives `process_start_time_seconds`. A vLLM whose processes share their
counters in files does not (PROMETHEUS_MULTIPROC_DIR: vLLM's V0 front end, several API servers, and
vLLM's Neuron package, which sets the variable on import). Counters begin at 0 after every start, so
for such a server the start is a number that rises when a counter falls.

A restarted server began later than the last scrape of the server before it, and has counted no more
than what this run sent since then. So several servers answer at the address if

- a start time goes back, returns, or lies before a scrape of the start before it (whole seconds, at
  most 2, are the clock's, not another start: `tandem.bench.records.counters.is_same_begin`);
- counters fall within one start time, or fall to more than what this run sent since the last
  scrape and half of what they were, because another client may have sent requests too;
- counters fall and come back twice: they rise to where they were, by more than this run sent.

What was sent before the first scrape of a process is not known, so a fall there is a start unless
the counters come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tandem.bench.plan.schedule import CONTROL_SUFFIX
from tandem.bench.records.counters import MetricsScrape, compute_difference, is_same_begin

CLOCK_TOLERANCE_S = 60.0  # between the clocks of a server and of the measuring machine
_LEAST_SHARE = 0.5  # of a counter, or of its fall: more is no work of another client
_LEAST_RETURNS = 2  # once, after a restart, may be the work of another client
_REQUEST_KEYS = ("requests_finished", "first_tokens")
_TOKEN_KEYS = ("generation_tokens", "request_tokens_sum")


@dataclass(slots=True)
class _Fall:
    """A counter that fell: its value before and after."""

    key: str
    before: float
    after: float


@dataclass(slots=True)
class _ServerHistory:
    """What the scrapes of one server have shown so far."""

    last_scrape: MetricsScrape | None = None
    last_counters: Mapping[str, float] = field(default_factory=dict)
    # each start time once, in the order of the scrapes
    begins_s: list[float] = field(default_factory=list)
    falls: list[_Fall] = field(default_factory=list)  # that have not come back
    return_counts: Counter[str] = field(default_factory=Counter)  # of falls that came back, by key
    start_number: int = 1

    def identify_begin(self, began_s: float) -> float:
        """Return the start time of the same process that came first, else `began_s`."""
        return next(
            (known_s for known_s in self.begins_s if is_same_begin(known_s, began_s)), began_s
        )


class ServerStarts:
    """The starts of all servers of a run; scrapes come in the order of their times.

    Attributes:
        replicas: by server, why several servers answer at its address.
    """

    def __init__(self, scrapes: Iterable[MetricsScrape] = ()) -> None:
        self.replicas: dict[str, str] = {}
        self._histories: dict[str, _ServerHistory] = {}
        for scrape in scrapes:
            self.identify_start(scrape)

    def identify_start(self, scrape: MetricsScrape) -> str | None:
        """Return a word for the server's start at this scrape; None if it has none or several."""
        server = name_server(scrape.arm)
        history = self._histories.setdefault(server, _ServerHistory())
        counters = scrape.counters
        if counters is None or not (counters or history.last_counters):
            return None  # V0 shows nothing before its first request
        reason = _doubt_begin(history, scrape) or _doubt_counters(history, scrape)
        if reason:
            self.replicas.setdefault(server, reason)
        has_fallen = history.last_scrape is not None and isinstance(
            compute_difference(history.last_counters, counters), str
        )
        history.start_number += has_fallen
        history.last_scrape = scrape
        history.last_counters = counters
        if server in self.replicas:
            return None
        if scrape.began_s is None:
            return str(history.start_number)
        return f"{history.identify_begin(scrape.began_s):.2f}"


def name_server(arm: str) -> str:
    """Return the arm whose server answers an arm: the control's is the baseline's."""
    return arm.removesuffix(CONTROL_SUFFIX)


def _doubt_begin(history: _ServerHistory, scrape: MetricsScrape) -> str:
    """Return why the start time of a scrape is that of another server; empty if it is not."""
    began_s = scrape.began_s
    if began_s is None:
        return ""
    begins_s = history.begins_s
    began_s = history.identify_begin(began_s)
    if not begins_s or began_s == begins_s[-1]:
        history.begins_s = begins_s or [began_s]
        return ""
    if began_s in begins_s:
        return "the start time of its process returned to an earlier one"
    if began_s < begins_s[-1]:
        return "the start time of its process went back"
    begins_s.append(began_s)
    last_utc_s = history.last_scrape.utc_s if history.last_scrape is not None else None
    if last_utc_s is not None and began_s < last_utc_s - CLOCK_TOLERANCE_S:
        return "a process answered that had begun before another one answered last"
    return ""


def _doubt_counters(history: _ServerHistory, scrape: MetricsScrape) -> str:
    """Return why the counters of a scrape are those of another server; empty if they are not."""
    before = history.last_counters
    after = scrape.counters or {}
    has_begins = "began_s" in before and "began_s" in after
    is_same_start = has_begins and is_same_begin(before["began_s"], after["began_s"])
    if has_begins and not is_same_start:
        history.falls.clear()  # the start times tell
        return ""
    for key in (*_REQUEST_KEYS, *_TOKEN_KEYS):
        if key not in before and key not in after:
            continue
        old = before.get(key, 0.0)
        new = after.get(key, 0.0)
        most = scrape.asked_requests if key in _REQUEST_KEYS else scrape.asked_tokens
        if new >= old:
            reason = _doubt_rise(history, key, old, new, most)
        elif is_same_start:
            reason = "its counters fell within one start of its process"
        elif most is not None and new > most + _LEAST_SHARE * old:
            reason = "its counters fell, and not to those of a new start"
        else:
            history.falls.append(_Fall(key, old, new))
            continue
        if reason:
            return f"{reason} ({key}: {old:.0f} to {new:.0f})"
    return ""


def _doubt_rise(
    history: _ServerHistory, key: str, old: float, new: float, most: float | None
) -> str:
    """Return why a counter that rose is another server's; empty if it is not."""
    falls = [fall for fall in history.falls if fall.key == key]
    returned_falls = [fall for fall in falls if _has_returned(fall, old, new, most)]
    for fall in returned_falls:
        history.falls.remove(fall)
    history.return_counts[key] += bool(returned_falls)
    if history.return_counts[key] < _LEAST_RETURNS:
        return ""
    return f"its counters fall and come back, last by more than the {most} that this run sent"


def _has_returned(fall: _Fall, old: float, new: float, most: float | None) -> bool:
    """Return whether a counter rose to where it was before a fall, by more than was sent."""
    if most is None:
        return False
    return new >= fall.before and new - old - most >= _LEAST_SHARE * (fall.before - fall.after)
