"""The log groups of an environment, by name: CloudWatch Logs searches names and nothing else in all regions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.ops.destroy.account import AccountClients
from tandem.ops.ownership import ResourceOwnership

RETENTION_NOTE = "builds of images; kept so that a deploy that was rolled back says why, until its retention ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroup:
    """One log group.

    Args:
        size_bytes: bytes stored.
        retain: whether its stack retains it on purpose.
    """

    name: str
    size_bytes: int
    retain: bool


def list_log_groups(account: AccountClients, ownership: ResourceOwnership) -> Iterator[LogGroup]:
    """Yield the environment's log groups.

    Raises:
        ExternalError: CloudWatch Logs does not list them.
    """
    where = f"log groups of {account.name}"
    for row in account.list_rows("logs", "DescribeLogGroups", "logGroups", where, logGroupNamePattern=account.name):
        name = str(row["logGroupName"])
        if ownership.has_own_name(name) or ownership.find_stack_kind(name):
            retain = ownership.find_stack_kind(name) == "Image" and "Logs" in name
            yield LogGroup(name=name, size_bytes=int(row.get("storedBytes", 0)), retain=retain)
