"""Whether every image is pinned by digest, and behind a mirror where one is declared."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Stamp
from tandem.spec.environment import NewNetwork
from tandem.spec.images import PRIVATE_ECR, ImageUse, image_uses


def _uses(stamp: Stamp) -> list[ImageUse]:
    known = [experiment for experiment in stamp.hosted if experiment.runtime in stamp.catalogue.runtimes]
    return image_uses(stamp.environment, known, stamp.catalogue)


def _host(reference: str) -> str:
    return reference.partition("/")[0]


def _pinned(stamp: Stamp) -> Iterable[Finding]:
    unpinned = [use.reference for use in _uses(stamp) if use.kind == "image" and use.digest is None]
    if unpinned:
        yield Finding(
            path="experiments", got=f"{len(unpinned)} images without a digest: {listed(unpinned)}",
            allowed="a digest of each, so that nobody can move a tag under it",
            change="run `tandem images --resolve` where the registries can be reached, and commit what it writes",
        )  # fmt: skip


def _mirrored(stamp: Stamp) -> Iterable[Finding]:
    if not stamp.environment.registry_mirrors:
        return
    uses = _uses(stamp)
    needed = list(dict.fromkeys(_host(use.reference) for use in uses))
    for host in dict.fromkeys(_host(use.reference) for use in uses if use.mirrored == use.reference):
        left = [use.reference for use in uses if use.mirrored == use.reference and _host(use.reference) == host]
        yield Finding(
            path="registry_mirrors", got=f"no mirror for {listed(left)}",
            allowed=f"a mirror for each of {listed(needed)}",
            change=f"add `{host}: YOUR-MIRROR/{host}`",
        )  # fmt: skip


def _closed(stamp: Stamp) -> Iterable[Finding]:
    network = stamp.environment.network
    if isinstance(network, NewNetwork) and network.nat == "none" and not stamp.environment.registry_mirrors:
        hosts = dict.fromkeys(_host(use.reference) for use in _uses(stamp))
        yield Finding(
            path="registry_mirrors", got="no mirrors with network.nat none",
            allowed=f"a mirror for each of {listed(hosts)}",
            change="add mirrors in private ECR, or another way out of the VPC: these registries have no VPC endpoint",
        )  # fmt: skip


def _seeded(stamp: Stamp) -> Iterable[Finding]:
    network = stamp.environment.network
    cached = [mirror for mirror in stamp.environment.registry_mirrors.values() if PRIVATE_ECR.match(mirror)]
    if isinstance(network, NewNetwork) and network.nat == "none" and cached:
        yield Finding(
            path="registry_mirrors", got=f"{listed(cached)} with network.nat none",
            allowed="mirrors that hold every image before the first deploy: a pull-through cache fetches nothing for a "
            "VPC without a way out",
            change=f"run what `tandem images {stamp.environment.name} --seed` prints, where the internet is reached",
        )  # fmt: skip


RULES: tuple[Rule[Stamp], ...] = (
    Rule(
        id="images-pinned", of=Stamp, severity="warning", find=_pinned,
        sentence="every image is pinned by digest", source="tandem/spec/data/platform/digests.yaml",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="mirrors-complete", of=Stamp, severity="refusal", find=_mirrored,
        sentence="where one mirror is declared, every image and chart is behind one",
        source="Tandem's own: one forgotten registry stops a closed cluster", date=date(2026, 11, 21),
    ),
    Rule(
        id="mirrors-closed", of=Stamp, severity="warning", find=_closed,
        sentence="a network without NAT declares registry mirrors",
        source="docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html: none for public.ecr.aws",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="mirrors-seeded", of=Stamp, severity="warning", find=_seeded,
        sentence="where nothing leads out of the VPC, mirrors in private ECR are filled beforehand",
        source="docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html, considerations",
        date=date(2026, 11, 22),
    ),
)  # fmt: skip
