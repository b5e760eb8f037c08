"""What goes wrong, and when: rules as frozen values.

Invariant: rules are tried in their order and the first that fires decides; a rule counts only the
requests that reach it, so the same requests in the same order meet the same faults, those with a
probability too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from doubles.fault_proxy.request import ProxyRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusFault:
    """The request is not sent on; the answer is an error in the form of the service's protocol."""

    status: int
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DelayFault:
    """The request is sent on late."""

    delay_s: float


class DropFault:
    """The connection ends before the request is sent on: nothing was done."""


class AnswerLossFault:
    """The request is sent on and done, and the connection ends without the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerCutFault:
    """The connection ends within the answer's body. An answer without a body is lost whole.

    Args:
        after: bytes of the body that arrive; half of it by default.
    """

    after: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerCorruptionFault:
    """One byte of the answer's body is another; an answer that is too short passes unharmed.

    Args:
        at: offset in the answer's body; its middle by default.
    """

    at: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowAnswerFault:
    """The answer's body comes no faster than this."""

    bytes_per_s: float


ProxyFault = (
    StatusFault
    | DelayFault
    | DropFault
    | AnswerLossFault
    | AnswerCutFault
    | AnswerCorruptionFault
    | SlowAnswerFault
)

# Error responses of S3 and the common ones of the JSON services, as their API references spell
# them.
SLOW_DOWN_FAULT = StatusFault(status=503, code="SlowDown")
INTERNAL_ERROR_FAULT = StatusFault(status=500, code="InternalError")
ACCESS_DENIED_FAULT = StatusFault(status=403, code="AccessDenied")
THROTTLING_FAULT = StatusFault(status=400, code="ThrottlingException")


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultRule:
    """Which requests meet a fault, and which of those.

    Args:
        service: signing name: s3, eks, monitoring; any by default.
        operation: fnmatch pattern: UploadPart, List*.
        method: of HTTP; any by default.
        path: fnmatch pattern of the decoded path: /bucket/prefix/*.
        skip: so many matching requests pass first.
        every: of those after it, every n-th.
        times: then it is over; never by default.
        probability: of each such request.
        seed: of the probability.
    """

    fault: ProxyFault
    service: str | None = None
    operation: str = "*"
    method: str | None = None
    path: str = "*"
    skip: int = 0
    every: int = 1
    times: int | None = None
    probability: float = 1.0
    seed: int = 0


class RuleCounter:
    """One rule with what it has counted."""

    def __init__(self, rule: FaultRule) -> None:
        self.rule = rule
        self.match_count = 0
        self.fault_count = 0
        self._random = random.Random(rule.seed)  # noqa: S311 - a schedule of faults is no secret

    def count_request(self, request: ProxyRequest) -> bool:
        """Count the request if it matches; whether it meets the fault."""
        rule = self.rule
        if not _is_match(rule, request) or self.fault_count == rule.times:
            return False
        self.match_count += 1
        position = self.match_count - rule.skip
        if position < 1 or position % rule.every or self._random.random() >= rule.probability:
            return False
        self.fault_count += 1
        return True


def select_fault(counters: Iterable[RuleCounter], request: ProxyRequest) -> ProxyFault | None:
    """The fault that a request meets, if any."""
    return next(
        (counter.rule.fault for counter in counters if counter.count_request(request)), None
    )


def _is_match(rule: FaultRule, request: ProxyRequest) -> bool:
    return (
        rule.service in {None, request.service}
        and fnmatchcase(request.operation, rule.operation)
        and rule.method in {None, request.method}
        and fnmatchcase(request.path, rule.path)
    )
