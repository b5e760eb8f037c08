"""Where an instance type can be had, how it is bought, and what an hour of it costs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from tandem.rules.contexts import EnvironmentContext
from tandem.rules.rule import RuleFinding, RuleList, join_values
from tandem.spec import names
from tandem.spec.budgets import budget_tag_key, compute_run_usd, needs_manual_budget
from tandem.spec.environment import EXAMPLE_ACCOUNTS, PLACEHOLDER_RESERVATION_ID, NewNetwork

LONGEST_BLOCK = timedelta(days=183)  # 182 with all extensions; all end at 11:30 UTC, so one may be hours longer
_MOMENT = "%Y-%m-%dT%H:%MZ"

_OFFERINGS = "tandem/spec/data/platform/offerings.yaml"
_BLOCKS = "awsdocs/amazon-eks-user-guide latest/ug/ml/capacity-blocks-mng.adoc"
_BLOCK_DURATIONS = "docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-purchase.html"
RULES = RuleList()


def list_network_zones(context: EnvironmentContext) -> list[tuple[str, str]]:
    """Return (key path, zone id) of every zone the network names."""
    network = context.environment.network
    if isinstance(network, NewNetwork):
        return [(f"network.zones[{index}]", zone) for index, zone in enumerate(network.zones)]
    return [(f"network.subnets[{index}].zone", subnet.zone) for index, subnet in enumerate(network.subnets)]


@RULES.refuse("region-offers-type", _OFFERINGS, "2026-11-21")
def _find_unoffered_region(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The region offers the instance type."""
    region_offers = context.catalogue.offerings.offerings.get(context.environment.capacity.instance_type, {})
    if context.environment.region not in region_offers:
        yield RuleFinding(
            path="region", got=f"{context.environment.region} for {context.environment.capacity.instance_type}",
            allowed=join_values(sorted(region_offers)),
            change="write one of them, or an instance type that the region offers; where your account is offered it, "
            f"add the row to {_OFFERINGS}",
        )  # fmt: skip


@RULES.refuse("zone-offers-type", _OFFERINGS, "2026-11-21")
def _find_unoffered_zone(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The zone offers the instance type."""
    capacity, region = context.environment.capacity, context.environment.region
    zone_figure = context.catalogue.offerings.offerings.get(capacity.instance_type, {}).get(region)
    region_zones = context.catalogue.offerings.zones.get(region)
    if (
        zone_figure is None
        or capacity.zone in zone_figure.value
        or (region_zones is not None and capacity.zone not in region_zones.value)
    ):
        return
    yield RuleFinding(
        path="capacity.zone",
        got=f"{capacity.zone} for {capacity.instance_type}",
        allowed=join_values(zone_figure.value),
        change=f"write {zone_figure.value[0]}, and have it among the network's zones; if your account is offered it in "
        f"{capacity.zone}, add that to {_OFFERINGS}",
        source=context.catalogue.offerings.sources[zone_figure.source],
    )


@RULES.refuse("zone-of-region", _OFFERINGS, "2026-11-21")
def _find_foreign_zones(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Every zone lies in the region."""
    region = context.environment.region
    region_zones = context.catalogue.offerings.zones.get(region)
    if region_zones is None:
        return
    for path, zone in [("capacity.zone", context.environment.capacity.zone), *list_network_zones(context)]:
        if zone not in region_zones.value:
            yield RuleFinding(
                path=path,
                got=f"{zone} in region {region}",
                allowed=join_values(region_zones.value),
                change="write one of them",
                source=context.catalogue.offerings.sources[region_zones.source],
            )


@RULES.refuse("zone-has-subnet", _BLOCKS, "2026-11-21")
def _find_zone_without_subnet(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The network has a subnet in the nodes' zone."""
    zone, network_zones = context.environment.capacity.zone, [zone for _, zone in list_network_zones(context)]
    if zone not in network_zones:
        key = "network.zones" if isinstance(context.environment.network, NewNetwork) else "network.subnets"
        yield RuleFinding(
            path="capacity.zone", got=f"{zone}, which has no subnet", allowed=join_values(dict.fromkeys(network_zones)),
            change=f"add {zone} to {key}",
        )  # fmt: skip


@RULES.refuse("system-nodes-offered", _OFFERINGS, "2026-11-21")
def _find_unoffered_system_type(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A zone of the network offers the system nodes' type."""
    instance_type, region = context.environment.cluster.system_nodes.instance_type, context.environment.region
    zone_figure = context.catalogue.offerings.offerings.get(instance_type, {}).get(region)
    network_zones = {zone for _, zone in list_network_zones(context)}
    if zone_figure is not None and network_zones.isdisjoint(zone_figure.value):
        yield RuleFinding(
            path="cluster.system_nodes.instance_type",
            got=f"{instance_type}, which none of {join_values(sorted(network_zones))} offers",
            allowed=f"a type of the network's zones; {instance_type} is in {join_values(zone_figure.value)}",
            change="add one of these zones to the network",
            source=context.catalogue.offerings.sources[zone_figure.source],
        )


@RULES.refuse("capacity-kind", "tandem/spec/data/platform/instances.yaml", "2026-11-21")
def _find_wrong_kind(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The instance type can be bought this way."""
    capacity, kinds = context.environment.capacity, context.instance.capacity_kinds
    if capacity.kind not in kinds.value:
        yield RuleFinding(
            path="capacity.kind", got=f"{capacity.kind} for {capacity.instance_type}", allowed=join_values(kinds.value),
            change="write one of them", source=context.catalogue.instances.sources[kinds.source],
        )  # fmt: skip


@RULES.warn("reservation-given", _BLOCKS, "2026-11-21")
def _find_missing_reservation(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A Capacity Block or reservation has its id; without it the Fleet stack is left out."""
    capacity = context.environment.capacity
    if capacity.awaits_reservation:
        yield RuleFinding(
            path="capacity.reservation_id", got="null" if capacity.reservation_id is None else "the placeholder",
            allowed=f"the id of your {capacity.kind}, cr-...",
            change="write it; until then the Fleet stack is left out",
        )  # fmt: skip


@RULES.refuse("reservation-used", _BLOCKS, "2026-11-21")
def _find_needless_reservation(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Spot and on-demand nodes name no reservation."""
    capacity = context.environment.capacity
    if not capacity.needs_reservation and capacity.reservation_id is not None:
        yield RuleFinding(
            path="capacity.reservation_id", got=f"{capacity.reservation_id} with kind {capacity.kind}",
            allowed=f"null with kind {capacity.kind}", change="delete it, or write kind: capacity-block or reservation",
        )  # fmt: skip


@RULES.warn("reservation-own", _BLOCKS, "2026-11-21")
def _find_shared_reservation(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """No two environments raise nodes from the same reservation."""
    reservation_id = context.environment.capacity.reservation_id
    sharing = [
        environment.name
        for environment in context.other_environments
        if environment.capacity.reservation_id == reservation_id
    ]
    if reservation_id not in {None, PLACEHOLDER_RESERVATION_ID} and sharing:
        yield RuleFinding(
            path="capacity.reservation_id", got=f"{reservation_id}, as in environment {join_values(sharing)}",
            allowed="a reservation that no other environment raises nodes from",
            change="write its own, or raise one of them at a time",
        )  # fmt: skip


@RULES.refuse("block-kind", _BLOCK_DURATIONS, "2026-11-21")
def _find_needless_block(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Only a Capacity Block has a start and an end."""
    capacity = context.environment.capacity
    if capacity.block is not None and capacity.kind != "capacity-block":
        yield RuleFinding(
            path="capacity.block", got=f"a block with kind {capacity.kind}", allowed=f"null with kind {capacity.kind}",
            change="delete it, or write kind: capacity-block",
        )  # fmt: skip


@RULES.refuse("block-order", _BLOCK_DURATIONS, "2026-11-21")
def _find_reversed_block(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A Capacity Block ends after it starts."""
    block = context.environment.capacity.block
    if block is not None and block.ends <= block.starts:
        yield RuleFinding(
            path="capacity.block.ends", got=f"{block.ends:{_MOMENT}}, which is not after its start",
            allowed=f"later than {block.starts:{_MOMENT}}",
            change="write both as the offer says: aws ec2 describe-capacity-blocks",
        )  # fmt: skip


@RULES.refuse("block-length", _BLOCK_DURATIONS, "2026-11-21")
def _find_long_block(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A Capacity Block is no longer than EC2 sells them."""
    block = context.environment.capacity.block
    if block is not None and block.ends - block.starts > LONGEST_BLOCK:
        days = (block.ends - block.starts) / timedelta(days=1)
        yield RuleFinding(
            path="capacity.block.ends", got=f"{block.ends:{_MOMENT}}, {days:.1f} days after its start",
            allowed=f"at most {LONGEST_BLOCK.days} days after it",
            change="write both as the offer says: aws ec2 describe-capacity-blocks",
        )  # fmt: skip


@RULES.warn("account-real", "docs.aws.amazon.com/IAM/latest/UserGuide: example accounts", "2026-11-21")
def _find_example_account(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The account is none of the AWS documentation's examples."""
    if context.environment.account in EXAMPLE_ACCOUNTS:
        yield RuleFinding(
            path="account", got=f"{context.environment.account}, an account of the AWS documentation",
            allowed="your own account",
            change="write it; until then the CDK CLI stops: your credentials are of another account",
        )  # fmt: skip


@RULES.warn(
    "budget-holds-run", "Tandem's own: the budget alarm would stop the run; it counts instances alone", "2026-11-22"
)
def _find_small_budget(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The monthly budget holds one run of max_hours at the declared price."""
    capacity, guard = context.environment.capacity, context.environment.guard
    run_usd = compute_run_usd(context.environment)
    if guard.budget_usd < run_usd:
        replacement_note = ", each replaced once while it lives" if capacity.kind == "spot" else ""
        yield RuleFinding(
            path="guard.budget_usd", got=f"{guard.budget_usd:g}",
            allowed=f"at least {run_usd:.2f}: {guard.max_hours} hours of {capacity.nodes} nodes{replacement_note}",
            change=f"raise it, or write max_hours: {max(1, int(guard.budget_usd / (run_usd / guard.max_hours)))}",
        )  # fmt: skip


@RULES.warn("budget-own", "tandem/spec/budgets.py: without tags it counts every instance of the type", "2026-11-22")
def _find_shared_budget(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The budget of an environment without tags holds the runs of all in its account that it counts."""
    # without tags each budget counts every instance of its type
    own_environment = context.environment
    budget_scope = (own_environment.account, own_environment.region, own_environment.capacity.instance_type)
    sharing = [
        other_environment
        for other_environment in context.other_environments
        if (other_environment.account, other_environment.region, other_environment.capacity.instance_type)
        == budget_scope
    ]
    runs_usd = sum(compute_run_usd(environment) for environment in (own_environment, *sharing))
    if budget_tag_key(own_environment) is None and sharing and own_environment.guard.budget_usd < runs_usd:
        yield RuleFinding(
            path="tags",
            got=f"none, beside {join_values(other_environment.name for other_environment in sharing)} in the "
            "same account",
            allowed=f"one tag at least, or a budget_usd of {runs_usd:.2f}: without tags the budget counts their "
            "runs too",
            change="add a tag, such as project: tandem",
        )


@RULES.warn("budget-by-hand", "CloudFormation's registry: AWS::Budgets::Budget by region", "2026-11-22")
def _find_manual_budget(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """CloudFormation makes budgets in the region; elsewhere somebody makes this one by hand."""
    environment = context.environment
    if needs_manual_budget(environment):
        yield RuleFinding(
            path="region", got=f"{environment.region}, where CloudFormation makes no budget",
            allowed=f"a budget {names.budget_name(environment)} that you made by hand",
            change="make it once (docs/runbook.md#a-budget-by-hand); until then two paths stop the fleet, not three",
        )  # fmt: skip


@RULES.refuse("billing-code", _OFFERINGS, "2026-11-22")
def _find_unknown_billing_code(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The region's billing code is known, by which the budget counts the fleet's instances."""
    offerings, region = context.catalogue.offerings, context.environment.region
    has_offer = region in offerings.offerings.get(context.environment.capacity.instance_type, {})
    if has_offer and region not in offerings.billing_codes:
        yield RuleFinding(
            path="region", got=f"{region}, whose billing code is not known",
            allowed=join_values(sorted(offerings.billing_codes)),
            change=f"add its code to billing_codes of {_OFFERINGS}",
        )  # fmt: skip


@RULES.warn("idle-before-max", "Tandem's own: else the idle stop never stops anything", "2026-11-21")
def _find_late_idle_stop(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The guard's idle_minutes is less than its max_hours."""
    guard = context.environment.guard
    if guard.idle_minutes >= guard.max_hours * 60:
        yield RuleFinding(
            path="guard.idle_minutes", got=str(guard.idle_minutes),
            allowed=f"less than the {guard.max_hours * 60} minutes of max_hours {guard.max_hours}",
            change="write 30: nodes are stopped by max_hours before they could be found idle",
        )  # fmt: skip


@RULES.refuse("storage-price-dated", "Tandem's own: a price without a date is nobody's figure", "2026-11-21")
def _find_undated_storage_price(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A price of storage has its date."""
    artifacts = context.environment.artifacts
    if artifacts.usd_per_gb_month is not None and artifacts.usd_per_gb_month_date is None:
        yield RuleFinding(
            path="artifacts.usd_per_gb_month_date", got="no date", allowed="the day on which the price was read",
            change="add it, or delete usd_per_gb_month",
        )  # fmt: skip


@RULES.warn("efa-needless", "aws-neuron/aws-neuron-sdk about-neuron/arch/neuron-hardware/trn2-arch.rst", "2026-08-21")
def _find_needless_efa(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """EFA is off, as no variant spans two nodes."""
    if context.environment.capacity.efa:
        yield RuleFinding(
            path="capacity.efa", got="true",
            allowed="false: no variant spans two nodes, and within one NeuronLink carries all",
            change="write false; it saves a network interface per card and its addresses",
        )  # fmt: skip
