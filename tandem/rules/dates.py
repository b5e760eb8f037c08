"""Dates that are over or to come; only a command that may read the clock asks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from tandem.rules.contexts import DateContext
from tandem.rules.rule import RuleFinding, RuleList

EAST_OF_UTC = timedelta(hours=14)  # where a day begins first; a price may be read there on a day that UTC has not
_MOMENT = "%Y-%m-%dT%H:%MZ"

RULES = RuleList()


@RULES.warn("block-over", "docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-purchase.html", "2026-11-21")
def _find_past_block(context: DateContext) -> Iterable[RuleFinding]:
    """The Capacity Block is not over."""
    block = context.environment.capacity.block
    if block is not None and block.ends <= context.now:
        yield RuleFinding(
            path="capacity.block.ends", got=f"{block.ends:{_MOMENT}}, which is over",
            allowed=f"later than {context.now:{_MOMENT}}",
            change="write the block you have now with its reservation_id, or block: null",
        )  # fmt: skip


@RULES.refuse("price-to-come", "Tandem's own: nobody has read a price of tomorrow", "2026-11-22")
def _find_future_price(context: DateContext) -> Iterable[RuleFinding]:
    """A price was read today or before."""
    environment, latest = context.environment, (context.now + EAST_OF_UTC).date()
    for path, day in (
        ("capacity.usd_per_hour_date", environment.capacity.usd_per_hour_date),
        ("artifacts.usd_per_gb_month_date", environment.artifacts.usd_per_gb_month_date),
    ):
        if day is not None and day > latest:
            yield RuleFinding(
                path=path, got=f"{day}, which is to come", allowed=f"{latest} or earlier",
                change="write the day on which you read the price",
            )  # fmt: skip
