"""The log groups of an environment, by name: CloudWatch Logs searches names and nothing else in all regions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.ops.destroy.account import Account
from tandem.ops.owned import Owned

KEPT_LOGS = "builds of images; kept so that a deploy that was rolled back says why, until its retention ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroup:
    """One log group.

    Args:
        size: bytes stored.
        kept: whether its stack retains it on purpose.
    """

    name: str
    size: int
    kept: bool


def log_groups(account: Account, owned: Owned) -> Iterator[LogGroup]:
    """Yield the environment's log groups.

    Raises:
        OpsError: CloudWatch Logs does not list them.
    """
    where = f"log groups of {account.name}"
    for row in account.pages("logs", "DescribeLogGroups", "logGroups", where, logGroupNamePattern=account.name):
        name = str(row["logGroupName"])
        if owned.named(name) or owned.generated(name):
            kept = owned.generated(name) == "Image" and "Logs" in name
            yield LogGroup(name=name, size=int(row.get("storedBytes", 0)), kept=kept)
