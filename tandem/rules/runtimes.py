"""Which runtimes are known and rendered, and which targets they serve."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import ExperimentContext
from tandem.rules.rule import RuleFinding, RuleList, join_values, suggest_nearest

RULES = RuleList()


@RULES.refuse("runtime-known", "tandem/spec/data/runtimes", "2026-11-21")
def _find_unknown_runtime(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The runtime has a data file."""
    name, runtime_names = context.experiment.runtime, sorted(context.catalogue.runtimes)
    if context.runtime is None:
        yield RuleFinding(
            path="runtime",
            got=repr(name),
            allowed=join_values(runtime_names),
            change=suggest_nearest(name, runtime_names),
        )


@RULES.refuse("runtime-rendered", "tandem/spec/data/runtimes, not_rendered_because", "2026-11-21")
def _find_unrendered_runtime(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The runtime is one that Tandem renders."""
    runtime = context.runtime
    if runtime is None or runtime.rendered:
        return
    runtime_names = [
        name for name, other_runtime in sorted(context.catalogue.runtimes.items()) if other_runtime.rendered
    ]
    yield RuleFinding(
        path="runtime", got=f"{runtime.name!r}, which is not rendered: {runtime.not_rendered_because}",
        allowed=join_values(runtime_names), change="nxdi-v0 for a plain draft model, native for EAGLE3",
        source=runtime.sources[runtime.support.source],
    )  # fmt: skip


@RULES.refuse("target-family", "tandem/spec/data/runtimes, target_families", "2026-11-21")
def _find_unsupported_family(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The runtime serves the target's family."""
    runtime, target = context.runtime, context.target
    if runtime is None or target is None or target.family.value in runtime.target_families.value:
        return
    families = runtime.target_families
    runtime_names = [
        name
        for name, other_runtime in sorted(context.catalogue.runtimes.items())
        if other_runtime.rendered and target.family.value in other_runtime.target_families.value
    ]
    change = (
        f"runtime {runtime_names[0]}, or a target of these families" if runtime_names else "a target of these families"
    )
    yield RuleFinding(
        path="target", got=f"{target.id}, of family {target.family.value}, on runtime {runtime.name}",
        allowed=f"families {join_values(families.value)}", change=change, source=runtime.sources[families.source],
    )  # fmt: skip


def _find_unproven_target(context: ExperimentContext, *, accepts_unproven: bool) -> Iterable[RuleFinding]:
    runtime, target = context.runtime, context.target
    if runtime is None or target is None or context.experiment.accept_unproven != accepts_unproven:
        return
    proven = runtime.proven_targets
    if not proven.value or target.id in proven.value or target.family.value not in runtime.target_families.value:
        return
    yield RuleFinding(
        path="target", got=f"{target.id}, which no source shows on runtime {runtime.name}",
        allowed=join_values(proven.value),
        change="prove it on one node first" if accepts_unproven else "write one of them, or accept_unproven: true",
        source=runtime.sources[proven.source],
    )  # fmt: skip


@RULES.refuse("target-unproven", "tandem/spec/data/runtimes, proven_targets", "2026-11-21")
def _refuse_unproven(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A documented run of the target exists on the runtime, or the experiment says accept_unproven."""
    return _find_unproven_target(context, accepts_unproven=False)


@RULES.warn("target-unproven-accepted", "tandem/spec/data/runtimes, proven_targets", "2026-11-21")
def _warn_unproven(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A target admitted by accept_unproven has no documented run."""
    return _find_unproven_target(context, accepts_unproven=True)


@RULES.warn("image-vulnerable", "aws-neuron/deep-learning-containers README.md", "2026-08-17")
def _find_vulnerable_image(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The runtime's image has no known vulnerabilities."""
    runtime = context.runtime
    if runtime is not None and runtime.image.vulnerabilities.value is not None:
        vulnerabilities = runtime.image.vulnerabilities
        yield RuleFinding(
            path="runtime", got=f"{runtime.name}: {vulnerabilities.value}",
            allowed="an image without known vulnerabilities",
            change="keep its servers inside the cluster, as rendered; use another runtime where its modes suffice",
            source=runtime.sources[vulnerabilities.source],
        )  # fmt: skip
