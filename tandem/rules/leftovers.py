"""What a copied file still has of the file it was copied from: accounts, principals and prices of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

from tandem.rules.rule import Finding, Rule
from tandem.rules.subjects import Stamp
from tandem.spec.environment import EXAMPLE_ACCOUNTS, Access

_EXAMPLE = re.compile(rf"(?<![0-9])({'|'.join(sorted(EXAMPLE_ACCOUNTS))})(?![0-9])")


def _yield_texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key path, text) of every text of a record, keys of mappings included."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, child in value.items():
            place = f"{path}.{key}" if path else str(key)
            yield place, str(key)
            yield from _yield_texts(child, place)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _yield_texts(child, f"{path}[{index}]")


def _find_examples(stamp: Stamp) -> Iterable[Finding]:
    """Find texts that name an account of the AWS documentation."""
    environment = stamp.environment
    if environment.account in EXAMPLE_ACCOUNTS:  # it is an example itself; account-real says so
        return
    for path, text in _yield_texts(environment.model_dump(mode="json", exclude={"account"})):
        match = _EXAMPLE.search(text)
        if match:
            yield Finding(
                path=path, got=text, allowed=f"nothing of {match[0]}, an account of the AWS documentation",
                change="write your own: this one came with a copied file",
            )  # fmt: skip


def _find_principals(stamp: Stamp) -> Iterable[Finding]:
    """Find people of another account than the environment's."""
    account, access = stamp.environment.account, stamp.environment.cluster.access
    for kind in Access.model_fields:
        for index, arn in enumerate(getattr(access, kind)):
            owner = arn.split(":")[4]
            leftover = owner in EXAMPLE_ACCOUNTS and account not in EXAMPLE_ACCOUNTS  # example-leftover refuses it
            if owner != account and not leftover:
                yield Finding(
                    path=f"cluster.access.{kind}[{index}]", got=f"{arn} in an environment of account {account}",
                    allowed=f"a principal of account {account}",
                    change=f"write a role of {account}; one that people of {owner} may assume lets them in",
                )  # fmt: skip


def _find_price(stamp: Stamp) -> Iterable[Finding]:
    """Find a price of something else: as it says itself, or as another environment has it for another purchase."""
    capacity = stamp.environment.capacity
    bought = f"{capacity.instance_type} {capacity.kind}"
    if capacity.usd_per_hour_of not in {None, bought}:
        yield Finding(
            path="capacity.usd_per_hour_of", got=f"{capacity.usd_per_hour_of} with {bought}", allowed=bought,
            change=f"read the price of {bought} and write it, its day and what it is of",
        )  # fmt: skip
        return
    others = (other for other in stamp.others if capacity.usd_per_hour_of is None and capacity.usd_per_hour > 0)
    for other in others:
        theirs = other.capacity
        if theirs.usd_per_hour == capacity.usd_per_hour and f"{theirs.instance_type} {theirs.kind}" != bought:
            yield Finding(
                path="capacity.usd_per_hour",
                got=f"{capacity.usd_per_hour:g}, the price of {theirs.instance_type} {theirs.kind} in {other.name}",
                allowed=f"the price of {bought}",
                change=f"read the price of {bought}, and write usd_per_hour_of: {bought}",
            )  # fmt: skip
            return


RULES: tuple[Rule[Stamp], ...] = (
    Rule(
        id="example-leftover", of=Stamp, severity="refusal", find=_find_examples,
        sentence="an environment in an account of its own names no account of the AWS documentation",
        source="docs.aws.amazon.com/IAM/latest/UserGuide: example accounts", date=date(2026, 11, 21),
    ),
    Rule(
        id="principal-own", of=Stamp, severity="warning", find=_find_principals,
        sentence="everybody named in `cluster.access` is of the environment's account",
        source="Tandem's own: an access entry for a principal of another account is unproven", date=date(2026, 11, 22),
    ),
    Rule(
        id="price-own", of=Stamp, severity="warning", find=_find_price,
        sentence="the price of a node-hour is of the declared instance type and kind",
        source="Tandem's own: every cost that is shown follows from it", date=date(2026, 11, 22),
    ),
)  # fmt: skip
