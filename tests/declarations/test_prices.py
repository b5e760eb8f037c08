"""The price of a unit: the operator's own, else the one read in the region, else none."""

from __future__ import annotations

from datetime import date

import pytest
from committed import environment, known

from tandem.declarations.environment import OwnPrices
from tandem.declarations.prices import NODE_PRICE, UnitPrice, find_price, has_nat


def test_an_own_price_comes_first():
    prices = OwnPrices(date=date(2026, 11, 28), nat_gb=0.5)
    own = environment("post-us-east-2").model_copy(update={"prices": prices})

    assert find_price(own, known(), "nat_gb") == UnitPrice(0.5, is_verified=True)


def test_a_price_of_the_region_has_no_other_region():
    assert find_price(environment("post-us-east-2"), known(), "nat_gb").region == ""


def test_a_watch_price_names_the_region_in_which_it_was_read():
    price = find_price(environment("dev-trn2-3xlarge"), known(), "dashboard_month")

    assert price.region == known().watch_prices.region


@pytest.mark.parametrize("name", ["nat_gb", NODE_PRICE])
def test_a_region_that_nobody_read_has_no_price(name):
    assert find_price(environment("dev-trn2-3xlarge"), known(), name).usd is None


@pytest.mark.parametrize(("name", "is_paid"), [("post-us-east-2", True), ("private", False)])
def test_only_a_network_of_its_own_pays_nat(name, is_paid):
    place = environment("post-us-east-2")
    if name == "private":
        network = place.network.model_copy(update={"nat": "none"})
        place = place.model_copy(update={"network": network})

    assert has_nat(place) == is_paid
