"""What an environment costs in a month while its fleet is parked, and what one run of max hours costs beside that.

Invariant: a price that the data file does not have makes a part unknown, never free; the total is a lower bound then.

Not in it: what moves or grows, such as bytes through NAT, flow logs, requests and what the bucket keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.monitoring.cost import HOURS_PER_MONTH, MonitoringCost
from tandem.spec.budgets import compute_run_usd
from tandem.spec.disk import SYSTEM_NODE_ROOT_GIB
from tandem.spec.environment import Environment, NewNetwork
from tandem.spec.figure import DataFigure
from tandem.spec.interface_endpoints import list_endpoint_services
from tandem.spec.platform import RegionPrices, StandingPrices


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingPart:
    """One row of the parked cost.

    Args:
        name: what is paid for.
        explanation: how its amount comes about.
        usd: in a month; None where the price is not known.
    """

    name: str
    explanation: str
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedCost:
    """What an environment costs in a month while parked, and what a run costs beside it, in USD.

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
        """The total of the parts whose price is known."""
        return sum(part.usd for part in self.parts if part.usd is not None)

    @property
    def is_lower_bound(self) -> bool:
        """Whether a part's price is not known."""
        return any(part.usd is None for part in self.parts)


def compute_parked_cost(
    environment: Environment, monitoring_cost: MonitoringCost, prices: StandingPrices
) -> ParkedCost:
    """Return what stands while the fleet is parked, and a run of `guard.max_hours`.

    Args:
        environment: of good form.
        monitoring_cost: what watching it costs.
        prices: the dated data of tandem/spec/data/platform/standing-prices.yaml.
    """
    standing_parts = _list_standing_parts(environment, prices.regions.get(environment.region))
    monitoring_part = StandingPart(
        name="watching",
        explanation=f"metrics, alarms, dashboards, logs, keys, at prices of {monitoring_cost.region}; tandem check",
        usd=monitoring_cost.parked_usd,
    )
    return ParkedCost(
        parts=(*standing_parts, monitoring_part),
        run_hours=environment.guard.max_hours,
        run_usd=compute_run_usd(environment),
    )


def _list_standing_parts(environment: Environment, prices: RegionPrices | None) -> Iterator[StandingPart]:
    nodes, network = environment.cluster.system_nodes, environment.network
    yield _price_part("EKS control plane", "1 cluster", prices.cluster_hour if prices else None, HOURS_PER_MONTH)
    yield _price_part(
        "system nodes", f"{nodes.count} x {nodes.instance_type}",
        prices.instance_hour.get(nodes.instance_type) if prices else None, nodes.count * HOURS_PER_MONTH,
    )  # fmt: skip
    yield _price_part(
        "their volumes", f"{nodes.count} x {SYSTEM_NODE_ROOT_GIB} GiB gp3", prices.volume_gb_month if prices else None,
        nodes.count * SYSTEM_NODE_ROOT_GIB,
    )  # fmt: skip
    if not isinstance(network, NewNetwork):
        return  # its gateways and endpoints are paid by its owner
    gateways = {"none": 0, "single": 1, "per-zone": len(network.zones)}[network.nat]
    if gateways:
        hours = gateways * HOURS_PER_MONTH
        yield _price_part("NAT gateways", str(gateways), prices.nat_gateway_hour if prices else None, hours)
        yield _price_part(
            "their public addresses", str(gateways), prices.public_address_hour if prices else None, hours
        )
    endpoints = len(list_endpoint_services(environment))
    if endpoints:
        yield _price_part(
            "interface endpoints", f"{endpoints} in {len(network.zones)} zones",
            prices.endpoint_hour if prices else None, endpoints * len(network.zones) * HOURS_PER_MONTH,
        )  # fmt: skip


def _price_part(name: str, explanation: str, price: DataFigure[float | None] | None, amount: float) -> StandingPart:
    unit_usd = price.value if price is not None else None
    return StandingPart(name=name, explanation=explanation, usd=None if unit_usd is None else amount * unit_usd)
