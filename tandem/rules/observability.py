"""Who is told of an alarm, and which run later ones are held against."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tandem.rules.contexts import EnvironmentContext
from tandem.rules.rule import RuleFinding, RuleList, join_values, suggest_nearest
from tandem.spec.environment import ReferenceValue
from tandem.spec.experiment import Experiment

# what SNS takes as endpoint of each protocol, and how to say it
ENDPOINTS: dict[str, tuple[re.Pattern[str], str]] = {
    "email": (re.compile(r"[^@]+@[^@.]+(\.[^@.]+)+"), "an e-mail address such as oncall@acme.dev"),
    "https": (re.compile(r"https://[^/@]+(/.*)?"), "an https:// URL without a user name"),
    "sqs": (re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:\d{12}:[\w-]{1,80}"), "the ARN of a standard queue"),
    "lambda": (re.compile(r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:[\w:$-]+"), "the ARN of a function"),
}

_SNS = "SNS API Reference, Subscribe: Protocol and Endpoint"
_TANDEM = "Tandem's own: an alarm is made from each figure of the reference"
RULES = RuleList()


@RULES.refuse("subscription-endpoint", _SNS, "2026-11-21")
def _find_wrong_endpoint(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A subscriber's endpoint is of its protocol."""
    for index, subscription in enumerate(context.environment.observability.alarm_subscriptions):
        pattern, endpoint_text = ENDPOINTS[subscription.protocol]
        if not pattern.fullmatch(subscription.endpoint):
            yield RuleFinding(
                path=f"observability.alarm_subscriptions[{index}].endpoint",
                got=f"{subscription.endpoint} with protocol {subscription.protocol}", allowed=endpoint_text,
                change=_suggest_protocol(subscription.endpoint) or "write one, or the protocol that was meant",
            )  # fmt: skip


def _suggest_protocol(endpoint: str) -> str | None:
    fitting = [protocol for protocol, (pattern, _) in ENDPOINTS.items() if pattern.fullmatch(endpoint)]
    return f"write protocol: {fitting[0]}" if fitting else None


@RULES.warn("alarms-heard", "Tandem's own: an alarm that nobody hears stops nothing", "2026-11-21")
def _find_missing_subscribers(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Somebody is told of the alarms."""
    if not context.environment.observability.alarm_subscriptions:
        yield RuleFinding(
            path="observability.alarm_subscriptions", got="nobody", allowed="at least one subscriber",
            change="name who is called when an alarm fires: {protocol: email, endpoint: oncall@...}",
        )  # fmt: skip


@RULES.refuse("subscription-once", _SNS, "2026-11-21")
def _find_repeated_subscribers(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Each subscriber of the alarms stands once."""
    subscriptions = context.environment.observability.alarm_subscriptions
    for index, subscription in enumerate(subscriptions):
        if subscription in subscriptions[:index]:
            yield RuleFinding(
                path=f"observability.alarm_subscriptions[{index}]", got=f"{subscription.endpoint} again",
                allowed="each subscriber once", change="delete one",
            )  # fmt: skip


def _yield_reference_measurements(context: EnvironmentContext) -> Iterator[tuple[str, ReferenceValue]]:
    reference = context.environment.observability.reference
    for index, value in enumerate(reference.values if reference else ()):
        yield f"observability.reference.values[{index}]", value


def _find_experiment(context: EnvironmentContext, value: ReferenceValue) -> Experiment | None:
    """Return the experiment of a value; None where it is of bad form, or hosted nowhere here."""
    return next((experiment for experiment in context.experiments if experiment.name == value.experiment), None)


@RULES.refuse("reference-experiment", _TANDEM, "2026-11-21")
def _find_unknown_experiment(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A reference value is of an experiment that the environment hosts."""
    experiment_names = context.environment.experiments
    for path, value in _yield_reference_measurements(context):
        if value.experiment not in experiment_names:
            yield RuleFinding(
                path=f"{path}.experiment", got=value.experiment, allowed=join_values(experiment_names),
                change=suggest_nearest(value.experiment, experiment_names),
            )  # fmt: skip


@RULES.refuse("reference-variant", _TANDEM, "2026-11-21")
def _find_unknown_variant(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A reference value is of one of its experiment's variants."""
    for path, value in _yield_reference_measurements(context):
        experiment = _find_experiment(context, value)
        names = [variant.name for variant in experiment.all_variants()] if experiment else [value.variant]
        if value.variant not in names:
            yield RuleFinding(
                path=f"{path}.variant",
                got=f"{value.variant} of experiment {value.experiment}",
                allowed=join_values(names),
                change=suggest_nearest(value.variant, names),
            )


@RULES.refuse("reference-acceptance", _TANDEM, "2026-11-21")
def _find_impossible_acceptance(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Only a variant that speculates has an acceptance length."""
    for path, value in _yield_reference_measurements(context):
        experiment = _find_experiment(context, value)
        plain = [variant.name for variant in experiment.all_variants() if variant.mode == "none"] if experiment else []
        if value.acceptance_length is not None and value.variant in plain:
            yield RuleFinding(
                path=f"{path}.acceptance_length", got=f"{value.acceptance_length:g} of {value.variant}, mode none",
                allowed="null: nothing is drafted, so nothing is accepted", change="delete it",
            )  # fmt: skip


@RULES.refuse("reference-figure", _TANDEM, "2026-11-21")
def _find_empty_value(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A reference value holds at least one figure."""
    for path, value in _yield_reference_measurements(context):
        if value.ttft_ms is None and value.tpot_ms is None and value.acceptance_length is None:
            yield RuleFinding(
                path=path, got="no figure", allowed="at least one of ttft_ms, tpot_ms, acceptance_length",
                change="write the run's medians (summary.json), or delete the entry",
            )  # fmt: skip


@RULES.refuse("reference-once", _TANDEM, "2026-11-21")
def _find_repeated_values(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Each variant, class and concurrency has one reference."""
    first_paths: dict[tuple[str, str, str, int], str] = {}
    for path, value in _yield_reference_measurements(context):
        value_key = (value.experiment, value.variant, value.prompt_class, value.concurrency)
        if value_key in first_paths:
            yield RuleFinding(
                path=path,
                got=f"{' '.join(map(str, value_key))} again, as in {first_paths[value_key]}",
                allowed="each once",
                change="delete one",
            )
        first_paths.setdefault(value_key, path)
