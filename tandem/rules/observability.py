"""Who is told of an alarm, and which run later ones are held against."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date

from tandem.rules.rule import Finding, Rule, listed, nearest
from tandem.rules.subjects import Stamp
from tandem.spec.environment import ReferenceValue
from tandem.spec.experiment import Experiment

# what SNS takes as endpoint of each protocol, and how to say it
ENDPOINTS: dict[str, tuple[re.Pattern[str], str]] = {
    "email": (re.compile(r"[^@]+@[^@.]+(\.[^@.]+)+"), "an e-mail address such as oncall@acme.dev"),
    "https": (re.compile(r"https://[^/@]+(/.*)?"), "an https:// URL without a user name"),
    "sqs": (re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:\d{12}:[\w-]{1,80}"), "the ARN of a standard queue"),
    "lambda": (re.compile(r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:[\w:$-]+"), "the ARN of a function"),
}


def _endpoint(stamp: Stamp) -> Iterable[Finding]:
    for index, subscription in enumerate(stamp.environment.observability.alarm_subscriptions):
        pattern, allowed = ENDPOINTS[subscription.protocol]
        if not pattern.fullmatch(subscription.endpoint):
            yield Finding(
                path=f"observability.alarm_subscriptions[{index}].endpoint",
                got=f"{subscription.endpoint} with protocol {subscription.protocol}", allowed=allowed,
                change=_other_protocol(subscription.endpoint) or "write one, or the protocol that was meant",
            )  # fmt: skip


def _other_protocol(endpoint: str) -> str | None:
    fitting = [protocol for protocol, (pattern, _) in ENDPOINTS.items() if pattern.fullmatch(endpoint)]
    return f"write protocol: {fitting[0]}" if fitting else None


def _heard(stamp: Stamp) -> Iterable[Finding]:
    if not stamp.environment.observability.alarm_subscriptions:
        yield Finding(
            path="observability.alarm_subscriptions", got="nobody", allowed="at least one subscriber",
            change="name who is called when an alarm fires: {protocol: email, endpoint: oncall@...}",
        )  # fmt: skip


def _once(stamp: Stamp) -> Iterable[Finding]:
    subscriptions = stamp.environment.observability.alarm_subscriptions
    for index, subscription in enumerate(subscriptions):
        if subscription in subscriptions[:index]:
            yield Finding(
                path=f"observability.alarm_subscriptions[{index}]", got=f"{subscription.endpoint} again",
                allowed="each subscriber once", change="delete one",
            )  # fmt: skip


def _values(stamp: Stamp) -> Iterator[tuple[str, ReferenceValue]]:
    reference = stamp.environment.observability.reference
    for index, value in enumerate(reference.values if reference else ()):
        yield f"observability.reference.values[{index}]", value


def _measured(stamp: Stamp, value: ReferenceValue) -> Experiment | None:
    """Return the experiment of a value; None where it is of bad form, or hosted nowhere here."""
    return next((found for found in stamp.hosted if found.name == value.experiment), None)


def _experiment(stamp: Stamp) -> Iterable[Finding]:
    hosted = stamp.environment.experiments
    for path, value in _values(stamp):
        if value.experiment not in hosted:
            yield Finding(
                path=f"{path}.experiment", got=value.experiment, allowed=listed(hosted),
                change=nearest(value.experiment, hosted),
            )  # fmt: skip


def _variant(stamp: Stamp) -> Iterable[Finding]:
    for path, value in _values(stamp):
        experiment = _measured(stamp, value)
        names = [variant.name for variant in experiment.all_variants()] if experiment else [value.variant]
        if value.variant not in names:
            yield Finding(
                path=f"{path}.variant", got=f"{value.variant} of experiment {value.experiment}", allowed=listed(names),
                change=nearest(value.variant, names),
            )  # fmt: skip


def _accepts(stamp: Stamp) -> Iterable[Finding]:
    for path, value in _values(stamp):
        experiment = _measured(stamp, value)
        plain = [variant.name for variant in experiment.all_variants() if variant.mode == "none"] if experiment else []
        if value.acceptance_length is not None and value.variant in plain:
            yield Finding(
                path=f"{path}.acceptance_length", got=f"{value.acceptance_length:g} of {value.variant}, mode none",
                allowed="null: nothing is drafted, so nothing is accepted", change="delete it",
            )  # fmt: skip


def _says_something(stamp: Stamp) -> Iterable[Finding]:
    for path, value in _values(stamp):
        if value.ttft_ms is None and value.tpot_ms is None and value.acceptance_length is None:
            yield Finding(
                path=path, got="no figure", allowed="at least one of ttft_ms, tpot_ms, acceptance_length",
                change="write the run's medians (summary.json), or delete the entry",
            )  # fmt: skip


def _value_once(stamp: Stamp) -> Iterable[Finding]:
    seen: dict[tuple[str, str, str, int], str] = {}
    for path, value in _values(stamp):
        cell = (value.experiment, value.variant, value.prompt_class, value.concurrency)
        if cell in seen:
            yield Finding(
                path=path, got=f"{' '.join(map(str, cell))} again, as in {seen[cell]}", allowed="each once",
                change="delete one",
            )  # fmt: skip
        seen.setdefault(cell, path)


_SNS = "SNS API Reference, Subscribe: Protocol and Endpoint"
_TANDEM = "Tandem's own: an alarm is made from each figure of the reference"

RULES: tuple[Rule[Stamp], ...] = (
    Rule(
        id="subscription-endpoint", of=Stamp, severity="refusal", find=_endpoint,
        sentence="a subscriber's endpoint is of its protocol", source=_SNS, date=date(2026, 11, 21),
    ),
    Rule(
        id="alarms-heard", of=Stamp, severity="warning", find=_heard,
        sentence="somebody is told of the alarms", source="Tandem's own: an alarm that nobody hears stops nothing",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="subscription-once", of=Stamp, severity="refusal", find=_once,
        sentence="each subscriber of the alarms stands once", source=_SNS, date=date(2026, 11, 21),
    ),
    Rule(
        id="reference-experiment", of=Stamp, severity="refusal", find=_experiment,
        sentence="a reference value is of an experiment that the environment hosts", source=_TANDEM,
        date=date(2026, 11, 21),
    ),
    Rule(
        id="reference-variant", of=Stamp, severity="refusal", find=_variant,
        sentence="a reference value is of one of its experiment's variants", source=_TANDEM, date=date(2026, 11, 21),
    ),
    Rule(
        id="reference-acceptance", of=Stamp, severity="refusal", find=_accepts,
        sentence="only a variant that speculates has an acceptance length", source=_TANDEM, date=date(2026, 11, 21),
    ),
    Rule(
        id="reference-figure", of=Stamp, severity="refusal", find=_says_something,
        sentence="a reference value holds at least one figure", source=_TANDEM, date=date(2026, 11, 21),
    ),
    Rule(
        id="reference-once", of=Stamp, severity="refusal", find=_value_once,
        sentence="each variant, class and concurrency has one reference", source=_TANDEM, date=date(2026, 11, 21),
    ),
)  # fmt: skip
