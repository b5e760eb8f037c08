"""Monthly cost of an environment while its fleet is parked, and the cost of one run of max hours in addition.

Invariant: a price that the data file lacks makes a part unknown, never free; then the total is a lower bound.

Not included: costs that vary or grow, such as bytes through NAT, flow logs, requests and the bucket's content.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.monitoring.cost import HOURS_PER_MONTH, MonitoringCost
from tandem.spec.budgets import compute_run_usd
from tandem.spec.disk import SYSTEM_NODE_ROOT_GIB
from tandem.spec.environment import Environment, NewNetwork
from tandem.spec.interface_endpoints import list_endpoint_services
from tandem.spec.platform import RegionPrices, StandingPrices


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingPart:
    """One row of the parked cost.

    Args:
        name: of the paid item.
        explanation: how its amount is computed.
        usd: in a month; None if the price is unknown.
    """

    name: str
    explanation: str
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedCost:
    """Monthly cost of an environment while parked, and the cost of a run in addition, in USD.

    Args:
        parts: every row.
        run_hours: guard.max_hours.
        run_usd: all nodes for so long, at `capacity.usd_per_hour`.
    """

    parts: tuple[StandingPart, ...]
    run_hours: int
    run_usd: float

    @property
    def usd(self) -> float:
        """The total of the parts with a known price."""
        return sum(part.usd for part in self.parts if part.usd is not None)

    @property
    def is_lower_bound(self) -> bool:
        """Whether a part's price is unknown."""
        return any(part.usd is None for part in self.parts)


def compute_parked_cost(
    environment: Environment, monitoring_cost: MonitoringCost, prices: StandingPrices
) -> ParkedCost:
    """Return the cost while the fleet is parked, and that of a run of `guard.max_hours`.

    Args:
        environment: valid.
        monitoring_cost: of watching the environment.
        prices: the dated data of tandem/spec/data/platform/standing-prices.yaml.
    """
    nodes, network = environment.cluster.system_nodes, environment.network
    region_prices = prices.regions.get(environment.region)
    rows = [
        ("EKS control plane", "1 cluster", "cluster_hour", HOURS_PER_MONTH),
        ("system nodes", f"{nodes.count} x {nodes.instance_type}", nodes.instance_type, nodes.count * HOURS_PER_MONTH),
        (
            "their volumes", f"{nodes.count} x {SYSTEM_NODE_ROOT_GIB} GiB gp3", "volume_gb_month",
            nodes.count * SYSTEM_NODE_ROOT_GIB,
        ),
    ]  # fmt: skip
    if isinstance(network, NewNetwork):  # the owner of another network pays for its gateways and endpoints
        gateways = {"none": 0, "single": 1, "per-zone": len(network.zones)}[network.nat]
        endpoints, zones = len(list_endpoint_services(environment)), len(network.zones)
        if gateways:
            rows.append(("NAT gateways", str(gateways), "nat_gateway_hour", gateways * HOURS_PER_MONTH))
            rows.append(("their public addresses", str(gateways), "public_address_hour", gateways * HOURS_PER_MONTH))
        if endpoints:
            explanation = f"{endpoints} in {zones} zones"
            rows.append(("interface endpoints", explanation, "endpoint_hour", endpoints * zones * HOURS_PER_MONTH))
    monitoring_part = StandingPart(
        name="watching",
        explanation=f"metrics, alarms, dashboards, logs, keys, at prices of {monitoring_cost.region}",
        usd=monitoring_cost.parked_usd,
    )
    return ParkedCost(
        parts=(*(_price_part(region_prices, *row) for row in rows), monitoring_part),
        run_hours=environment.guard.max_hours,
        run_usd=compute_run_usd(environment),
    )


def _price_part(
    prices: RegionPrices | None, name: str, explanation: str, price_name: str, amount: float
) -> StandingPart:
    """Return a row; `price_name` is a field of the region's prices, or an instance type."""
    price = None
    if prices is not None:
        price = prices.instance_hour.get(price_name) or getattr(prices, price_name, None)
    usd = None if price is None or price.value is None else amount * price.value
    return StandingPart(name=name, explanation=explanation, usd=usd)
