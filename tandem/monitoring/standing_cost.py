"""An environment's cost by the month with its fleet parked, once at its start, and by run.

Invariant: a price that nobody read makes a part unknown, never free; whoever prints a sum names
these parts beside it.

Not included: costs that vary or grow, such as other bytes through NAT, flow logs, requests and the
bucket's content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from tandem.declarations.budgets import compute_run_usd
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.disk import SYSTEM_NODE_ROOT_GIB
from tandem.declarations.environment import Environment
from tandem.declarations.interface_endpoints import list_endpoint_services
from tandem.declarations.network_settings import NewNetwork
from tandem.declarations.prices import NODE_PRICE, count_model_gb, find_price, has_nat
from tandem.declarations.project_image import BUILD_MINUTES, list_hosted_images
from tandem.monitoring.cost import DAYS_PER_MONTH, HOURS_PER_MONTH, MonitoringCost

# Estimate, high: five kinds of logs of a quiet cluster are "a few hundred megabytes" a day
# (https://abd-ulbasit.github.io/bookstore-kubernetes-guide/14-eks-in-production-a-to-z/05-logging-and-metrics-cost/).
CONTROL_PLANE_GB_PER_DAY = 0.5
# What our images hold unpacked (docs/image.md); ECR counts them packed, so this is above what it
# counts.
IMAGES_GB = 2.1


@dataclass(frozen=True)
class StandingPart:
    """One row of a cost.

    Args:
        group: the word for it in one line; several parts may share one.
        name: of the paid item.
        explanation: how its amount is computed.
        usd: None if the price is unknown.
        foreign_regions: other regions, at whose prices it is.
    """

    group: str
    name: str
    explanation: str
    usd: float | None
    foreign_regions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParkedCost:
    """Cost of an environment, in USD.

    Args:
        region: of the environment.
        parts: of a month while parked.
        start_parts: paid once, for the first deploy and the first staging.
        run_hours: guard.max_hours.
        run_usd: all nodes for so long, at `capacity.usd_per_hour`.
        day_usd: all nodes for a day, likewise.
    """

    region: str
    parts: tuple[StandingPart, ...]
    start_parts: tuple[StandingPart, ...]
    run_hours: int
    run_usd: float
    day_usd: float

    @property
    def usd(self) -> float:
        """The total of a month, of the parts with a known price."""
        return sum(part.usd for part in self.parts if part.usd is not None)

    @property
    def start_usd(self) -> float:
        """The total of what is paid once, of the parts with a known price."""
        return sum(part.usd for part in self.start_parts if part.usd is not None)


def list_unpriced(parts: Iterable[StandingPart]) -> tuple[str, ...]:
    """Return the groups that hold a part without a price, each once."""
    return tuple(dict.fromkeys(part.group for part in parts if part.usd is None))


def list_foreign_regions(parts: Iterable[StandingPart]) -> tuple[str, ...]:
    """Return the other regions, at whose prices some part is, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(part.foreign_regions for part in parts)))


def compute_parked_cost(monitoring_cost: MonitoringCost, catalogue: Catalogue) -> ParkedCost:
    """Return an environment's cost parked, at its start, and for a run of `guard.max_hours`.

    Args:
        monitoring_cost: of watching the environment.
        catalogue: the dated prices, and the models' sizes.
    """
    environment = monitoring_cost.scope.environment
    capacity = environment.capacity
    watching = StandingPart(
        "watching",
        "watching",
        f"metrics, alarms, dashboards, logs, keys, at prices of {monitoring_cost.region}",
        monitoring_cost.parked_usd,
        _list_others({monitoring_cost.region}, environment),
    )
    monthly_rows = (
        *_list_cluster_rows(environment),
        *_list_network_rows(environment),
        *_list_image_rows(_count_images(monitoring_cost)),
    )
    return ParkedCost(
        region=environment.region,
        parts=(*(_price_row(environment, catalogue, row) for row in monthly_rows), watching),
        start_parts=tuple(
            _price_row(environment, catalogue, row)
            for row in _list_start_rows(monitoring_cost, catalogue)
        ),
        run_hours=environment.guard.max_hours,
        run_usd=compute_run_usd(environment),
        day_usd=24 * capacity.nodes * capacity.usd_per_hour,
    )


CostRow = tuple[str, str, str, tuple[tuple[str, float], ...]]
"""The group, the paid item, how its amount is computed, and its prices (fields of OwnPrices), each
with an amount."""


def _list_cluster_rows(environment: Environment) -> Iterator[CostRow]:
    """Yield what the cluster costs in a month."""
    nodes = environment.cluster.system_nodes
    node_hours = nodes.count * HOURS_PER_MONTH
    volume_gb = nodes.count * SYSTEM_NODE_ROOT_GIB
    yield "EKS", "EKS control plane", "1 cluster", (("cluster_hour", HOURS_PER_MONTH),)
    log_gb = CONTROL_PLANE_GB_PER_DAY * DAYS_PER_MONTH
    kept_gb = CONTROL_PLANE_GB_PER_DAY * environment.log_retention_days
    log_text = (
        f"{log_gb:.1f} GB, estimated: {CONTROL_PLANE_GB_PER_DAY:g} GB a day, {kept_gb:.1f} GB kept"
    )
    yield (
        "EKS",
        "its logs",
        log_text,
        (("log_gb_ingested", log_gb), ("log_gb_month_stored", kept_gb)),
    )
    yield (
        "EKS",
        "key of its secrets",
        "1; as much again after each of the first two rotations",
        (("key_month", 1),),
    )
    yield (
        "nodes",
        "system nodes",
        f"{nodes.count} x {nodes.instance_type}",
        ((NODE_PRICE, node_hours),),
    )
    volume_text = f"{nodes.count} x {SYSTEM_NODE_ROOT_GIB} GiB gp3"
    yield "nodes", "their volumes", volume_text, (("volume_gb_month", volume_gb),)


def _list_network_rows(environment: Environment) -> Iterator[CostRow]:
    """Yield our network's monthly cost; another's owner pays its gateways and endpoints."""
    network = environment.network
    if not isinstance(network, NewNetwork):
        return
    zones = len(network.zones)
    gateways = {"none": 0, "single": 1, "per-zone": zones}[network.nat]
    if gateways:
        hours = gateways * HOURS_PER_MONTH
        yield "NAT", "NAT gateways", str(gateways), (("nat_gateway_hour", hours),)
        yield "NAT", "their public addresses", str(gateways), (("public_address_hour", hours),)
    endpoints = len(list_endpoint_services(environment))
    if endpoints:
        hours = endpoints * zones * HOURS_PER_MONTH
        yield (
            "endpoints",
            "interface endpoints",
            f"{endpoints} in {zones} zones",
            (("endpoint_hour", hours),),
        )


def _count_images(monitoring_cost: MonitoringCost) -> int:
    """Return how many images of ours the environment's pods run."""
    return len(list_hosted_images(scope.experiment for scope in monitoring_cost.scope.experiments))


def _list_image_rows(image_count: int) -> Iterator[CostRow]:
    """Yield what images of ours cost in a month, one of each kept."""
    text = f"{image_count}, at most {IMAGES_GB:g} GB; each further tag as much again"
    yield "ECR", "images of ours", text, (("image_gb_month", IMAGES_GB),)


def _list_start_rows(monitoring_cost: MonitoringCost, catalogue: Catalogue) -> Iterator[CostRow]:
    """Yield what is paid once: builds, and the models' way through NAT."""
    image_count = _count_images(monitoring_cost)
    minutes = image_count * BUILD_MINUTES
    build_text = f"{image_count}, at most {BUILD_MINUTES} min each, again for each new tag"
    yield "builds", "builds of images", build_text, (("build_minute", minutes),)
    if has_nat(monitoring_cost.scope.environment):
        scopes = monitoring_cost.scope.experiments
        models = chain.from_iterable(scope.experiment.all_models() for scope in scopes)
        model_gb = count_model_gb(catalogue, tuple(dict.fromkeys(models)))
        yield (
            "staging through NAT",
            "staging through NAT",
            f"{model_gb:.1f} GB of models",
            (("nat_gb", model_gb),),
        )


def _price_row(environment: Environment, catalogue: Catalogue, row: CostRow) -> StandingPart:
    """Return a row at the environment's prices."""
    group, name, explanation, amounts = row
    total_usd = 0.0
    price_regions = set()
    for price_name, amount in amounts:
        price = find_price(environment, catalogue, price_name)
        if price.usd is None:
            return StandingPart(group, name, explanation, None)
        total_usd += price.usd * amount
        price_regions.add(price.region)
    foreign_regions = _list_others(price_regions, environment)
    note = f", at prices of {', '.join(foreign_regions)}" if foreign_regions else ""
    return StandingPart(group, name, f"{explanation}{note}", total_usd, foreign_regions)


def _list_others(price_regions: set[str], environment: Environment) -> tuple[str, ...]:
    return tuple(sorted(price_regions - {"", environment.region}))
