"""One unit's price in one environment: the operator's own, else the dated data's, else none.

Invariant: no price is guessed. One that nobody read in the region is None, and whoever adds prices
up names what is missing; prices of watching, images and builds are those of the one region that was
read, and say so.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.disk import GIB, UNKNOWN_GIB
from tandem.declarations.environment import Environment
from tandem.declarations.figure import DataFigure
from tandem.declarations.network_settings import NewNetwork
from tandem.declarations.platform import WatchPrices

# of the declared type of system nodes; every other name is a field of the data
NODE_PRICE = "system_node_hour"


@dataclass(frozen=True)
class UnitPrice:
    """USD of one unit.

    Args:
        usd: None where no source of the region's price is known.
        is_verified: whether AWS's own text was read, or it is the operator's own.
        region: in which it was read, if that is another than the environment's.
    """

    usd: float | None
    is_verified: bool
    region: str = ""


def find_price(environment: Environment, catalogue: Catalogue, name: str) -> UnitPrice:
    """Return the price of a unit.

    Args:
        environment: its own `prices` come first.
        catalogue: standing-prices.yaml and watch-prices.yaml in tandem/declarations/data/platform.
        name: a field of OwnPrices.
    """
    own_usd: float | None = getattr(environment.prices, name, None)
    if own_usd is not None:
        return UnitPrice(own_usd, is_verified=True)
    if name in WatchPrices.model_fields:
        figure: DataFigure[float] = getattr(catalogue.watch_prices, name)
        return UnitPrice(figure.value, figure.source.verified, catalogue.watch_prices.region)
    region_prices = catalogue.standing_prices.regions.get(environment.region)
    if region_prices is None:
        return UnitPrice(None, is_verified=False)
    standing_figure: DataFigure[float | None] | None
    if name == NODE_PRICE:
        standing_figure = region_prices.instance_hour.get(
            environment.cluster.system_nodes.instance_type
        )
    else:
        standing_figure = getattr(region_prices, name)
    if standing_figure is None:
        return UnitPrice(None, is_verified=False)
    return UnitPrice(standing_figure.value, standing_figure.source.verified)


def has_nat(environment: Environment) -> bool:
    """Whether the environment pays a NAT gateway; another network's owner pays for its own."""
    return isinstance(environment.network, NewNetwork) and environment.network.nat != "none"


def count_model_gb(catalogue: Catalogue, model_ids: tuple[str, ...]) -> float:
    """Return models' size in GB; a size without a source counts as the largest staged."""
    models = [catalogue.models[model_id] for model_id in model_ids]
    return sum(model.bytes.value or UNKNOWN_GIB * GIB for model in models) / 1e9
