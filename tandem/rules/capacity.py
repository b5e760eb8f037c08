"""Rules on capacity: regions and zones of an instance type, purchase kinds, prices, and dates."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from tandem.declarations import names
from tandem.declarations.budgets import compute_budget_usd, compute_run_usd, needs_manual_budget
from tandem.declarations.environment import EXAMPLE_ACCOUNTS, PLACEHOLDER_RESERVATION_ID
from tandem.rules.contexts import DateContext, EnvironmentContext
from tandem.rules.rule import DATA, NEURON_SDK, RuleFinding, RuleList, join_values
from tandem.shell_command import quote_command

# 182 with all extensions; all end at 11:30 UTC, so one may be hours longer
LONGEST_BLOCK = timedelta(days=183)
# the earliest time zone: a price read there may have a date that UTC has not reached
EAST_OF_UTC = timedelta(hours=14)
_MOMENT = "%Y-%m-%dT%H:%MZ"

_OFFERINGS = f"{DATA}/platform/offerings.yaml"
_BLOCKS = "awsdocs/amazon-eks-user-guide latest/ug/ml/capacity-blocks-mng.adoc"
_BLOCK_DURATIONS = "docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-purchase.html"
_EXAMPLES = "docs.aws.amazon.com/IAM/latest/UserGuide: example accounts"
_CLUSTER_ZONES = (
    "awsdocs/amazon-eks-user-guide@101184ec"
    " latest/ug/networking/network-reqs.adoc, subnets for clusters"
)
ZONES_WITHOUT_EKS = ("use1-az3", "usw1-az2", "cac1-az3")
_BUDGET_STOP = "Tandem's own: the budget alarm would stop the run; it counts instances alone"
_AS_OFFERED = "write both as the offer says: aws ec2 describe-capacity-blocks"
RULES = RuleList()


@RULES.warn("region-offers-type", _OFFERINGS, "2026-11-21")
def _find_unoffered_region(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A dated list offers the instance type in the region; accounts may not see every offer."""
    region = context.environment.region
    instance_type = context.environment.capacity.instance_type
    regions = context.catalogue.offerings.offerings.get(instance_type, {})
    if region not in regions:
        got = f"{region}, not listed for {instance_type}"
        change = f"{_ask_account(context)}, or write one of them"
        yield RuleFinding("region", got, join_values(sorted(regions)), change)


@RULES.warn("zone-offers-type", _OFFERINGS, "2026-11-21")
def _find_unoffered_zone(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A dated list offers the instance type in the zone; accounts may not see every offer."""
    capacity = context.environment.capacity
    zones_by_region = context.catalogue.offerings.offerings.get(capacity.instance_type, {})
    figure = zones_by_region.get(context.environment.region)
    is_foreign = _is_foreign(context, capacity.zone)  # zone-of-region refuses these
    if figure is not None and capacity.zone not in figure.value and not is_foreign:
        got = f"{capacity.zone}, not listed for {capacity.instance_type}"
        change = (
            f"{_ask_account(context)}, or write {figure.value[0]}, also among the network's zones"
        )
        yield RuleFinding("capacity.zone", got, join_values(figure.value), change, figure)


def _ask_account(context: EnvironmentContext) -> str:
    command = quote_command("tandem", "doctor", "--env", context.environment.name)
    return f"ask your account: {command}, line `offering`"


@RULES.refuse("zone-of-region", _OFFERINGS, "2026-11-21")
def _find_foreign_zones(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Every zone id has the prefix of the region's zones."""
    region = context.environment.region
    figure = context.catalogue.offerings.zones.get(region)
    capacity_zone = ("capacity.zone", context.environment.capacity.zone)
    for path, zone in [capacity_zone, *context.cluster_zones()]:
        if figure is not None and _is_foreign(context, zone):
            got = f"{zone} in region {region}"
            legal = join_values(figure.value)
            yield RuleFinding(path, got, legal, "write one of them", figure)


def _is_foreign(context: EnvironmentContext, zone: str) -> bool:
    """Return whether a zone id begins otherwise than the region's: use2- is us-east-2's."""
    figure = context.catalogue.offerings.zones.get(context.environment.region)
    if figure is None:
        return False
    prefixes = {known.partition("-")[0] for known in figure.value}
    return zone.partition("-")[0] not in prefixes


@RULES.warn("zone-listed", _OFFERINGS, "2026-10-27")
def _find_unlisted_zones(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A dated list of the region's zones has every zone of the network and the control plane."""
    region = context.environment.region
    figure = context.catalogue.offerings.zones.get(region)
    for path, zone in context.cluster_zones():
        if figure is not None and zone not in figure.value and not _is_foreign(context, zone):
            got = f"{zone}, not listed for {region}"
            change = f"{_ask_account(context)}, or write one of them"
            yield RuleFinding(path, got, join_values(figure.value), change, figure)


@RULES.refuse("zone-takes-cluster", _CLUSTER_ZONES, "2026-11-28")
def _find_refused_zones(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """EKS takes subnets of a cluster in every zone."""
    for path, zone in context.cluster_zones():
        if zone in ZONES_WITHOUT_EKS:
            yield RuleFinding(
                path,
                zone,
                f"a zone other than {join_values(ZONES_WITHOUT_EKS)}",
                "write another zone",
            )


@RULES.refuse("zone-has-subnet", _BLOCKS, "2026-11-21")
def _find_zone_without_subnet(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The network has a subnet in the nodes' zone."""
    zone = context.environment.capacity.zone
    zones = dict.fromkeys(network_zone for _, network_zone in context.zones())
    if zone not in zones:
        key = "network.zones" if context.environment.network.kind == "new" else "network.subnets"
        got = f"{zone}, which has no subnet"
        change = (
            f"add {zone} at the end of {key}:"
            " the first two zones are the cluster's, so nothing of it moves"
        )
        yield RuleFinding("capacity.zone", got, join_values(zones), change)


@RULES.warn("system-nodes-offered", _OFFERINGS, "2026-11-21")
def _find_unoffered_system_type(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A dated list offers the system nodes' type in one of the network's first two zones."""
    offerings = context.catalogue.offerings
    instance_type = context.environment.cluster.system_nodes.instance_type
    figure = offerings.offerings.get(instance_type, {}).get(context.environment.region)
    zones = context.environment.network.base_zones
    if figure is not None and set(zones).isdisjoint(figure.value):
        got = f"{instance_type}, listed for none of {join_values(sorted(zones))}"
        legal = (
            f"a type of the network's first two zones; {instance_type} is in"
            f" {join_values(figure.value)}"
        )
        change = (
            f"{_ask_account(context)}, or make one of these"
            " zones the first or second of the network"
        )
        yield RuleFinding("cluster.system_nodes.instance_type", got, legal, change, figure)


@RULES.refuse("capacity-kind", f"{DATA}/platform/instances.yaml", "2026-11-21")
def _find_wrong_kind(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The instance type can be bought this way."""
    capacity = context.environment.capacity
    kinds = context.catalogue.instances.instances[capacity.instance_type].capacity_kinds
    if capacity.kind not in kinds.value:
        got = f"{capacity.kind} for {capacity.instance_type}"
        legal = join_values(kinds.value)
        yield RuleFinding("capacity.kind", got, legal, "write one of them", kinds)


@RULES.warn("reservation-given", _BLOCKS, "2026-11-21")
def _find_missing_reservation(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A Capacity Block or reservation has its id; without it the Fleet stack is left out."""
    capacity = context.environment.capacity
    if capacity.awaits_reservation:
        got = "null" if capacity.reservation_id is None else "the placeholder"
        got += ": no Fleet stack, no node"
        legal = f"the id of your {capacity.kind}, cr-..."
        change = "write it; until then the Fleet stack is left out"
        yield RuleFinding("capacity.reservation_id", got, legal, change)


@RULES.refuse("reservation-used", _BLOCKS, "2026-11-21")
def _find_needless_reservation(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Spot and on-demand nodes name no reservation."""
    capacity = context.environment.capacity
    if not capacity.needs_reservation and capacity.reservation_id is not None:
        got = f"{capacity.reservation_id} with kind {capacity.kind}"
        legal = f"null with kind {capacity.kind}"
        change = "delete it, or write kind: capacity-block or reservation"
        yield RuleFinding("capacity.reservation_id", got, legal, change)


@RULES.warn("reservation-own", _BLOCKS, "2026-11-21")
def _find_shared_reservation(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """No two environments raise nodes from the same reservation."""
    reservation = context.environment.capacity.reservation_id
    if reservation in {None, PLACEHOLDER_RESERVATION_ID}:
        return
    peers = context.other_environments
    sharing = [peer.name for peer in peers if peer.capacity.reservation_id == reservation]
    if sharing:
        got = f"{reservation}, as in environment {join_values(sharing)}"
        legal = "a reservation that no other environment raises nodes from"
        change = "write its own, or raise one of them at a time"
        yield RuleFinding("capacity.reservation_id", got, legal, change)


@RULES.refuse("block-kind", _BLOCK_DURATIONS, "2026-11-21")
def _find_needless_block(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Only a Capacity Block has a start and an end."""
    block = context.environment.capacity.block
    kind = context.environment.capacity.kind
    if block is not None and kind != "capacity-block":
        change = "delete it, or write kind: capacity-block"
        yield RuleFinding(
            "capacity.block", f"a block with kind {kind}", f"null with kind {kind}", change
        )


@RULES.refuse("block-order", _BLOCK_DURATIONS, "2026-11-21")
def _find_reversed_block(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A Capacity Block ends after it starts."""
    block = context.environment.capacity.block
    if block is not None and block.ends <= block.starts:
        got = f"{block.ends:{_MOMENT}}, which is not after its start"
        legal = f"later than {block.starts:{_MOMENT}}"
        yield RuleFinding("capacity.block.ends", got, legal, _AS_OFFERED)


@RULES.refuse("block-length", _BLOCK_DURATIONS, "2026-11-21")
def _find_long_block(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A Capacity Block is no longer than EC2 sells them."""
    block = context.environment.capacity.block
    if block is not None and block.ends - block.starts > LONGEST_BLOCK:
        days = (block.ends - block.starts) / timedelta(days=1)
        got = f"{block.ends:{_MOMENT}}, {days:.1f} days after its start"
        legal = f"at most {LONGEST_BLOCK.days} days"
        yield RuleFinding("capacity.block.ends", got, legal, _AS_OFFERED)


@RULES.warn("hours-in-block", _BLOCK_DURATIONS, "2026-11-28")
def _find_hours_beyond_block(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The guard's max_hours is no longer than the Capacity Block."""
    block = context.environment.capacity.block
    max_hours = context.environment.guard.max_hours
    if block is None or block.ends <= block.starts:
        return
    block_hours = (block.ends - block.starts) / timedelta(hours=1)
    if max_hours > block_hours >= 1:
        got = f"{max_hours}, longer than the Capacity Block of {block_hours:g} hours"
        legal = (
            f"at most {block_hours:g}: no lease outlives the block,"
            " and costs are computed from max_hours"
        )
        change = f"write max_hours: {int(block_hours)}"
        yield RuleFinding("guard.max_hours", got, legal, change)


@RULES.warn("account-real", _EXAMPLES, "2026-11-21")
def _find_example_account(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The account is none of the AWS documentation's examples."""
    account = context.environment.account
    if account in EXAMPLE_ACCOUNTS:
        change = (
            "write it; until then the CDK CLI stops: your credentials belong to another account"
        )
        yield RuleFinding(
            "account", f"{account}, an account of the AWS documentation", "your own account", change
        )


@RULES.warn("budget-holds-run", _BUDGET_STOP, "2026-11-22")
def _find_small_budget(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The monthly budget holds one run of max_hours at the declared price."""
    capacity = context.environment.capacity
    guard = context.environment.guard
    run_usd = compute_run_usd(context.environment)
    budget_usd = compute_budget_usd(context.environment)
    if budget_usd < run_usd:
        legal = (
            f"at least {run_usd:.2f}: {guard.max_hours} hours"
            f" of {capacity.nodes} {capacity.kind} nodes"
        )
        hours = int(budget_usd / (run_usd / guard.max_hours))
        change = f"raise it, or write max_hours: {hours}" if hours else "raise it"
        yield RuleFinding("guard.budget_usd", f"{budget_usd:g}", legal, change)


@RULES.warn(
    "budget-by-hand", "CloudFormation's registry: AWS::Budgets::Budget by region", "2026-11-22"
)
def _find_manual_budget(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """CloudFormation makes budgets in the region; elsewhere somebody makes this one by hand."""
    environment = context.environment
    if needs_manual_budget(environment):
        got = f"{environment.region}, where CloudFormation makes no budget"
        legal = f"a budget {names.budget_name(environment)} that you made by hand"
        change = (
            "make it once (docs/runbook.md#a-budget-by-hand);"
            " until then two paths stop the fleet, not three"
        )
        yield RuleFinding("region", got, legal, change)


@RULES.warn("billing-code", _OFFERINGS, "2026-11-22")
def _find_unknown_billing_code(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The region's billing code is known: the budget counts only fleet instances by it."""
    region = context.environment.region
    codes = context.catalogue.offerings.billing_codes
    if region not in codes:
        got = (
            f"{region}, whose billing code is not known:"
            " the budget also counts what runs while it is parked"
        )
        change = (
            "raise guard.budget_usd by the cost of a month parked, which `tandem show` prints; add"
            " each part that it names without a price"
        )
        yield RuleFinding("region", got, join_values(sorted(codes)), change)


@RULES.warn(
    "idle-before-max", "Tandem's own: else the idle stop never stops anything", "2026-11-21"
)
def _find_late_idle_stop(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The guard's idle_minutes is less than its max_hours."""
    idle = context.environment.guard.idle_minutes
    hours = context.environment.guard.max_hours
    if idle >= hours * 60:
        legal = f"less than the {hours * 60} minutes of max_hours {hours}"
        change = "write 30: max_hours stops nodes before they can count as idle"
        yield RuleFinding("guard.idle_minutes", str(idle), legal, change)


@RULES.refuse(
    "storage-price-dated", "Tandem's own: a price without a date is nobody's figure", "2026-11-21"
)
def _find_undated_storage_price(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A price of storage has its date."""
    artifacts = context.environment.artifacts
    if artifacts.usd_per_gb_month is not None and artifacts.usd_per_gb_month_date is None:
        legal = "the day on which the price was read"
        change = "add it, or delete usd_per_gb_month"
        yield RuleFinding("artifacts.usd_per_gb_month_date", "no date", legal, change)


@RULES.warn(
    "efa-needless", f"{NEURON_SDK} about-neuron/arch/neuron-hardware/trn2-arch.rst", "2026-08-21"
)
def _find_needless_efa(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """EFA is off, as no variant spans two nodes."""
    if context.environment.capacity.efa:
        legal = "false: no variant spans two nodes, and within one NeuronLink carries all"
        change = "write false; it saves a network interface per card and its addresses"
        yield RuleFinding("capacity.efa", "true", legal, change)


@RULES.warn("price-own", "Tandem's own: every cost that is shown follows from it", "2026-11-22")
def _find_foreign_price(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The price of a node-hour is that of the declared instance type and kind."""
    capacity = context.environment.capacity
    purchase = f"{capacity.instance_type} {capacity.kind}"
    price_of = capacity.usd_per_hour_of
    change = f"read the price of {purchase} and write it, the day you read it, and usd_per_hour_of"
    if price_of is not None and price_of != purchase:
        yield RuleFinding(
            "capacity.usd_per_hour_of", f"{price_of} with {purchase}", purchase, change
        )
    if price_of is not None or not capacity.usd_per_hour:
        return
    for peer in context.other_environments:
        peer_purchase = f"{peer.capacity.instance_type} {peer.capacity.kind}"
        if peer.capacity.usd_per_hour == capacity.usd_per_hour and peer_purchase != purchase:
            got = f"{capacity.usd_per_hour:g}, the price of {peer_purchase} in {peer.name}"
            yield RuleFinding("capacity.usd_per_hour", got, f"the price of {purchase}", change)
            return


@RULES.warn("block-over", _BLOCK_DURATIONS, "2026-11-21")
def _find_past_block(context: DateContext) -> Iterable[RuleFinding]:
    """The Capacity Block is not over."""
    block = context.environment.capacity.block
    if block is not None and block.ends <= context.now:
        got = f"{block.ends:{_MOMENT}}, which is over"
        legal = f"later than {context.now:{_MOMENT}}"
        change = "write the block you have now with its reservation_id, or block: null"
        yield RuleFinding("capacity.block.ends", got, legal, change)


@RULES.refuse("price-to-come", "Tandem's own: nobody has read a price of tomorrow", "2026-11-22")
def _find_future_price(context: DateContext) -> Iterable[RuleFinding]:
    """A price was read today or before."""
    environment = context.environment
    latest = (context.now + EAST_OF_UTC).date()
    days = {
        "capacity.usd_per_hour_date": environment.capacity.usd_per_hour_date,
        "artifacts.usd_per_gb_month_date": environment.artifacts.usd_per_gb_month_date,
        "prices.date": environment.prices.date if environment.prices else None,
    }
    for path, day in days.items():
        if day is not None and day > latest:
            change = "write the day on which you read the price"
            yield RuleFinding(
                path, f"{day}, which is in the future", f"{latest} or earlier", change
            )
