"""Names of private ECR repositories, and what pulling from one takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from stacks.policy import allow
from tandem.spec.images import PRIVATE_ECR

# the last two: a pull-through cache fetches on the first pull, in the name of who pulls (ECR user guide,
# "Sync an upstream registry with an Amazon ECR private registry", required IAM permissions)
PULL = (
    "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer",
    "ecr:BatchImportUpstreamImage", "ecr:CreateRepository",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateRepository:
    """A repository of some account's private registry."""

    host: str
    account: str
    region: str
    name: str

    @classmethod
    def of(cls, reference: str) -> Self | None:
        """Return the repository of `[oci://]host/name[:tag][@digest]`, or None where it is not in private ECR."""
        found = PRIVATE_ECR.match(reference.removeprefix("oci://"))
        return cls(**found.groupdict()) if found else None

    def arn(self, partition: str) -> str:
        """Return the repository's ARN."""
        return f"arn:{partition}:ecr:{self.region}:{self.account}:repository/{self.name}"


def login() -> dict[str, Any]:
    """Return the right to log in to private registries; the repositories' own rights decide what it opens."""
    return allow(["ecr:GetAuthorizationToken"], ["*"])
