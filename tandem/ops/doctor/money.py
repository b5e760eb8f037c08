"""Group capacity: whether the budget sees what the environment costs."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.ops.doctor.account import Account
from tandem.ops.doctor.line import Finding, ok, unknown, warn
from tandem.ops.doctor.subject import Subject
from tandem.ops.fault import DeniedError
from tandem.shell_command import quote_command
from tandem.spec.budgets import counted_tag

# what a member of an organization is told, whatever its identity may do (hashicorp/terraform-provider-aws#37636)
MEMBER = "Linked account doesn't have access to cost allocation tags"


def cost_tag(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the tag by which the budget counts is activated: AWS Billing ignores any other."""
    tag = counted_tag(subject.environment)
    if tag is None:
        yield ok("the budget counts the whole account, because the environment declares no tags")
        return
    activate = quote_command(
        "aws", "ce", "update-cost-allocation-tags-status", "--cost-allocation-tags-status",
        f"TagKey={tag},Status=Active",
    )  # fmt: skip
    try:
        found = account.ask("ce", "ListCostAllocationTags", tag, TagKeys=[tag])
    except DeniedError as error:
        if MEMBER not in error.problem:
            raise
        yield unknown(
            f"only the organization's management account sees whether the cost allocation tag {tag} is activated; "
            "until it is, the budget counts nothing and stops nothing", "let whoever has that account see to it",
            activate,
        )  # fmt: skip
        return
    rows = [row for row in (found or {})["CostAllocationTags"] if row["TagKey"] == tag]
    if not rows:
        yield warn(
            f"AWS Billing does not know the tag {tag} yet: the budget counts nothing and stops nothing",
            "deploy, and activate the tag within a day, when AWS Billing lists it", activate,
        )  # fmt: skip
    elif rows[0]["Status"] != "Active":
        yield warn(
            f"the cost allocation tag {tag} is not activated: the budget counts nothing and stops nothing",
            "activate it; it takes up to a day, and what was spent before stays uncounted", activate,
        )  # fmt: skip
    else:
        yield ok(f"the cost allocation tag {tag} is activated: the budget counts this environment")
