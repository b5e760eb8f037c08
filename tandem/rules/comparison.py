"""What is compared with what, in which suites, and whether the fleet holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tandem.rules.contexts import EnvironmentContext, ExperimentContext, HostingContext
from tandem.rules.rule import RuleFinding, RuleList

# CloudFormation takes a template of 1 MB; a variant and its artifact take up to 27 KB of it
MAX_CDK_VARIANTS = 30

_OWN = "Tandem's own: what an experiment is"
RULES = RuleList()


@RULES.refuse("baseline", _OWN, "2026-11-21")
def _find_missing_baseline(context: ExperimentContext) -> Iterable[RuleFinding]:
    """An experiment has a variant without speculation to compare with."""
    if all(arm.variant.mode != "none" for arm in context.arms):
        yield RuleFinding(
            path="variants", got="no variant with mode none", allowed="one or more with mode none",
            change="add a variant with mode none: nothing is faster than what it is not compared with",
        )  # fmt: skip


@RULES.warn("two-variants", _OWN, "2026-11-21")
def _find_single_variant(context: ExperimentContext) -> Iterable[RuleFinding]:
    """An experiment compares at least two variants."""
    if len(context.arms) == 1:
        yield RuleFinding(
            path="variants", got="one variant", allowed="two or more", change="add what the first is compared with",
        )  # fmt: skip


@RULES.refuse("variant-once", "kubernetes.io/docs/concepts/overview/working-with-objects/names", "2026-11-21")
def _find_repeated_names(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Each variant's name stands once, swept ones included."""
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


@RULES.refuse("suite-once", _OWN, "2026-11-21")
def _find_repeated_suites(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Each suite stands once."""
    suites = context.experiment.suites
    for index, suite in enumerate(suites):
        if suite in suites[:index]:
            yield RuleFinding(
                path=f"suites[{index}]", got=f"{suite} again", allowed="each suite once", change="delete one"
            )


@RULES.refuse("arms-at-once", "Tandem's own: a claim is bound to one node", "2026-11-21")
def _find_excess_arms(context: HostingContext) -> Iterable[RuleFinding]:
    """With schedule simultaneous the fleet holds every variant at once."""
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


@RULES.refuse(
    "variants-sent",
    "docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html: a template's size",
    "2026-11-21",
    sentence=f"With delivery cdk the hosted experiments have at most {MAX_CDK_VARIANTS} variants together.",
)
def _find_excess_variants(context: EnvironmentContext) -> Iterable[RuleFinding]:
    arms = sum(len(experiment.all_variants()) for experiment in context.experiments)
    if context.environment.delivery.kind == "cdk" and arms > MAX_CDK_VARIANTS:
        yield RuleFinding(
            path="experiments", got=f"{arms} variants in all, applied by the CDK",
            allowed=f"at most {MAX_CDK_VARIANTS} variants with delivery cdk",
            change="host fewer experiments here, shorten a sweep, or write delivery.kind: gitops",
        )  # fmt: skip
