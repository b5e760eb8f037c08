"""Whether models can be staged from where the environment says."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import EnvironmentContext, HostingContext
from tandem.rules.rule import RuleFinding, RuleList, join_values
from tandem.spec.environment import NewNetwork

BY_HAND = "stage them by hand, `python -m tandem.artifacts stage --from DIR`, which asks no hub"

RULES = RuleList()


@RULES.warn("hub-token", "tandem/spec/data/models, gated", "2026-11-21")
def _find_missing_token(context: HostingContext) -> Iterable[RuleFinding]:
    """Where a gated model is hosted, the environment names the secret of the hub's token."""
    gated_models = [model for _, model in context.experiment_context.models() if model.gated.value]
    if gated_models and context.environment.hub.token_secret is None:
        yield RuleFinding(
            path=context.path,
            got=f"{context.experiment_context.experiment.name!r}, whose "
            f"{join_values(model.id for model in gated_models)} the hub gives to a "
            "token only",
            allowed="hub.token_secret, where models are gated",
            change=f"put a token into a secret of Secrets Manager and write its name in hub.token_secret, or {BY_HAND}",
            source=gated_models[0].sources[gated_models[0].gated.source],
        )


@RULES.warn(
    "hub-reached",
    "docs.aws.amazon.com/vpc/latest/userguide/vpc-nat-gateway.html: the public hub is on the internet",
    "2026-11-21",
)
def _find_unreachable_hub(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A network without NAT names a hub that it reaches."""
    network, hub = context.environment.network, context.environment.hub
    if isinstance(network, NewNetwork) and network.nat == "none" and hub.endpoint is None:
        yield RuleFinding(
            path="hub.endpoint", got="null, the public hub, with network.nat none",
            allowed="a hub that the VPC can reach",
            change=f"write the endpoint of a hub of your own, or {BY_HAND}",
        )  # fmt: skip
