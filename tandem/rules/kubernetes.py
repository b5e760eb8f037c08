"""Which Kubernetes minors, node images and drivers fit, and what pods may do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Hosting, Stamp
from tandem.spec.platform import Kubernetes, KubernetesMinor


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _legal(known: Kubernetes) -> list[str]:
    floor = _numbers(known.floor.value)
    return sorted((minor for minor in known.minors if _numbers(minor) >= floor), key=_numbers)


def _minor(stamp: Stamp | Hosting) -> KubernetesMinor | None:
    """Return the figures of a legal minor; None where another rule refuses it."""
    version = stamp.environment.cluster.kubernetes
    return stamp.catalogue.kubernetes.minors[version] if version in _legal(stamp.catalogue.kubernetes) else None


def _floor(stamp: Stamp) -> Iterable[Finding]:
    version, known = stamp.environment.cluster.kubernetes, stamp.catalogue.kubernetes
    if _numbers(version) < _numbers(known.floor.value):
        yield Finding(
            path="cluster.kubernetes", got=f'"{version}"',
            allowed=f"{known.floor.value} or newer: {listed(_legal(known))}",
            change=f'write "{known.default.value}"', source=known.sources[known.floor.source],
        )  # fmt: skip


def _known(stamp: Stamp) -> Iterable[Finding]:
    version, known = stamp.environment.cluster.kubernetes, stamp.catalogue.kubernetes
    if version not in known.minors and _numbers(version) >= _numbers(known.floor.value):
        yield Finding(
            path="cluster.kubernetes", got=f'"{version}"', allowed=listed(_legal(known)),
            change=f'write "{known.default.value}", or add the minor to tandem/spec/data/platform/kubernetes.yaml',
        )  # fmt: skip


def _behind(stamp: Stamp) -> Iterable[Finding]:
    version, known, minor = stamp.environment.cluster.kubernetes, stamp.catalogue.kubernetes, _minor(stamp)
    if minor is None or _numbers(version) >= _numbers(known.default.value):
        return
    ends = minor.standard_support_ends
    yield Finding(
        path="cluster.kubernetes",
        got=f'"{version}"' + (f", whose standard support ends {ends.value}" if ends.value else ""),
        allowed=f"{known.default.value} or newer", change=f'write "{known.default.value}"',
        source=known.sources[ends.source],
    )  # fmt: skip


def _release(stamp: Stamp) -> Iterable[Finding]:
    minor = _minor(stamp)
    if minor is not None and minor.ami_release.value is None:
        yield Finding(
            path="cluster.kubernetes",
            got=f'"{stamp.environment.cluster.kubernetes}", whose node image release is not known',
            allowed="a pinned release of AL2023_x86_64_NEURON",
            change="write ami_release.value in tandem/spec/data/platform/kubernetes.yaml; now EKS takes its newest",
            source=stamp.catalogue.kubernetes.sources[minor.ami_release.source],
        )  # fmt: skip


def _addons(stamp: Stamp) -> Iterable[Finding]:
    minor = _minor(stamp)
    unknown = [name for name, figure in minor.addons.items() if figure.value is None] if minor else []
    if minor is not None and unknown:
        yield Finding(
            path="cluster.kubernetes",
            got=f'"{stamp.environment.cluster.kubernetes}", with no known version of {listed(unknown)}',
            allowed="a version of each add-on",
            change="write them in tandem/spec/data/platform/kubernetes.yaml; now EKS takes its default",
            source=stamp.catalogue.kubernetes.sources[minor.addons[unknown[0]].source],
        )  # fmt: skip


def _driver(hosting: Hosting) -> Iterable[Finding]:
    runtime, minor = hosting.trial.runtime, _minor(hosting)
    if runtime is None or minor is None:
        return
    needed, present = runtime.versions.minimum_driver, minor.neuron_driver.value
    if needed.value is None or present is None or _numbers(present) >= _numbers(needed.value):
        return
    known = hosting.catalogue.kubernetes
    fitting = [
        version
        for version in _legal(known)
        if (driver := known.minors[version].neuron_driver.value) and _numbers(driver) >= _numbers(needed.value)
    ]
    yield Finding(
        path=hosting.path, got=hosting.said("runtime", runtime.name) + f", on a node image with driver {present}",
        allowed=f"driver {needed.value} or newer", change=f"write cluster.kubernetes: one of {listed(fitting)}",
        source=runtime.sources[needed.source],
    )  # fmt: skip


def _kubectl_skew(stamp: Stamp) -> Iterable[Finding]:
    kubectl, minor = stamp.catalogue.kubernetes.kubectl, stamp.environment.cluster.kubernetes
    apart = abs(_numbers(minor)[1] - _numbers(kubectl.value)[1])
    if stamp.environment.delivery.kind == "cdk" and _minor(stamp) and apart > 1:
        yield Finding(
            path="cluster.kubernetes", got=f'"{minor}", delivered by kubectl {kubectl.value}',
            allowed="a minor at most one from kubectl's",
            change="move the kubectl layer in requirements.in, stacks/kubectl.py and kubernetes.yaml, then `make lock`",
            source=stamp.catalogue.kubernetes.sources[kubectl.source],
        )  # fmt: skip


def _privileged(stamp: Stamp) -> Iterable[Finding]:
    if stamp.environment.serving.capabilities == "neuron":
        yield Finding(
            path="serving.capabilities",
            got="neuron: SYS_ADMIN and IPC_LOCK in namespaces of pod security `privileged`, which refuses no pod",
            allowed="none or runtime-default, until a node has shown that a server needs more",
            change="write none; after a failure for want of a capability runtime-default, and neuron last",
        )  # fmt: skip


_SUPPORT = "docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html"
_DATA = "tandem/spec/data/platform/kubernetes.yaml"

RULES: tuple[Rule[Any], ...] = (
    Rule(
        id="kubernetes-floor", of=Stamp, severity="refusal", find=_floor,
        sentence="the Kubernetes minor is at or above the floor", source=_SUPPORT, date=date(2026, 11, 21),
    ),
    Rule(
        id="kubernetes-known", of=Stamp, severity="refusal", find=_known,
        sentence="the Kubernetes minor is one whose node image and add-ons are known", source=_DATA,
        date=date(2026, 11, 21),
    ),
    Rule(
        id="kubernetes-behind", of=Stamp, severity="warning", find=_behind,
        sentence="the Kubernetes minor is not older than the default", source=_SUPPORT, date=date(2026, 11, 21),
    ),
    Rule(
        id="node-image-pinned", of=Stamp, severity="warning", find=_release,
        sentence="the node image's release is known, and so pinned", source=_DATA, date=date(2026, 11, 21),
    ),
    Rule(
        id="addons-pinned", of=Stamp, severity="warning", find=_addons,
        sentence="the version of each add-on is known, and so pinned", source=_DATA, date=date(2026, 11, 21),
    ),
    Rule(
        id="driver-minimum", of=Hosting, severity="refusal", find=_driver,
        sentence="the node image's Neuron driver is at least the runtime's minimum",
        source="aws-neuron/aws-neuron-sdk release-notes/components/runtime.rst", date=date(2026, 8, 21),
    ),
    Rule(
        id="kubectl-skew", of=Stamp, severity="refusal", find=_kubectl_skew,
        sentence="the kubectl that the CDK delivers with is at most one minor from the cluster's",
        source="kubernetes.io/releases/version-skew-policy, kubectl", date=date(2026, 11, 22),
    ),
    Rule(
        id="capabilities-few", of=Stamp, severity="warning", find=_privileged,
        sentence="no namespace is of pod security `privileged`",
        source="kubernetes.io/docs/concepts/security/pod-security-standards, Baseline, Capabilities",
        date=date(2026, 11, 22),
    ),
)  # fmt: skip
