"""An HTTP proxy in front of a local endpoint that fails on purpose and logs what was asked.

Clients take its URL for the endpoint.

Invariant: a request that meets no fault reaches the endpoint with its method, target, headers (Host
included, so that signatures hold) and body unchanged, and its answer comes back so. Of a body no
more than 1 MiB is held at a time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

from doubles import loopback
from doubles.fault_proxy.connection import ProxyConnection
from doubles.fault_proxy.request import ProxyMoment, ProxyRequest
from doubles.fault_proxy.rules import FaultRule, ProxyFault, RuleCounter, select_fault


class FaultProxy:
    """The proxy, on 127.0.0.1 only.

    Args:
        upstream: the endpoint's URL.
        rules: the first rules.
        is_aws: whether the endpoint speaks AWS; where it does not, requests have no service and no
            operation.

    Attributes:
        moment_callback: called from the request's own thread when it was asked and before it is
            sent on, and when the endpoint has done it and before the answer leaves: the moments to
            kill a client.
    """

    def __init__(
        self,
        upstream: str,
        *rules: FaultRule,
        is_aws: bool = True,
    ) -> None:
        address = urlsplit(upstream)
        self.upstream = (address.hostname, address.port or 80)
        self.moment_callback: Callable[[ProxyMoment, ProxyRequest], None] | None = None
        self.is_aws = is_aws
        self._server = loopback.LoopbackServer(partial(ProxyConnection, self))
        self._lock = threading.Lock()
        self._counters = [RuleCounter(rule) for rule in rules]
        self._numbers = itertools.count(1)
        self._start_s = time.monotonic()
        self._log: dict[int, ProxyRequest] = {}

    @property
    def url(self) -> str:
        """What clients take as endpoint."""
        return self._server.url

    def start(self) -> Self:
        """Listen."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Refuse connections and end the open ones; the log stays."""
        self._server.stop()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def use(self, *rules: FaultRule) -> None:
        """Put these rules in the place of all others; without any, nothing fails. They count from
        zero."""
        with self._lock:
            self._counters = [RuleCounter(rule) for rule in rules]

    @property
    def fault_counts(self) -> tuple[int, ...]:
        """How many requests met each rule's fault, in the rules' order."""
        with self._lock:
            return tuple(counter.fault_count for counter in self._counters)

    @property
    def log(self) -> tuple[ProxyRequest, ...]:
        """Every request since the start or the last `forget`, in the order of arrival."""
        with self._lock:
            return tuple(self._log.values())

    def requests(self, operation: str = "*", path: str = "*") -> tuple[ProxyRequest, ...]:
        """Those of the log whose operation and path fit these fnmatch patterns."""
        return tuple(
            request
            for request in self.log
            if fnmatchcase(request.operation, operation) and fnmatchcase(request.path, path)
        )

    def forget(self) -> None:
        """Empty the log."""
        with self._lock:
            self._log.clear()

    def wait_until_idle(self) -> None:
        """Wait until the endpoint has done with every request of the log, as those of a killed
        client."""
        patience_s = time.monotonic() + 30
        while (
            any(request.ended_s is None for request in self.log) and time.monotonic() < patience_s
        ):
            time.sleep(0.005)

    def log_arrival(self, **fields: Any) -> tuple[ProxyRequest, ProxyFault | None]:
        """Log a request; the fault that it meets."""
        with self._lock:
            request = ProxyRequest(number=next(self._numbers), **fields)
            fault = select_fault(self._counters, request)
            self._log[request.number] = request
        return request, fault

    def update_request(
        self, request: ProxyRequest, *, is_end: bool = False, **changes: Any
    ) -> ProxyRequest:
        """Log what has become of it."""
        with self._lock:
            request = replace(
                request, ended_s=self._now() if is_end else request.ended_s, **changes
            )
            if request.number in self._log:
                self._log[request.number] = request
        return request

    def _now(self) -> float:
        return time.monotonic() - self._start_s
