"""What a copied file still has of the file it was copied from: accounts, principals and prices of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from tandem.rules.contexts import EnvironmentContext
from tandem.rules.rule import RuleFinding, RuleList
from tandem.spec.environment import EXAMPLE_ACCOUNTS, ClusterAccess

_EXAMPLE = re.compile(rf"(?<![0-9])({'|'.join(sorted(EXAMPLE_ACCOUNTS))})(?![0-9])")

RULES = RuleList()


def _yield_texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key path, text) of every text of a record, keys of mappings included."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, child in value.items():
            child_path = f"{path}.{key}" if path else str(key)
            yield child_path, str(key)
            yield from _yield_texts(child, child_path)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _yield_texts(child, f"{path}[{index}]")


@RULES.refuse("example-leftover", "docs.aws.amazon.com/IAM/latest/UserGuide: example accounts", "2026-11-21")
def _find_example_accounts(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """An environment in an account of its own names no account of the AWS documentation."""
    environment = context.environment
    if environment.account in EXAMPLE_ACCOUNTS:  # it is an example itself; account-real says so
        return
    for path, text in _yield_texts(environment.model_dump(mode="json", exclude={"account"})):
        match = _EXAMPLE.search(text)
        if match:
            yield RuleFinding(
                path=path, got=text, allowed=f"nothing of {match[0]}, an account of the AWS documentation",
                change="write your own: this one came with a copied file",
            )  # fmt: skip


@RULES.warn(
    "principal-own", "Tandem's own: an access entry for a principal of another account is unproven", "2026-11-22"
)
def _find_foreign_principals(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Everybody named in `cluster.access` is of the environment's account."""
    account, access = context.environment.account, context.environment.cluster.access
    for kind in ClusterAccess.model_fields:
        for index, arn in enumerate(getattr(access, kind)):
            owner = arn.split(":")[4]
            is_example = owner in EXAMPLE_ACCOUNTS and account not in EXAMPLE_ACCOUNTS  # example-leftover refuses it
            if owner != account and not is_example:
                yield RuleFinding(
                    path=f"cluster.access.{kind}[{index}]", got=f"{arn} in an environment of account {account}",
                    allowed=f"a principal of account {account}",
                    change=f"write a role of {account}; one that people of {owner} may assume lets them in",
                )  # fmt: skip


@RULES.warn("price-own", "Tandem's own: every cost that is shown follows from it", "2026-11-22")
def _find_foreign_price(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The price of a node-hour is of the declared instance type and kind."""
    capacity = context.environment.capacity
    purchase = f"{capacity.instance_type} {capacity.kind}"
    if capacity.usd_per_hour_of not in {None, purchase}:
        yield RuleFinding(
            path="capacity.usd_per_hour_of", got=f"{capacity.usd_per_hour_of} with {purchase}", allowed=purchase,
            change=f"read the price of {purchase} and write it, its day and what it is of",
        )  # fmt: skip
        return
    other_environments = (
        other_environment
        for other_environment in context.other_environments
        if capacity.usd_per_hour_of is None and capacity.usd_per_hour > 0
    )
    for other_environment in other_environments:
        other_capacity = other_environment.capacity
        if (
            other_capacity.usd_per_hour == capacity.usd_per_hour
            and f"{other_capacity.instance_type} {other_capacity.kind}" != purchase
        ):
            yield RuleFinding(
                path="capacity.usd_per_hour",
                got=f"{capacity.usd_per_hour:g}, the price of {other_capacity.instance_type} "
                f"{other_capacity.kind} in {other_environment.name}",
                allowed=f"the price of {purchase}",
                change=f"read the price of {purchase}, and write usd_per_hour_of: {purchase}",
            )
            return
