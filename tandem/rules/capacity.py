"""Where an instance type can be had, how it is bought, and what an hour of it costs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Stamp
from tandem.spec import names
from tandem.spec.budgets import by_hand, compute_run_usd, counted_tag
from tandem.spec.environment import EXAMPLE_ACCOUNTS, PLACEHOLDER_RESERVATION_ID, NewNetwork

LONGEST_BLOCK = timedelta(days=183)  # 182 with all extensions; all end at 11:30 UTC, so one may be hours longer
_MOMENT = "%Y-%m-%dT%H:%MZ"


def zones(stamp: Stamp) -> list[tuple[str, str]]:
    """Return (key path, zone id) of every zone the network names."""
    network = stamp.environment.network
    if isinstance(network, NewNetwork):
        return [(f"network.zones[{index}]", zone) for index, zone in enumerate(network.zones)]
    return [(f"network.subnets[{index}].zone", subnet.zone) for index, subnet in enumerate(network.subnets)]


def _region(stamp: Stamp) -> Iterable[Finding]:
    offered = stamp.catalogue.offerings.offerings.get(stamp.environment.capacity.instance_type, {})
    if stamp.environment.region not in offered:
        yield Finding(
            path="region", got=f"{stamp.environment.region} for {stamp.environment.capacity.instance_type}",
            allowed=listed(sorted(offered)),
            change="write one of them, or an instance type that the region offers; where your account is offered it, "
            f"add the row to {_OFFERINGS}",
        )  # fmt: skip


def _zone(stamp: Stamp) -> Iterable[Finding]:
    capacity, region = stamp.environment.capacity, stamp.environment.region
    offered = stamp.catalogue.offerings.offerings.get(capacity.instance_type, {}).get(region)
    known = stamp.catalogue.offerings.zones.get(region)
    if offered is None or capacity.zone in offered.value or (known is not None and capacity.zone not in known.value):
        return
    yield Finding(
        path="capacity.zone", got=f"{capacity.zone} for {capacity.instance_type}", allowed=listed(offered.value),
        change=f"write {offered.value[0]}, and have it among the network's zones; if your account is offered it in "
        f"{capacity.zone}, add that to {_OFFERINGS}",
        source=stamp.catalogue.offerings.sources[offered.source],
    )  # fmt: skip


def _zones_of_region(stamp: Stamp) -> Iterable[Finding]:
    region = stamp.environment.region
    known = stamp.catalogue.offerings.zones.get(region)
    if known is None:
        return
    for path, zone in [("capacity.zone", stamp.environment.capacity.zone), *zones(stamp)]:
        if zone not in known.value:
            yield Finding(
                path=path, got=f"{zone} in region {region}", allowed=listed(known.value), change="write one of them",
                source=stamp.catalogue.offerings.sources[known.source],
            )  # fmt: skip


def _zone_has_subnet(stamp: Stamp) -> Iterable[Finding]:
    zone, present = stamp.environment.capacity.zone, [zone for _, zone in zones(stamp)]
    if zone not in present:
        where = "network.zones" if isinstance(stamp.environment.network, NewNetwork) else "network.subnets"
        yield Finding(
            path="capacity.zone", got=f"{zone}, which has no subnet", allowed=listed(dict.fromkeys(present)),
            change=f"add {zone} to {where}",
        )  # fmt: skip


def _system_nodes(stamp: Stamp) -> Iterable[Finding]:
    kind, region = stamp.environment.cluster.system_nodes.instance_type, stamp.environment.region
    offered = stamp.catalogue.offerings.offerings.get(kind, {}).get(region)
    named = {zone for _, zone in zones(stamp)}
    if offered is not None and named.isdisjoint(offered.value):
        yield Finding(
            path="cluster.system_nodes.instance_type", got=f"{kind}, which none of {listed(sorted(named))} offers",
            allowed=f"a type of the network's zones; {kind} is in {listed(offered.value)}",
            change="add one of these zones to the network",
            source=stamp.catalogue.offerings.sources[offered.source],
        )  # fmt: skip


def _kind(stamp: Stamp) -> Iterable[Finding]:
    capacity, kinds = stamp.environment.capacity, stamp.instance.capacity_kinds
    if capacity.kind not in kinds.value:
        yield Finding(
            path="capacity.kind", got=f"{capacity.kind} for {capacity.instance_type}", allowed=listed(kinds.value),
            change="write one of them", source=stamp.catalogue.instances.sources[kinds.source],
        )  # fmt: skip


def _reservation_given(stamp: Stamp) -> Iterable[Finding]:
    capacity = stamp.environment.capacity
    if capacity.awaits_reservation:
        yield Finding(
            path="capacity.reservation_id", got="null" if capacity.reservation_id is None else "the placeholder",
            allowed=f"the id of your {capacity.kind}, cr-...",
            change="write it; until then the Fleet stack is left out",
        )  # fmt: skip


def _reservation_used(stamp: Stamp) -> Iterable[Finding]:
    capacity = stamp.environment.capacity
    if not capacity.needs_reservation and capacity.reservation_id is not None:
        yield Finding(
            path="capacity.reservation_id", got=f"{capacity.reservation_id} with kind {capacity.kind}",
            allowed=f"null with kind {capacity.kind}", change="delete it, or write kind: capacity-block or reservation",
        )  # fmt: skip


def _reservation_own(stamp: Stamp) -> Iterable[Finding]:
    mine = stamp.environment.capacity.reservation_id
    sharing = [other.name for other in stamp.others if other.capacity.reservation_id == mine]
    if mine not in {None, PLACEHOLDER_RESERVATION_ID} and sharing:
        yield Finding(
            path="capacity.reservation_id", got=f"{mine}, as in environment {listed(sharing)}",
            allowed="a reservation that no other environment raises nodes from",
            change="write its own, or raise one of them at a time",
        )  # fmt: skip


def _block_kind(stamp: Stamp) -> Iterable[Finding]:
    capacity = stamp.environment.capacity
    if capacity.block is not None and capacity.kind != "capacity-block":
        yield Finding(
            path="capacity.block", got=f"a block with kind {capacity.kind}", allowed=f"null with kind {capacity.kind}",
            change="delete it, or write kind: capacity-block",
        )  # fmt: skip


def _block_order(stamp: Stamp) -> Iterable[Finding]:
    block = stamp.environment.capacity.block
    if block is not None and block.ends <= block.starts:
        yield Finding(
            path="capacity.block.ends", got=f"{block.ends:{_MOMENT}}, which is not after its start",
            allowed=f"later than {block.starts:{_MOMENT}}",
            change="write both as the offer says: aws ec2 describe-capacity-blocks",
        )  # fmt: skip


def _block_length(stamp: Stamp) -> Iterable[Finding]:
    block = stamp.environment.capacity.block
    if block is not None and block.ends - block.starts > LONGEST_BLOCK:
        days = (block.ends - block.starts) / timedelta(days=1)
        yield Finding(
            path="capacity.block.ends", got=f"{block.ends:{_MOMENT}}, {days:.1f} days after its start",
            allowed=f"at most {LONGEST_BLOCK.days} days after it",
            change="write both as the offer says: aws ec2 describe-capacity-blocks",
        )  # fmt: skip


def _account(stamp: Stamp) -> Iterable[Finding]:
    if stamp.environment.account in EXAMPLE_ACCOUNTS:
        yield Finding(
            path="account", got=f"{stamp.environment.account}, an account of the AWS documentation",
            allowed="your own account",
            change="write it; until then the CDK CLI stops: your credentials are of another account",
        )  # fmt: skip


def _budget(stamp: Stamp) -> Iterable[Finding]:
    capacity, guard = stamp.environment.capacity, stamp.environment.guard
    run = compute_run_usd(stamp.environment)
    if guard.budget_usd < run:
        replaced = ", each replaced once while it lives" if capacity.kind == "spot" else ""
        yield Finding(
            path="guard.budget_usd", got=f"{guard.budget_usd:g}",
            allowed=f"at least {run:.2f}: {guard.max_hours} hours of {capacity.nodes} nodes{replaced}",
            change=f"raise it, or write max_hours: {max(1, int(guard.budget_usd / (run / guard.max_hours)))}",
        )  # fmt: skip


def _budget_shared(stamp: Stamp) -> Iterable[Finding]:
    """Find budgets that count another environment's runs: without tags each counts every instance of its type."""
    mine = stamp.environment
    place = (mine.account, mine.region, mine.capacity.instance_type)
    sharing = [other for other in stamp.others if (other.account, other.region, other.capacity.instance_type) == place]
    runs = sum(compute_run_usd(environment) for environment in (mine, *sharing))
    if counted_tag(mine) is None and sharing and mine.guard.budget_usd < runs:
        yield Finding(
            path="tags", got=f"none, beside {listed(other.name for other in sharing)} in the same account",
            allowed=f"one tag at least, or a budget_usd of {runs:.2f}: without tags the budget counts their runs too",
            change="add a tag, such as project: tandem",
        )  # fmt: skip


def _by_hand(stamp: Stamp) -> Iterable[Finding]:
    environment = stamp.environment
    if by_hand(environment):
        yield Finding(
            path="region", got=f"{environment.region}, where CloudFormation makes no budget",
            allowed=f"a budget {names.budget(environment)} that you made by hand",
            change="make it once (docs/runbook.md#a-budget-by-hand); until then two paths stop the fleet, not three",
        )  # fmt: skip


def _billing_code(stamp: Stamp) -> Iterable[Finding]:
    offerings, region = stamp.catalogue.offerings, stamp.environment.region
    offered = region in offerings.offerings.get(stamp.environment.capacity.instance_type, {})
    if offered and region not in offerings.billing_codes:
        yield Finding(
            path="region", got=f"{region}, whose billing code is not known",
            allowed=listed(sorted(offerings.billing_codes)),
            change=f"add its code to billing_codes of {_OFFERINGS}",
        )  # fmt: skip


def _idle(stamp: Stamp) -> Iterable[Finding]:
    guard = stamp.environment.guard
    if guard.idle_minutes >= guard.max_hours * 60:
        yield Finding(
            path="guard.idle_minutes", got=str(guard.idle_minutes),
            allowed=f"less than the {guard.max_hours * 60} minutes of max_hours {guard.max_hours}",
            change="write 30: nodes are stopped by max_hours before they could be found idle",
        )  # fmt: skip


def _storage_dated(stamp: Stamp) -> Iterable[Finding]:
    artifacts = stamp.environment.artifacts
    if artifacts.usd_per_gb_month is not None and artifacts.usd_per_gb_month_date is None:
        yield Finding(
            path="artifacts.usd_per_gb_month_date", got="no date", allowed="the day on which the price was read",
            change="add it, or delete usd_per_gb_month",
        )  # fmt: skip


def _efa(stamp: Stamp) -> Iterable[Finding]:
    if stamp.environment.capacity.efa:
        yield Finding(
            path="capacity.efa", got="true",
            allowed="false: no variant spans two nodes, and within one NeuronLink carries all",
            change="write false; it saves a network interface per card and its addresses",
        )  # fmt: skip


_OFFERINGS = "tandem/spec/data/platform/offerings.yaml"
_BLOCKS = "awsdocs/amazon-eks-user-guide latest/ug/ml/capacity-blocks-mng.adoc"
_BLOCK_DURATIONS = "docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-purchase.html"

RULES: tuple[Rule[Stamp], ...] = (
    Rule(
        id="region-offers-type", of=Stamp, severity="refusal", find=_region,
        sentence="the region offers the instance type", source=_OFFERINGS, date=date(2026, 11, 21),
    ),
    Rule(
        id="zone-offers-type", of=Stamp, severity="refusal", find=_zone,
        sentence="the zone offers the instance type", source=_OFFERINGS, date=date(2026, 11, 21),
    ),
    Rule(
        id="zone-of-region", of=Stamp, severity="refusal", find=_zones_of_region,
        sentence="every zone lies in the region", source=_OFFERINGS, date=date(2026, 11, 21),
    ),
    Rule(
        id="zone-has-subnet", of=Stamp, severity="refusal", find=_zone_has_subnet,
        sentence="the network has a subnet in the nodes' zone", source=_BLOCKS, date=date(2026, 11, 21),
    ),
    Rule(
        id="system-nodes-offered", of=Stamp, severity="refusal", find=_system_nodes,
        sentence="a zone of the network offers the system nodes' type", source=_OFFERINGS, date=date(2026, 11, 21),
    ),
    Rule(
        id="capacity-kind", of=Stamp, severity="refusal", find=_kind,
        sentence="the instance type can be bought this way",
        source="tandem/spec/data/platform/instances.yaml", date=date(2026, 11, 21),
    ),
    Rule(
        id="reservation-given", of=Stamp, severity="warning", find=_reservation_given,
        sentence="a Capacity Block or reservation has its id; without it the Fleet stack is left out",
        source=_BLOCKS, date=date(2026, 11, 21),
    ),
    Rule(
        id="reservation-used", of=Stamp, severity="refusal", find=_reservation_used,
        sentence="spot and on-demand nodes name no reservation", source=_BLOCKS, date=date(2026, 11, 21),
    ),
    Rule(
        id="reservation-own", of=Stamp, severity="warning", find=_reservation_own,
        sentence="no two environments raise nodes from the same reservation", source=_BLOCKS, date=date(2026, 11, 21),
    ),
    Rule(
        id="block-kind", of=Stamp, severity="refusal", find=_block_kind,
        sentence="only a Capacity Block has a start and an end", source=_BLOCK_DURATIONS, date=date(2026, 11, 21),
    ),
    Rule(
        id="block-order", of=Stamp, severity="refusal", find=_block_order,
        sentence="a Capacity Block ends after it starts", source=_BLOCK_DURATIONS, date=date(2026, 11, 21),
    ),
    Rule(
        id="block-length", of=Stamp, severity="refusal", find=_block_length,
        sentence="a Capacity Block is no longer than EC2 sells them", source=_BLOCK_DURATIONS, date=date(2026, 11, 21),
    ),
    Rule(
        id="account-real", of=Stamp, severity="warning", find=_account,
        sentence="the account is none of the AWS documentation's examples",
        source="docs.aws.amazon.com/IAM/latest/UserGuide: example accounts", date=date(2026, 11, 21),
    ),
    Rule(
        id="budget-holds-run", of=Stamp, severity="warning", find=_budget,
        sentence="the monthly budget holds one run of max_hours at the declared price",
        source="Tandem's own: the budget alarm would stop the run; it counts instances alone", date=date(2026, 11, 22),
    ),
    Rule(
        id="budget-own", of=Stamp, severity="warning", find=_budget_shared,
        sentence="the budget of an environment without tags holds the runs of all in its account that it counts",
        source="tandem/spec/budgets.py: without tags it counts every instance of the type", date=date(2026, 11, 22),
    ),
    Rule(
        id="budget-by-hand", of=Stamp, severity="warning", find=_by_hand,
        sentence="CloudFormation makes budgets in the region; elsewhere somebody makes this one by hand",
        source="CloudFormation's registry: AWS::Budgets::Budget by region", date=date(2026, 11, 22),
    ),
    Rule(
        id="billing-code", of=Stamp, severity="refusal", find=_billing_code,
        sentence="the region's billing code is known, by which the budget counts the fleet's instances",
        source=_OFFERINGS, date=date(2026, 11, 22),
    ),
    Rule(
        id="idle-before-max", of=Stamp, severity="warning", find=_idle,
        sentence="idle_minutes is less than max_hours", source="Tandem's own: else the idle stop never stops anything",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="storage-price-dated", of=Stamp, severity="refusal", find=_storage_dated,
        sentence="a price of storage has its date", source="Tandem's own: a price without a date is nobody's figure",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="efa-needless", of=Stamp, severity="warning", find=_efa,
        sentence="EFA is off, as no variant spans two nodes",
        source="aws-neuron/aws-neuron-sdk about-neuron/arch/neuron-hardware/trn2-arch.rst", date=date(2026, 8, 21),
    ),
)  # fmt: skip
