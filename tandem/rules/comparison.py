"""What is compared with what, in which suites, and whether the fleet holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date
from typing import Any

from tandem.rules.rule import Finding, Rule
from tandem.rules.subjects import Hosting, Stamp, Trial

# CloudFormation takes a template of 1 MB; a variant and its artifact take up to 27 KB of it
MOST_SENT = 30


def _baseline(trial: Trial) -> Iterable[Finding]:
    if all(arm.variant.mode != "none" for arm in trial.arms):
        yield Finding(
            path="variants", got="no variant with mode none", allowed="one or more with mode none",
            change="add a variant with mode none: nothing is faster than what it is not compared with",
        )  # fmt: skip


def _compared(trial: Trial) -> Iterable[Finding]:
    if len(trial.arms) == 1:
        yield Finding(
            path="variants", got="one variant", allowed="two or more", change="add what the first is compared with",
        )  # fmt: skip


def _distinct(trial: Trial) -> Iterable[Finding]:
    counts = Counter(arm.variant.name for arm in trial.arms)
    seen: set[str] = set()
    for arm in trial.arms:
        name = arm.variant.name
        if name in seen:
            written = any(other.variant.name == name and not other.swept for other in trial.arms)
            change = (
                "write each draft and window once"
                if arm.swept and not written
                else "rename one: it names a Deployment and a Service"
            )
            yield Finding(
                path=arm.name_path, got=f"{name!r}, {counts[name]} times", allowed="each name once", change=change
            )
        seen.add(name)


def _suite_once(trial: Trial) -> Iterable[Finding]:
    suites = trial.experiment.suites
    for index, suite in enumerate(suites):
        if suite in suites[:index]:
            yield Finding(path=f"suites[{index}]", got=f"{suite} again", allowed="each suite once", change="delete one")


def _at_once(hosting: Hosting) -> Iterable[Finding]:
    experiment, total = hosting.trial.experiment, hosting.instance.devices.value
    devices, nodes = experiment.serving.devices, hosting.environment.capacity.nodes
    if experiment.schedule != "simultaneous" or not total or devices > total:
        return
    arms, per_node = len(hosting.trial.arms), total // devices
    if arms > per_node * nodes:
        yield Finding(
            path=hosting.path, got=f"{experiment.name!r}, whose {arms} variants of {devices} devices run all at once",
            allowed=f"at most {per_node * nodes} variants on {nodes} nodes of {total} devices",
            change=f"write schedule: interleaved in the experiment, or capacity.nodes: {-(-arms // per_node)}",
        )  # fmt: skip


def _sent(stamp: Stamp) -> Iterable[Finding]:
    arms = sum(len(experiment.all_variants()) for experiment in stamp.hosted)
    if stamp.environment.delivery.kind == "cdk" and arms > MOST_SENT:
        yield Finding(
            path="experiments", got=f"{arms} variants in all, applied by the CDK",
            allowed=f"at most {MOST_SENT} variants with delivery cdk",
            change="host fewer experiments here, shorten a sweep, or write delivery.kind: gitops",
        )  # fmt: skip


_OWN = "Tandem's own: what an experiment is"

RULES: tuple[Rule[Any], ...] = (
    Rule(
        id="baseline", of=Trial, severity="refusal", find=_baseline,
        sentence="an experiment has a variant without speculation to compare with", source=_OWN,
        date=date(2026, 11, 21),
    ),
    Rule(
        id="two-variants", of=Trial, severity="warning", find=_compared,
        sentence="an experiment compares at least two variants", source=_OWN, date=date(2026, 11, 21),
    ),
    Rule(
        id="variant-once", of=Trial, severity="refusal", find=_distinct,
        sentence="each variant's name stands once, swept ones included",
        source="kubernetes.io/docs/concepts/overview/working-with-objects/names", date=date(2026, 11, 21),
    ),
    Rule(
        id="suite-once", of=Trial, severity="refusal", find=_suite_once,
        sentence="each suite stands once", source=_OWN, date=date(2026, 11, 21),
    ),
    Rule(
        id="variants-sent", of=Stamp, severity="refusal", find=_sent,
        sentence=f"with delivery cdk the hosted experiments have at most {MOST_SENT} variants together",
        source="docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html: a template's size",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="arms-at-once", of=Hosting, severity="refusal", find=_at_once,
        sentence="with schedule simultaneous the fleet holds every variant at once",
        source="Tandem's own: a claim is bound to one node", date=date(2026, 11, 21),
    ),
)  # fmt: skip
