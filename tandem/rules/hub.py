"""Whether models can be staged from where the environment says."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Hosting, Stamp
from tandem.spec.environment import NewNetwork

BY_HAND = "stage them by hand, `python -m tandem.artifacts stage --from DIR`, which asks no hub"


def _token(hosting: Hosting) -> Iterable[Finding]:
    gated = [model for _, model in hosting.trial.models() if model.gated.value]
    if gated and hosting.environment.hub.token_secret is None:
        yield Finding(
            path=hosting.path,
            got=f"{hosting.trial.experiment.name!r}, whose {listed(model.id for model in gated)} the hub gives to a "
            "token only",
            allowed="hub.token_secret, where models are gated",
            change=f"put a token into a secret of Secrets Manager and write its name in hub.token_secret, or {BY_HAND}",
            source=gated[0].sources[gated[0].gated.source],
        )  # fmt: skip


def _closed(stamp: Stamp) -> Iterable[Finding]:
    network, hub = stamp.environment.network, stamp.environment.hub
    if isinstance(network, NewNetwork) and network.nat == "none" and hub.endpoint is None:
        yield Finding(
            path="hub.endpoint", got="null, the public hub, with network.nat none",
            allowed="a hub that the VPC can reach",
            change=f"write the endpoint of a hub of your own, or {BY_HAND}",
        )  # fmt: skip


RULES: tuple[Rule[Any], ...] = (
    Rule(
        id="hub-token", of=Hosting, severity="warning", find=_token,
        sentence="where a gated model is hosted, the environment names the secret of the hub's token",
        source="tandem/spec/data/models, gated", date=date(2026, 11, 21),
    ),
    Rule(
        id="hub-reached", of=Stamp, severity="warning", find=_closed,
        sentence="a network without NAT names a hub that it reaches",
        source="docs.aws.amazon.com/vpc/latest/userguide/vpc-nat-gateway.html: the public hub is on the internet",
        date=date(2026, 11, 21),
    ),
)  # fmt: skip
