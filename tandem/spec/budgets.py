"""Where CloudFormation makes a monthly budget, and whose cost it counts.

Sources: the registry's schemas as cfn-lint has them, held against this list by a test; AWS Billing user guide,
"Activating user-defined cost allocation tags".
"""

from __future__ import annotations

from tandem.spec import names
from tandem.spec.environment import Environment

# Regions whose CloudFormation has no AWS::Budgets::Budget. There the budget is made by hand (docs/runbook.md).
WITHOUT = frozenset({
    "af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-3", "ap-south-2", "ap-southeast-3",
    "ap-southeast-4", "ap-southeast-5", "ap-southeast-6", "ap-southeast-7", "ca-west-1", "eu-central-2",
    "eu-north-1", "eu-south-1", "eu-south-2", "il-central-1", "me-central-1", "mx-central-1",
    "us-gov-east-1", "us-gov-west-1",
})  # fmt: skip


# Of `guard.budget_usd`. AWS Budgets sends each notification once in a month, so a fleet that is raised again after a
# stop is stopped by the next threshold. A budget takes ten notifications (AWS Billing API reference, Notification).
# Another list needs another `names.budget` (docs/decisions/0018).
BUDGET_THRESHOLDS_PERCENT = (100, 125, 150, 200, 300)  # of the actual cost; each notifies the stop topic
FORECAST_THRESHOLD_PERCENT = 100  # of the forecast cost; it notifies people


def by_hand(environment: Environment) -> bool:
    """Whether somebody must make the budget, because CloudFormation has none in the region."""
    return environment.region in WITHOUT


def counted_tag(environment: Environment) -> str | None:
    """Return the key of the tag whose cost the budget counts; None: it counts the whole account's.

    Budgets sees a tag only once it is activated as a cost allocation tag; until then it sees no cost, and this path
    stops nothing.
    """
    return names.OWNER_TAG if environment.tags else None
