"""Whether every image is pinned by digest, and behind a mirror where one is declared."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import EnvironmentContext
from tandem.rules.rule import RuleFinding, RuleList, join_values
from tandem.spec.environment import NewNetwork
from tandem.spec.images import PRIVATE_ECR, ImageUse, list_image_uses

RULES = RuleList()


def _list_uses(context: EnvironmentContext) -> list[ImageUse]:
    experiments = [experiment for experiment in context.experiments if experiment.runtime in context.catalogue.runtimes]
    return list_image_uses(context.environment, experiments, context.catalogue)


def _registry_host(reference: str) -> str:
    return reference.partition("/")[0]


@RULES.warn("images-pinned", "tandem/spec/data/platform/digests.yaml", "2026-11-21")
def _find_unpinned_images(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Every image is pinned by digest."""
    references = [use.reference for use in _list_uses(context) if use.kind == "image" and use.digest is None]
    if references:
        yield RuleFinding(
            path="experiments", got=f"{len(references)} images without a digest: {join_values(references)}",
            allowed="a digest of each, so that nobody can move a tag under it",
            change="run `tandem images --resolve` where the registries can be reached, and commit what it writes",
        )  # fmt: skip


@RULES.refuse("mirrors-complete", "Tandem's own: one forgotten registry stops a closed cluster", "2026-11-21")
def _find_unmirrored_images(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Where one mirror is declared, every image and chart is behind one."""
    if not context.environment.registry_mirrors:
        return
    uses = _list_uses(context)
    all_hosts = list(dict.fromkeys(_registry_host(use.reference) for use in uses))
    for host in dict.fromkeys(_registry_host(use.reference) for use in uses if use.mirrored == use.reference):
        references = [
            use.reference for use in uses if use.mirrored == use.reference and _registry_host(use.reference) == host
        ]
        yield RuleFinding(
            path="registry_mirrors", got=f"no mirror for {join_values(references)}",
            allowed=f"a mirror for each of {join_values(all_hosts)}",
            change=f"add `{host}: YOUR-MIRROR/{host}`",
        )  # fmt: skip


@RULES.warn(
    "mirrors-closed",
    "docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html: none for public.ecr.aws",
    "2026-11-21",
)
def _find_missing_mirrors(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A network without NAT declares registry mirrors."""
    network = context.environment.network
    if isinstance(network, NewNetwork) and network.nat == "none" and not context.environment.registry_mirrors:
        hosts = dict.fromkeys(_registry_host(use.reference) for use in _list_uses(context))
        yield RuleFinding(
            path="registry_mirrors", got="no mirrors with network.nat none",
            allowed=f"a mirror for each of {join_values(hosts)}",
            change="add mirrors in private ECR, or another way out of the VPC: these registries have no VPC endpoint",
        )  # fmt: skip


@RULES.warn(
    "mirrors-seeded", "docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html, considerations", "2026-11-22"
)
def _find_unseeded_mirrors(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Where nothing leads out of the VPC, mirrors in private ECR are filled beforehand."""
    network = context.environment.network
    ecr_mirrors = [mirror for mirror in context.environment.registry_mirrors.values() if PRIVATE_ECR.match(mirror)]
    if isinstance(network, NewNetwork) and network.nat == "none" and ecr_mirrors:
        yield RuleFinding(
            path="registry_mirrors", got=f"{join_values(ecr_mirrors)} with network.nat none",
            allowed="mirrors that hold every image before the first deploy: a pull-through cache fetches nothing for a "
            "VPC without a way out",
            change=f"run what `tandem images {context.environment.name} --seed` prints, where the internet is reached",
        )  # fmt: skip
