"""Group capacity: what AWS's Price List says of the units an environment's costs are counted in.

Invariant: it only reads, and changes no cost by itself: it prints the section `prices` to write.

Source: AWS Price List API reference, GetProducts; the usage types are those of AWS's bills, behind
the region's code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.prices import NODE_PRICE, find_price
from tandem.ops.account import AccountClients
from tandem.ops.doctor.context import DoctorContext, Finding

PRICING_REGION = "us-east-1"  # of the API's few endpoints; it knows the prices of every region


class PricedUnit(NamedTuple):
    """A unit as the Price List has it.

    Args:
        name: a field of OwnPrices.
        service: its service code.
        usage: its usage type, without the region's code.
        filters: further attributes that tell it from others of that usage type.
    """

    name: str
    service: str
    usage: str
    filters: tuple[tuple[str, str], ...] = ()


def check_unit_prices(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Compare the prices that costs are counted with, and find those that are missing."""
    environment = context.environment
    code = context.catalogue.offerings.billing_codes.get(environment.region)
    if code is None or names.aws_partition(environment.region) != "aws":
        message = f"not asked: no billing code of {environment.region} is known"
        yield Finding("ok", message, "write your own `prices`")
        return
    changes = {}
    units = list(_list_units(environment))
    for unit in units:
        listed_usd = _read_price(account, unit, code.value, environment.region)
        counted_usd = find_price(environment, context.catalogue, unit.name).usd
        if listed_usd is None:
            place = f"{unit.usage} in {environment.region}"
            yield Finding("unknown", f"the Price List has no single price of {place}")
        elif listed_usd != counted_usd:
            changes[unit.name] = listed_usd
            counted = "not known"
            if counted_usd is not None:
                counted = f"counted with {counted_usd:g}"
            message = f"{unit.name} is {counted}, the Price List has {listed_usd:g} USD"
            yield Finding("warn", message, "see the last line")
    if changes:
        message = f"{len(changes)} of {len(units)} prices are to be written"
        action = "write the section, or your own discounted prices, into the environment's file"
        yield Finding("warn", message, action, _build_section(context, changes))
    else:
        yield Finding("ok", f"no price of {len(units)} differs from the Price List's")


def _build_section(context: DoctorContext, changes: Mapping[str, float]) -> str:
    """Return the section `prices` to write, with what is declared already."""
    prices = context.environment.prices
    declared = prices.model_dump(exclude_none=True) if prices else {}
    values = {**declared, **changes, "date": f"{context.now:%Y-%m-%d}"}
    section = ", ".join(f"{name}: {value}" for name, value in sorted(values.items()))
    return f"prices: {{{section}}}"


def _list_units(environment: Environment) -> Iterator[PricedUnit]:
    """Yield the units that stand while the fleet is parked."""
    node_type = environment.cluster.system_nodes.instance_type
    yield PricedUnit("cluster_hour", "AmazonEKS", "AmazonEKS-Hours:perCluster")
    # RunInstances alone is Linux without a licence; other systems have a code behind it
    yield PricedUnit(
        NODE_PRICE, "AmazonEC2", f"BoxUsage:{node_type}", (("operation", "RunInstances"),)
    )
    yield PricedUnit("volume_gb_month", "AmazonEC2", "EBS:VolumeUsage.gp3")
    yield PricedUnit("nat_gateway_hour", "AmazonEC2", "NatGateway-Hours")
    yield PricedUnit("nat_gb", "AmazonEC2", "NatGateway-Bytes")
    yield PricedUnit("public_address_hour", "AmazonVPC", "PublicIPv4:InUseAddress")
    yield PricedUnit("endpoint_hour", "AmazonVPC", "VpcEndpoint-Hours")


def _read_price(account: AccountClients, unit: PricedUnit, code: str, region: str) -> float | None:
    """Return the on-demand price of the first tier; None unless all products found agree on one."""
    attributes = {"regionCode": region, "usagetype": f"{code}-{unit.usage}", **dict(unit.filters)}
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in attributes.items()
    ]
    answer = account.ask(
        "pricing",
        "GetProducts",
        unit.usage,
        region=PRICING_REGION,
        ServiceCode=unit.service,
        Filters=filters,
    )
    products = map(json.loads, answer["PriceList"])
    prices = set(chain.from_iterable(map(_list_prices, products)))
    return prices.pop() if len(prices) == 1 else None


def _list_prices(product: dict[str, Any]) -> Iterator[float]:
    """Yield the USD of each on-demand term of a product, of its first tier."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd = float(dimension["pricePerUnit"].get("USD", 0))
            if usd and float(dimension.get("beginRange", 0)) == 0:
                yield usd
