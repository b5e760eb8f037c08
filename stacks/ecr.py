"""Names of private ECR repositories, and what pulling from one takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

from stacks.policy import allow
from tandem.spec.images import PRIVATE_ECR

# A pull-through cache fetches on the first pull, in the name of who pulls, and makes the repository (ECR user guide,
# "Sync an upstream registry with an Amazon ECR private registry", required IAM permissions).
_FIRST_PULL_ACTIONS = ("ecr:BatchImportUpstreamImage", "ecr:CreateRepository")
PULL_ACTIONS = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetDownloadUrlForLayer",
    *_FIRST_PULL_ACTIONS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateRepository:
    """A repository of some account's private registry."""

    host: str
    account: str
    region: str
    name: str

    @classmethod
    def parse_reference(cls, reference: str) -> Self | None:
        """Return the repository of `[oci://]host/name[:tag][@digest]`, or None where it is not in private ECR."""
        match = PRIVATE_ECR.match(reference.removeprefix("oci://"))
        return cls(**match.groupdict()) if match and match["name"] else None

    def arn(self, partition: str) -> str:
        """Return the repository's ARN."""
        return f"arn:{partition}:ecr:{self.region}:{self.account}:repository/{self.name}"


def allow_first_pulls(mirrors: Collection[str], partition: str) -> list[dict[str, Any]]:
    """Return the right to let pull-through caches fetch an image for the first time, below each mirror's prefix.

    Args:
        mirrors: host, or host/path; one without a path, the registry's root, has no prefix that would bound the right,
            and gets none: its repositories must be there.
        partition: of the ARNs.
    """
    repositories = [PrivateRepository.parse_reference(mirror) for mirror in sorted(mirrors)]
    arns = [f"{repository.arn(partition)}/*" for repository in repositories if repository]
    return [allow(_FIRST_PULL_ACTIONS, arns)] if arns else []


def allow_login() -> dict[str, Any]:
    """Return the right to log in to private registries; the repositories' own rights decide what it opens."""
    return allow(["ecr:GetAuthorizationToken"], ["*"])
