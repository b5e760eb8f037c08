"""Rules on Kubernetes minors, node images and drivers, and on the sources of images and models."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.declarations.images import PRIVATE_ECR, ImageUse, apply_mirror, list_image_uses
from tandem.declarations.platform import KubernetesMinor, KubernetesTable, cut_driver
from tandem.declarations.project_image import LLMPERF, list_hosted_images
from tandem.rules.contexts import EnvironmentContext, ExperimentContext, HostingContext, look_up
from tandem.rules.rule import DATA, NEURON_SDK, RuleFinding, RuleList, join_values
from tandem.shell_command import quote_command

BY_HAND = "stage them by hand, `python -m tandem.artifacts stage --from DIR`, which asks no hub"
BUILD_ELSEWHERE = (
    "write builds_in_vpc: false, for builds in AWS's own network;"
    " what you pushed by hand is not built (docs/image.md)"
)

_SUPPORT = "docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html"
_MINORS = f"{DATA}/platform/kubernetes.yaml"
_CAPABILITIES = (
    "kubernetes.io/docs/concepts/security/pod-security-standards, Baseline, Capabilities"
)
_ECR = "docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html"
_NAT = (
    "docs.aws.amazon.com/vpc/latest/userguide/vpc-nat-gateway.html:"
    " the public hub is on the internet"
)
RULES = RuleList()


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _list_minors(kubernetes: KubernetesTable) -> list[str]:
    """Return the known minors at or above the floor."""
    floor = _parse_version(kubernetes.floor.value)
    return sorted(
        (minor for minor in kubernetes.minors if _parse_version(minor) >= floor), key=_parse_version
    )


def _find_minor(context: EnvironmentContext | HostingContext) -> KubernetesMinor:
    """Return the figures of the environment's minor; unknown if below the floor or without data."""
    version = context.environment.cluster.kubernetes
    kubernetes = context.catalogue.kubernetes
    return look_up({minor: kubernetes.minors[minor] for minor in _list_minors(kubernetes)}, version)


@RULES.refuse("kubernetes-floor", _SUPPORT, "2026-11-21")
def _find_old_minor(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The Kubernetes minor is at or above the floor."""
    version = context.environment.cluster.kubernetes
    kubernetes = context.catalogue.kubernetes
    floor = kubernetes.floor
    if _parse_version(version) < _parse_version(floor.value):
        legal = f"{floor.value} or newer: {join_values(_list_minors(kubernetes))}"
        change = f'write "{kubernetes.default.value}"'
        yield RuleFinding("cluster.kubernetes", f'"{version}"', legal, change, floor)


@RULES.refuse("kubernetes-known", _MINORS, "2026-11-21")
def _find_unknown_minor(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The Kubernetes minor is one whose node image and add-ons are known."""
    version = context.environment.cluster.kubernetes
    kubernetes = context.catalogue.kubernetes
    if version not in kubernetes.minors and _parse_version(version) >= _parse_version(
        kubernetes.floor.value
    ):
        change = f'write "{kubernetes.default.value}", or add the minor to {_MINORS}'
        yield RuleFinding(
            "cluster.kubernetes", f'"{version}"', join_values(_list_minors(kubernetes)), change
        )


@RULES.warn("kubernetes-behind", _SUPPORT, "2026-11-21")
def _find_minor_behind_default(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The Kubernetes minor is not older than the default."""
    version = context.environment.cluster.kubernetes
    kubernetes = context.catalogue.kubernetes
    minor = _find_minor(context)
    default = kubernetes.default.value
    if _parse_version(version) < _parse_version(default):
        ends = minor.standard_support_ends
        got = f'"{version}"'
        if ends.value:
            got += f", whose standard support ends {ends.value}"
        change = f'write "{default}"'
        yield RuleFinding("cluster.kubernetes", got, f"{default} or newer", change, ends)


@RULES.warn("node-image-pinned", _MINORS, "2026-11-21")
def _find_unpinned_release(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The node image's release is known, and so pinned."""
    cluster = context.environment.cluster
    if cluster.ami_release is None and _find_minor(context).default_release is None:
        got = f'"{cluster.kubernetes}", whose node image release is not known'
        change = "write cluster.ami_release; now EKS takes its newest"
        yield RuleFinding(
            "cluster.kubernetes", got, "a pinned release of AL2023_x86_64_NEURON", change
        )


@RULES.refuse(
    "node-image-minor",
    "docs.aws.amazon.com/eks/latest/APIReference/API_Nodegroup.html",
    "2026-11-28",
)
def _find_foreign_release(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The node image is of the cluster's Kubernetes minor."""
    version = context.environment.cluster.kubernetes
    release = context.environment.cluster.ami_release
    if release is not None and not release.startswith(f"{version}."):
        known = join_values(_find_minor(context).ami_releases)
        yield RuleFinding(
            "cluster.ami_release", release, f"a release of {version}: {known}", "write one of them"
        )


@RULES.warn("addons-pinned", _MINORS, "2026-11-21")
def _find_unpinned_addons(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The version of each add-on is known, and so pinned."""
    minor = _find_minor(context)
    version = context.environment.cluster.kubernetes
    unknown = {name: figure for name, figure in minor.addons.items() if figure.value is None}
    if unknown:
        got = f'"{version}", with no known version of {join_values(unknown)}'
        change = f"write them in {_MINORS}; now EKS takes its default"
        source = next(iter(unknown.values()))
        yield RuleFinding("cluster.kubernetes", got, "a version of each add-on", change, source)


def _find_driver(context: HostingContext) -> tuple[str, str | None]:
    """Return the release of the node image and its Neuron driver; None if no source has it."""
    minor = _find_minor(context)
    release = context.environment.cluster.ami_release or minor.default_release
    return release or "EKS's newest", minor.find_driver(release)


@RULES.refuse(
    "driver-starts",
    f"{NEURON_SDK} release-notes/components/runtime.rst, known issues",
    "2026-08-21",
)
def _find_refusing_driver(context: HostingContext) -> Iterable[RuleFinding]:
    """The runtime is not known to refuse the node image's Neuron driver."""
    refusing = context.runtime.versions.refusing_drivers
    release, driver = _find_driver(context)
    if driver is None or cut_driver(driver) not in refusing.value:
        return
    fits = _find_minor(context).list_releases(refusing.value)
    got = f"{context.runtime.name}, which driver {driver} of node image {release} does not start"
    legal = f"a driver other than {join_values(refusing.value)}"
    change = "write another runtime"
    if fits:
        change = f"write cluster.ami_release: one of {join_values(fits)}"
    yield context.find("runtime", got, legal, change, refusing)


@RULES.warn("driver-released", f"{NEURON_SDK} release-notes/components/index.rst", "2026-10-19")
def _find_old_driver(context: HostingContext) -> Iterable[RuleFinding]:
    """The node image's Neuron driver is no older than the one the runtime's SDK came with."""
    versions = context.runtime.versions
    minor = _find_minor(context)
    release, driver = _find_driver(context)
    if driver is not None and _parse_version(driver) >= _parse_version(versions.driver.value):
        return
    own_driver = versions.driver.value
    name = context.runtime.name
    got = (
        f"{name}, whose SDK {versions.sdk.value} came with"
        f" driver {own_driver}, on node image {release}"
    )
    got += f" with driver {driver}" if driver else ", whose driver is not known"
    legal = f"driver {own_driver} or newer; with an older one it is unproven"
    fits = [
        known
        for known in minor.list_releases(versions.refusing_drivers.value)
        if _parse_version(minor.find_driver(known) or "0") >= _parse_version(own_driver)
    ]
    change = f"write cluster.ami_release: {fits[0] if fits else 'a release with this driver'}"
    if not fits and minor.newest_release not in {None, release}:
        newest_driver = minor.find_driver(minor.newest_release) or "not read"
        change += (
            f"; the newest that is known is {minor.newest_release}, its driver {newest_driver}"
        )
    yield context.find("runtime", got, legal, change, versions.driver)


@RULES.warn("runtime-supported", f"{NEURON_SDK} about-neuron/announcements", "2026-11-28")
def _find_ending_support(context: ExperimentContext) -> Iterable[RuleFinding]:
    """No end of support is announced for the runtime."""
    ends = context.runtime.support_ends
    if ends.value is not None:
        supported = [
            name
            for name, row in context.catalogue.runtimes.items()
            if row.support_ends.value is None
        ]
        command = quote_command(
            "tandem", "migrate", context.experiment.name, "--runtime", *supported[:1]
        )
        got = (
            f"{context.experiment.runtime},"
            f" which {ends.value} ends support for; the way out: {command}"
        )
        change = "see what the move changes and what is lost, then add --write"
        yield RuleFinding("runtime", got, join_values(supported), change, ends)


@RULES.refuse("kubectl-skew", "kubernetes.io/releases/version-skew-policy, kubectl", "2026-11-22")
def _find_kubectl_skew(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The kubectl that the CDK delivers with is at most one minor from the cluster's."""
    kubernetes = context.catalogue.kubernetes
    version = context.environment.cluster.kubernetes
    skew = abs(_parse_version(version)[1] - _parse_version(kubernetes.kubectl.value)[1])
    if context.environment.delivery.kind == "cdk" and _find_minor(context) and skew > 1:
        got = f'"{version}", delivered by kubectl {kubernetes.kubectl.value}'
        source = kubernetes.kubectl
        change = (
            "move the kubectl layer in pyproject.toml,"
            " stacks/kubectl.py and kubernetes.yaml, then `make lock`"
        )
        yield RuleFinding(
            "cluster.kubernetes", got, "a minor at most one from kubectl's", change, source
        )


@RULES.warn("capabilities-few", _CAPABILITIES, "2026-11-22")
def _find_privileged_pods(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """No namespace has pod security `privileged`."""
    if context.environment.serving.capabilities == "neuron":
        got = (
            "neuron: SYS_ADMIN and IPC_LOCK in namespaces of"
            " pod security `privileged`, which refuses no pod"
        )
        legal = "none or runtime-default, until a node has shown that a server needs more"
        change = (
            "write none; after a failure that names a missing"
            " capability runtime-default, and neuron last"
        )
        yield RuleFinding("serving.capabilities", got, legal, change)


def _list_uses(context: EnvironmentContext) -> list[ImageUse]:
    experiments = [
        experiment
        for experiment in context.experiments
        if experiment.runtime in context.catalogue.runtimes
    ]
    return list_image_uses(context.environment, experiments, context.catalogue)


@RULES.warn("images-pinned", f"{DATA}/platform/digests.yaml", "2026-11-21")
def _find_unpinned_images(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Every image is pinned by digest."""
    references = [
        use.reference for use in _list_uses(context) if use.kind == "image" and use.digest is None
    ]
    if references:
        got = f"use {len(references)} images that are not pinned: {join_values(references)}"
        change = (
            "Run `tandem images --resolve` where the registries can be reached,"
            " and commit what it writes"
        )
        yield RuleFinding("experiments", got, "", change)


@RULES.refuse(
    "mirrors-complete", "Tandem's own: one forgotten registry stops a closed cluster", "2026-11-21"
)
def _find_unmirrored_images(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """If one mirror is declared, every image and chart has one."""
    if not context.environment.registry_mirrors:
        return
    bare_by_host: dict[str, list[str]] = {}
    for use in _list_uses(context):
        references = bare_by_host.setdefault(use.registry, [])
        if use.mirrored == use.reference:
            references.append(use.reference)
    for host, references in bare_by_host.items():
        if references:
            got = f"no mirror for {join_values(references)}"
            legal = f"a mirror for each of {join_values(bare_by_host)}"
            yield RuleFinding("registry_mirrors", got, legal, f"add `{host}: YOUR-MIRROR/{host}`")


@RULES.warn("mirrors-closed", f"{_ECR}: none for public.ecr.aws", "2026-11-21")
def _find_missing_mirrors(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A network without NAT declares registry mirrors."""
    if context.is_closed() and not context.environment.registry_mirrors:
        hosts = dict.fromkeys(use.registry for use in _list_uses(context))
        got = "no mirrors with network.nat none"
        legal = f"a mirror for each of {join_values(hosts)}"
        change = (
            "add mirrors in private ECR, or another way out of the VPC:"
            " these registries have no VPC endpoint"
        )
        yield RuleFinding("registry_mirrors", got, legal, change)


@RULES.warn("mirrors-seeded", f"{_ECR}, considerations", "2026-11-22")
def _find_unseeded_mirrors(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """If the VPC has no way out, its mirrors in private ECR are filled beforehand."""
    mirrors = [
        mirror
        for mirror in context.environment.registry_mirrors.values()
        if PRIVATE_ECR.match(mirror)
    ]
    if context.is_closed() and mirrors:
        legal = (
            "mirrors that hold every image:"
            " a pull-through cache fetches nothing for a VPC without a way out"
        )
        change = (
            f"run the commands that `tandem images {context.environment.name} --seed` prints, on a"
            " machine that reaches the internet"
        )
        yield RuleFinding(
            "registry_mirrors", f"{join_values(mirrors)} with network.nat none", legal, change
        )


@RULES.refuse(
    "builds-reach", "Tandem's own: images/*/Dockerfile, what a build downloads", "2026-11-28"
)
def _find_unreachable_sources(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A build in a network without NAT reaches all it fetches: base, packages, llmperf archive."""
    environment = context.environment
    if not (environment.builds_in_vpc and context.is_closed()):
        return
    closed = "builds_in_vpc and network.nat none"
    bases = {image.base().reference for image in list_hosted_images(context.experiments)}
    bare_bases = sorted(
        base for base in bases if apply_mirror(base, environment.registry_mirrors) == base
    )
    if bare_bases:
        legal = "a mirror in private ECR: a public registry has no VPC endpoint"
        got = f"no mirror for {join_values(bare_bases)}, the images' base, with {closed}"
        yield RuleFinding("registry_mirrors", got, legal, BUILD_ELSEWHERE)
    if environment.package_index is None:
        got = f"null, the public index, with {closed}"
        legal = "an index that the VPC reaches"
        yield RuleFinding("package_index", got, legal, f"name one, or {BUILD_ELSEWHERE}")
    if LLMPERF in list_hosted_images(context.experiments):
        got = (
            "true with network.nat none and an experiment under llmperf,"
            " whose image is built with files from GitHub and npm"
        )
        yield RuleFinding(
            "builds_in_vpc", got, "false, or another way out of the VPC", BUILD_ELSEWHERE
        )


@RULES.warn("hub-token", f"{DATA}/models, gated", "2026-11-21")
def _find_missing_token(context: HostingContext) -> Iterable[RuleFinding]:
    """Where a gated model is hosted, the environment names the secret of the hub's token."""
    models = [model for model in context.models().values() if model.gated.value]
    if models and context.environment.hub.token_secret is None:
        ids = join_values(model.id for model in models)
        got = f"{context.experiment.name!r}, whose {ids} the hub gives to a token only"
        change = (
            "put a token into a secret of Secrets Manager"
            f" and write its name in hub.token_secret, or {BY_HAND}"
        )
        legal = "hub.token_secret, where models are gated"
        source = models[0].gated
        yield RuleFinding(context.path, got, legal, change, source)


@RULES.warn("hub-reached", _NAT, "2026-11-21")
def _find_unreachable_hub(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A network without NAT names a hub that it reaches."""
    if context.is_closed() and context.environment.hub.endpoint is None:
        got = "null, the public hub, with network.nat none"
        legal = "a hub that the VPC can reach"
        yield RuleFinding(
            "hub.endpoint", got, legal, f"write the endpoint of a hub of your own, or {BY_HAND}"
        )
