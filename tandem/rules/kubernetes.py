"""Which Kubernetes minors, node images and drivers fit, and what pods may do."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import EnvironmentContext, HostingContext
from tandem.rules.rule import RuleFinding, RuleList, join_values
from tandem.spec.platform import KubernetesMinor, KubernetesTable

_SUPPORT = "docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html"
_DATA = "tandem/spec/data/platform/kubernetes.yaml"
RULES = RuleList()


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _legal_minors(kubernetes: KubernetesTable) -> list[str]:
    floor = _version_numbers(kubernetes.floor.value)
    return sorted((minor for minor in kubernetes.minors if _version_numbers(minor) >= floor), key=_version_numbers)


def _minor_figures(context: EnvironmentContext | HostingContext) -> KubernetesMinor | None:
    """Return the figures of a legal minor; None where another rule refuses it."""
    version = context.environment.cluster.kubernetes
    return (
        context.catalogue.kubernetes.minors[version] if version in _legal_minors(context.catalogue.kubernetes) else None
    )


@RULES.refuse("kubernetes-floor", _SUPPORT, "2026-11-21")
def _find_old_minor(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The Kubernetes minor is at or above the floor."""
    version, kubernetes = context.environment.cluster.kubernetes, context.catalogue.kubernetes
    if _version_numbers(version) < _version_numbers(kubernetes.floor.value):
        yield RuleFinding(
            path="cluster.kubernetes", got=f'"{version}"',
            allowed=f"{kubernetes.floor.value} or newer: {join_values(_legal_minors(kubernetes))}",
            change=f'write "{kubernetes.default.value}"', source=kubernetes.sources[kubernetes.floor.source],
        )  # fmt: skip


@RULES.refuse("kubernetes-known", _DATA, "2026-11-21")
def _find_unknown_minor(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The Kubernetes minor is one whose node image and add-ons are known."""
    version, kubernetes = context.environment.cluster.kubernetes, context.catalogue.kubernetes
    if version not in kubernetes.minors and _version_numbers(version) >= _version_numbers(kubernetes.floor.value):
        yield RuleFinding(
            path="cluster.kubernetes", got=f'"{version}"', allowed=join_values(_legal_minors(kubernetes)),
            change=f'write "{kubernetes.default.value}", or add the minor to tandem/spec/data/platform/kubernetes.yaml',
        )  # fmt: skip


@RULES.warn("kubernetes-behind", _SUPPORT, "2026-11-21")
def _find_minor_behind_default(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The Kubernetes minor is not older than the default."""
    version, kubernetes, minor = (
        context.environment.cluster.kubernetes,
        context.catalogue.kubernetes,
        _minor_figures(context),
    )
    if minor is None or _version_numbers(version) >= _version_numbers(kubernetes.default.value):
        return
    ends = minor.standard_support_ends
    yield RuleFinding(
        path="cluster.kubernetes",
        got=f'"{version}"' + (f", whose standard support ends {ends.value}" if ends.value else ""),
        allowed=f"{kubernetes.default.value} or newer", change=f'write "{kubernetes.default.value}"',
        source=kubernetes.sources[ends.source],
    )  # fmt: skip


@RULES.warn("node-image-pinned", _DATA, "2026-11-21")
def _find_unpinned_release(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The node image's release is known, and so pinned."""
    minor = _minor_figures(context)
    if minor is not None and minor.ami_release.value is None:
        yield RuleFinding(
            path="cluster.kubernetes",
            got=f'"{context.environment.cluster.kubernetes}", whose node image release is not known',
            allowed="a pinned release of AL2023_x86_64_NEURON",
            change="write ami_release.value in tandem/spec/data/platform/kubernetes.yaml; now EKS takes its newest",
            source=context.catalogue.kubernetes.sources[minor.ami_release.source],
        )  # fmt: skip


@RULES.warn("addons-pinned", _DATA, "2026-11-21")
def _find_unpinned_addons(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The version of each add-on is known, and so pinned."""
    minor = _minor_figures(context)
    unknown = [name for name, figure in minor.addons.items() if figure.value is None] if minor else []
    if minor is not None and unknown:
        yield RuleFinding(
            path="cluster.kubernetes",
            got=f'"{context.environment.cluster.kubernetes}", with no known version of {join_values(unknown)}',
            allowed="a version of each add-on",
            change="write them in tandem/spec/data/platform/kubernetes.yaml; now EKS takes its default",
            source=context.catalogue.kubernetes.sources[minor.addons[unknown[0]].source],
        )  # fmt: skip


@RULES.refuse("driver-minimum", "aws-neuron/aws-neuron-sdk release-notes/components/runtime.rst", "2026-08-21")
def _find_old_driver(context: HostingContext) -> Iterable[RuleFinding]:
    """The node image's Neuron driver is at least the runtime's minimum."""
    runtime, minor = context.experiment_context.runtime, _minor_figures(context)
    if runtime is None or minor is None:
        return
    minimum_driver, image_driver = runtime.versions.minimum_driver, minor.neuron_driver.value
    if (
        minimum_driver.value is None
        or image_driver is None
        or _version_numbers(image_driver) >= _version_numbers(minimum_driver.value)
    ):
        return
    kubernetes = context.catalogue.kubernetes
    fitting = [
        version
        for version in _legal_minors(kubernetes)
        if (driver := kubernetes.minors[version].neuron_driver.value)
        and _version_numbers(driver) >= _version_numbers(minimum_driver.value)
    ]
    yield RuleFinding(
        path=context.path,
        got=context.format_value("runtime", runtime.name) + f", on a node image with driver {image_driver}",
        allowed=f"driver {minimum_driver.value} or newer",
        change=f"write cluster.kubernetes: one of {join_values(fitting)}",
        source=runtime.sources[minimum_driver.source],
    )


@RULES.refuse("kubectl-skew", "kubernetes.io/releases/version-skew-policy, kubectl", "2026-11-22")
def _find_kubectl_skew(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The kubectl that the CDK delivers with is at most one minor from the cluster's."""
    kubectl, minor = context.catalogue.kubernetes.kubectl, context.environment.cluster.kubernetes
    skew = abs(_version_numbers(minor)[1] - _version_numbers(kubectl.value)[1])
    if context.environment.delivery.kind == "cdk" and _minor_figures(context) and skew > 1:
        yield RuleFinding(
            path="cluster.kubernetes", got=f'"{minor}", delivered by kubectl {kubectl.value}',
            allowed="a minor at most one from kubectl's",
            change="move the kubectl layer in requirements.in, stacks/kubectl.py and kubernetes.yaml, then `make lock`",
            source=context.catalogue.kubernetes.sources[kubectl.source],
        )  # fmt: skip


@RULES.warn(
    "capabilities-few",
    "kubernetes.io/docs/concepts/security/pod-security-standards, Baseline, Capabilities",
    "2026-11-22",
)
def _find_privileged_pods(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """No namespace is of pod security `privileged`."""
    if context.environment.serving.capabilities == "neuron":
        yield RuleFinding(
            path="serving.capabilities",
            got="neuron: SYS_ADMIN and IPC_LOCK in namespaces of pod security `privileged`, which refuses no pod",
            allowed="none or runtime-default, until a node has shown that a server needs more",
            change="write none; after a failure for want of a capability runtime-default, and neuron last",
        )  # fmt: skip
