"""What is compared with what, in which suites, and whether the fleet holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date
from typing import Any

from tandem.rules.contexts import EnvironmentContext, ExperimentContext, HostingContext
from tandem.rules.rule import Rule, RuleFinding

# CloudFormation takes a template of 1 MB; a variant and its artifact take up to 27 KB of it
MAX_CDK_VARIANTS = 30


def _find_missing_baseline(context: ExperimentContext) -> Iterable[RuleFinding]:
    if all(arm.variant.mode != "none" for arm in context.arms):
        yield RuleFinding(
            path="variants", got="no variant with mode none", allowed="one or more with mode none",
            change="add a variant with mode none: nothing is faster than what it is not compared with",
        )  # fmt: skip


def _find_single_variant(context: ExperimentContext) -> Iterable[RuleFinding]:
    if len(context.arms) == 1:
        yield RuleFinding(
            path="variants", got="one variant", allowed="two or more", change="add what the first is compared with",
        )  # fmt: skip


def _find_repeated_names(context: ExperimentContext) -> Iterable[RuleFinding]:
    counts = Counter(arm.variant.name for arm in context.arms)
    earlier_names: set[str] = set()
    for arm in context.arms:
        name = arm.variant.name
        if name in earlier_names:
            is_written = any(other_arm.variant.name == name and not other_arm.is_swept for other_arm in context.arms)
            change = (
                "write each draft and window once"
                if arm.is_swept and not is_written
                else "rename one: it names a Deployment and a Service"
            )
            yield RuleFinding(
                path=arm.name_path, got=f"{name!r}, {counts[name]} times", allowed="each name once", change=change
            )
        earlier_names.add(name)


def _find_repeated_suites(context: ExperimentContext) -> Iterable[RuleFinding]:
    suites = context.experiment.suites
    for index, suite in enumerate(suites):
        if suite in suites[:index]:
            yield RuleFinding(
                path=f"suites[{index}]", got=f"{suite} again", allowed="each suite once", change="delete one"
            )


def _find_excess_arms(context: HostingContext) -> Iterable[RuleFinding]:
    experiment, total = context.experiment_context.experiment, context.instance.devices.value
    devices, nodes = experiment.serving.devices, context.environment.capacity.nodes
    if experiment.schedule != "simultaneous" or not total or devices > total:
        return
    arms, per_node = len(context.experiment_context.arms), total // devices
    if arms > per_node * nodes:
        yield RuleFinding(
            path=context.path, got=f"{experiment.name!r}, whose {arms} variants of {devices} devices run all at once",
            allowed=f"at most {per_node * nodes} variants on {nodes} nodes of {total} devices",
            change=f"write schedule: interleaved in the experiment, or capacity.nodes: {-(-arms // per_node)}",
        )  # fmt: skip


def _find_excess_variants(context: EnvironmentContext) -> Iterable[RuleFinding]:
    arms = sum(len(experiment.all_variants()) for experiment in context.experiments)
    if context.environment.delivery.kind == "cdk" and arms > MAX_CDK_VARIANTS:
        yield RuleFinding(
            path="experiments", got=f"{arms} variants in all, applied by the CDK",
            allowed=f"at most {MAX_CDK_VARIANTS} variants with delivery cdk",
            change="host fewer experiments here, shorten a sweep, or write delivery.kind: gitops",
        )  # fmt: skip


_OWN = "Tandem's own: what an experiment is"

RULES: tuple[Rule[Any], ...] = (
    Rule(
        id="baseline", context_type=ExperimentContext, severity="refusal", find=_find_missing_baseline,
        sentence="an experiment has a variant without speculation to compare with", source=_OWN,
        date=date(2026, 11, 21),
    ),
    Rule(
        id="two-variants", context_type=ExperimentContext, severity="warning", find=_find_single_variant,
        sentence="an experiment compares at least two variants", source=_OWN, date=date(2026, 11, 21),
    ),
    Rule(
        id="variant-once", context_type=ExperimentContext, severity="refusal", find=_find_repeated_names,
        sentence="each variant's name stands once, swept ones included",
        source="kubernetes.io/docs/concepts/overview/working-with-objects/names", date=date(2026, 11, 21),
    ),
    Rule(
        id="suite-once", context_type=ExperimentContext, severity="refusal", find=_find_repeated_suites,
        sentence="each suite stands once", source=_OWN, date=date(2026, 11, 21),
    ),
    Rule(
        id="variants-sent", context_type=EnvironmentContext, severity="refusal", find=_find_excess_variants,
        sentence=f"with delivery cdk the hosted experiments have at most {MAX_CDK_VARIANTS} variants together",
        source="docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html: a template's size",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="arms-at-once", context_type=HostingContext, severity="refusal", find=_find_excess_arms,
        sentence="with schedule simultaneous the fleet holds every variant at once",
        source="Tandem's own: a claim is bound to one node", date=date(2026, 11, 21),
    ),
)  # fmt: skip
