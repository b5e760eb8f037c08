"""Rules on subscribers of alarms, and on the reference run for later runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tandem.declarations.environment import ReferenceValue
from tandem.declarations.experiment import Variant
from tandem.rules.contexts import EnvironmentContext
from tandem.rules.rule import RuleFinding, RuleList, index_paths, join_values, suggest_nearest

# protocol -> pattern of the endpoints that SNS accepts, and its description
ENDPOINTS: dict[str, tuple[re.Pattern[str], str]] = {
    "email": (re.compile(r"[^@]+@[^@.]+(\.[^@.]+)+"), "an e-mail address such as oncall@acme.dev"),
    "https": (re.compile(r"https://[^/@]+(/.*)?"), "an https:// URL without a user name"),
    "sqs": (
        re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:\d{12}:[\w-]{1,80}"),
        "the ARN of a standard queue",
    ),
    "lambda": (
        re.compile(r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:[\w:$-]+"),
        "the ARN of a function",
    ),
}

_SNS = "SNS API Reference, Subscribe: Protocol and Endpoint"
_TANDEM = "Tandem's own: an alarm is made from each figure of the reference"
_SUBSCRIPTIONS = "observability.alarm_subscriptions"
RULES = RuleList()


@RULES.refuse("subscription-endpoint", _SNS, "2026-11-21")
def _find_wrong_endpoint(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The endpoint of an alarm's subscriber fits its protocol."""
    for path, subscription in index_paths(
        _SUBSCRIPTIONS, context.environment.observability.alarm_subscriptions
    ):
        pattern, legal = ENDPOINTS[subscription.protocol]
        if not pattern.fullmatch(subscription.endpoint):
            got = f"{subscription.endpoint} with protocol {subscription.protocol}"
            yield RuleFinding(
                f"{path}.endpoint",
                got,
                legal,
                "write one, or the protocol of this endpoint",
            )


@RULES.warn("alarms-heard", "Tandem's own: an alarm that nobody hears stops nothing", "2026-11-21")
def _find_missing_subscribers(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Somebody gets the alarms."""
    if not context.environment.observability.alarm_subscriptions:
        change = "Add one, e.g. `{protocol: email, endpoint: oncall@example.com}`"
        yield RuleFinding(_SUBSCRIPTIONS, "is empty: nobody gets alarms", "", change)


@RULES.refuse_repeats("subscription-once", _SNS, "2026-11-21")
def _list_subscribers(context: EnvironmentContext) -> Iterable[tuple[str, str]]:
    """Each subscriber of the alarms stands once."""
    subscriptions = context.environment.observability.alarm_subscriptions
    return index_paths(
        _SUBSCRIPTIONS, [f"{item.endpoint} by {item.protocol}" for item in subscriptions]
    )


def _yield_references(
    context: EnvironmentContext,
) -> Iterator[tuple[str, ReferenceValue, tuple[Variant, ...]]]:
    """Yield key path, value and experiment's variants; none if malformed or not hosted here."""
    reference = context.environment.observability.reference
    if reference is None:
        return
    variants = {experiment.name: experiment.all_variants() for experiment in context.experiments}
    for path, value in index_paths("observability.reference.values", reference.values):
        yield path, value, variants.get(value.experiment, ())


@RULES.refuse("reference-experiment", _TANDEM, "2026-11-21")
def _find_unknown_experiment(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A reference value belongs to an experiment that the environment hosts."""
    host_names = context.environment.experiments
    for path, value, _ in _yield_references(context):
        if value.experiment not in host_names:
            change = suggest_nearest(value.experiment, host_names)
            yield RuleFinding(
                f"{path}.experiment", value.experiment, join_values(host_names), change
            )


@RULES.refuse("reference-variant", _TANDEM, "2026-11-21")
def _find_unknown_variant(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A reference value belongs to one of its experiment's variants."""
    for path, value, variants in _yield_references(context):
        names = [variant.name for variant in variants]
        if variants and value.variant not in names:
            got = f"{value.variant} of experiment {value.experiment}"
            change = suggest_nearest(value.variant, names)
            yield RuleFinding(f"{path}.variant", got, join_values(names), change)


@RULES.refuse("reference-acceptance", _TANDEM, "2026-11-21")
def _find_impossible_acceptance(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Only a variant that speculates has an acceptance length."""
    for path, value, variants in _yield_references(context):
        plain = [variant.name for variant in variants if variant.mode == "none"]
        if value.acceptance_length is not None and value.variant in plain:
            got = f"{value.acceptance_length:g} of {value.variant}, mode none"
            legal = "null: nothing is drafted, so nothing is accepted"
            yield RuleFinding(f"{path}.acceptance_length", got, legal, "delete it")


@RULES.refuse("reference-figure", _TANDEM, "2026-11-21")
def _find_empty_value(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A reference value holds at least one figure."""
    for path, value, _ in _yield_references(context):
        if value.ttft_ms is None and value.tpot_ms is None and value.acceptance_length is None:
            legal = "at least one of ttft_ms, tpot_ms, acceptance_length"
            yield RuleFinding(
                path,
                "no figure",
                legal,
                "write the run's medians (summary.json), or delete the entry",
            )


@RULES.refuse_repeats("reference-once", _TANDEM, "2026-11-21")
def _list_reference_cells(context: EnvironmentContext) -> Iterator[tuple[str, str]]:
    """Each variant, class and concurrency has one reference."""
    for path, value, _ in _yield_references(context):
        yield path, f"{value.experiment} {value.variant} {value.prompt_class} {value.concurrency}"
