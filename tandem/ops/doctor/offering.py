"""Where this account is offered an instance type."""

from __future__ import annotations

from tandem.ops.doctor.account import AllowlistedAccount


def list_offer_zones(account: AllowlistedAccount, instance_type: str) -> set[str]:
    """Return the zone ids of the region that offer a type; types may be hidden from an account.

    Raises:
        ExternalError: EC2 could not be asked.
    """
    rows = account.list_rows(
        "ec2", "DescribeInstanceTypeOfferings", "InstanceTypeOfferings", instance_type,
        LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": [instance_type]}],
    )  # fmt: skip
    return {str(row["Location"]) for row in rows}
