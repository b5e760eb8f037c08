"""Which runtimes are known and rendered, and which targets they serve."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from tandem.rules.rule import Finding, Rule, listed, nearest
from tandem.rules.subjects import Trial


def _known(trial: Trial) -> Iterable[Finding]:
    name, known = trial.experiment.runtime, sorted(trial.catalogue.runtimes)
    if trial.runtime is None:
        yield Finding(path="runtime", got=repr(name), allowed=listed(known), change=nearest(name, known))


def _rendered(trial: Trial) -> Iterable[Finding]:
    runtime = trial.runtime
    if runtime is None or runtime.rendered:
        return
    rendered = [name for name, other in sorted(trial.catalogue.runtimes.items()) if other.rendered]
    yield Finding(
        path="runtime", got=f"{runtime.name!r}, which is not rendered: {runtime.not_rendered_because}",
        allowed=listed(rendered), change="nxdi-v0 for a plain draft model, native for EAGLE3",
        source=runtime.sources[runtime.support.source],
    )  # fmt: skip


def _target_family(trial: Trial) -> Iterable[Finding]:
    runtime, target = trial.runtime, trial.target
    if runtime is None or target is None or target.family.value in runtime.target_families.value:
        return
    families = runtime.target_families
    others = [
        name
        for name, other in sorted(trial.catalogue.runtimes.items())
        if other.rendered and target.family.value in other.target_families.value
    ]
    change = f"runtime {others[0]}, or a target of these families" if others else "a target of these families"
    yield Finding(
        path="target", got=f"{target.id}, of family {target.family.value}, on runtime {runtime.name}",
        allowed=f"families {listed(families.value)}", change=change, source=runtime.sources[families.source],
    )  # fmt: skip


def _target_unproven(trial: Trial, *, accepted: bool) -> Iterable[Finding]:
    runtime, target = trial.runtime, trial.target
    if runtime is None or target is None or trial.experiment.accept_unproven != accepted:
        return
    proven = runtime.proven_targets
    if not proven.value or target.id in proven.value or target.family.value not in runtime.target_families.value:
        return
    yield Finding(
        path="target", got=f"{target.id}, which no source shows on runtime {runtime.name}",
        allowed=listed(proven.value),
        change="prove it on one node first" if accepted else "write one of them, or accept_unproven: true",
        source=runtime.sources[proven.source],
    )  # fmt: skip


def _refuse_unproven(trial: Trial) -> Iterable[Finding]:
    return _target_unproven(trial, accepted=False)


def _warn_unproven(trial: Trial) -> Iterable[Finding]:
    return _target_unproven(trial, accepted=True)


def _supported(trial: Trial) -> Iterable[Finding]:
    runtime = trial.runtime
    if runtime is not None and runtime.image.vulnerabilities.value is not None:
        vulnerabilities = runtime.image.vulnerabilities
        yield Finding(
            path="runtime", got=f"{runtime.name}: {vulnerabilities.value}",
            allowed="an image without known vulnerabilities",
            change="keep its servers inside the cluster, as rendered; use another runtime where its modes suffice",
            source=runtime.sources[vulnerabilities.source],
        )  # fmt: skip


RULES: tuple[Rule[Trial], ...] = (
    Rule(
        id="runtime-known", of=Trial, severity="refusal", find=_known,
        sentence="the runtime has a data file",
        source="tandem/spec/data/runtimes", date=date(2026, 11, 21),
    ),
    Rule(
        id="runtime-rendered", of=Trial, severity="refusal", find=_rendered,
        sentence="the runtime is one that Tandem renders",
        source="tandem/spec/data/runtimes, not_rendered_because",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="target-family", of=Trial, severity="refusal", find=_target_family,
        sentence="the runtime serves the target's family",
        source="tandem/spec/data/runtimes, target_families", date=date(2026, 11, 21),
    ),
    Rule(
        id="target-unproven", of=Trial, severity="refusal", find=_refuse_unproven,
        sentence="a documented run of the target exists on the runtime, or the experiment says accept_unproven",
        source="tandem/spec/data/runtimes, proven_targets", date=date(2026, 11, 21),
    ),
    Rule(
        id="target-unproven-accepted", of=Trial, severity="warning", find=_warn_unproven,
        sentence="a target admitted by accept_unproven has no documented run",
        source="tandem/spec/data/runtimes, proven_targets", date=date(2026, 11, 21),
    ),
    Rule(
        id="image-vulnerable", of=Trial, severity="warning", find=_supported,
        sentence="the runtime's image has no known vulnerabilities",
        source="aws-neuron/deep-learning-containers README.md", date=date(2026, 8, 17),
    ),
)  # fmt: skip
