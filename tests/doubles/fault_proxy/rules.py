"""What goes wrong, and when: rules as frozen values.

Invariant: rules are tried in their order and the first that fires decides; a rule counts only the
requests that reach it, so the same requests in the same order meet the same faults, those with a
probability too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from doubles.fault_proxy.request import ProxyRequest


class _FrozenModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StatusFault(_FrozenModel):
    """The request is not sent on; the answer is an error in the form of the service's protocol."""

    kind: Literal["status"] = "status"
    status: int = Field(ge=400, le=599, description="of HTTP")
    code: str = Field(description="the error's code in AWS")


class DelayFault(_FrozenModel):
    """The request is sent on late."""

    kind: Literal["delay"] = "delay"
    delay_s: float = Field(gt=0, description="seconds before it is sent on")


class DropFault(_FrozenModel):
    """The connection ends before the request is sent on: nothing was done."""

    kind: Literal["drop"] = "drop"


class AnswerLossFault(_FrozenModel):
    """The request is sent on and done, and the connection ends without the answer."""

    kind: Literal["lose_answer"] = "lose_answer"


class AnswerCutFault(_FrozenModel):
    """The connection ends within the answer's body. An answer without a body is lost whole."""

    kind: Literal["cut_answer"] = "cut_answer"
    after: int | None = Field(
        default=None, ge=0, description="bytes of the body that arrive; half of it by default"
    )


class AnswerCorruptionFault(_FrozenModel):
    """One byte of the answer's body is another; an answer that is too short for it passes
    unharmed."""

    kind: Literal["corrupt_answer"] = "corrupt_answer"
    at: int | None = Field(
        default=None, ge=0, description="offset in the answer's body; its middle by default"
    )


class SlowAnswerFault(_FrozenModel):
    """The answer's body comes no faster than this."""

    kind: Literal["slow_answer"] = "slow_answer"
    bytes_per_s: float = Field(gt=0, description="bytes of the body a second")


ProxyFault = Annotated[
    StatusFault
    | DelayFault
    | DropFault
    | AnswerLossFault
    | AnswerCutFault
    | AnswerCorruptionFault
    | SlowAnswerFault,
    Field(discriminator="kind"),
]

# Error responses of S3 and the common ones of the JSON services, as their API references spell
# them.
SLOW_DOWN_FAULT = StatusFault(status=503, code="SlowDown")
INTERNAL_ERROR_FAULT = StatusFault(status=500, code="InternalError")
ACCESS_DENIED_FAULT = StatusFault(status=403, code="AccessDenied")
THROTTLING_FAULT = StatusFault(status=400, code="ThrottlingException")


class FaultRule(_FrozenModel):
    """Which requests meet a fault, and which of those."""

    fault: ProxyFault
    service: str | None = Field(
        default=None, description="signing name: s3, eks, monitoring; any by default"
    )
    operation: str | None = Field(
        default=None, description="fnmatch pattern: UploadPart, List*; any by default"
    )
    method: str | None = Field(default=None, description="of HTTP; any by default")
    path: str = Field(
        default="*", description="fnmatch pattern of the decoded path: /bucket/prefix/*"
    )
    skip: int = Field(default=0, ge=0, description="so many matching requests pass first")
    every: int = Field(default=1, ge=1, description="of those after it, every n-th")
    times: int | None = Field(default=None, ge=1, description="then it is over; never by default")
    probability: float = Field(default=1.0, gt=0, le=1, description="of each such request")
    seed: int = Field(default=0, description="of the probability")


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
        and (rule.operation is None or fnmatchcase(request.operation, rule.operation))
        and rule.method in {None, request.method}
        and fnmatchcase(request.path, rule.path)
    )
