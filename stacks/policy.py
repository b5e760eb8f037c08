"""Statements of policies as the JSON that the console shows, and the literal ARNs in them.

Invariant: no statement has a wildcard action; no ARN here is a CDK token, because account and
region are declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tandem.declarations import names
from tandem.declarations.arns import build_arn
from tandem.declarations.environment import Environment
from tandem.declarations.images import PRIVATE_ECR

Conditions = Mapping[str, Mapping[str, str | Sequence[str]]]
Statement = dict[str, Any]

# A pull-through cache fetches on the first pull, with the rights of the puller, and makes the
# repository. Source: ECR user guide, "Sync an upstream registry with an Amazon ECR private
# registry", required IAM permissions.
_FIRST_PULL_ACTIONS = ("ecr:BatchImportUpstreamImage", "ecr:CreateRepository")
PULL_ACTIONS = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetDownloadUrlForLayer",
    *_FIRST_PULL_ACTIONS,
)


def policy_document(*statements: Statement) -> dict[str, Any]:
    """Return a policy document."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(
    actions: Sequence[str],
    resources: Sequence[str] = (),
    *,
    service: str | None = None,
    conditions: Conditions | None = None,
) -> Statement:
    """Return a statement that allows `actions`.

    Args:
        resources: for an identity policy.
        service: the principal, for a trust policy.
    """
    return {
        "Effect": "Allow",
        **({"Principal": {"Service": service}} if service else {}),
        "Action": list(actions),
        **({"Resource": list(resources)} if resources else {}),
        **({"Condition": conditions} if conditions else {}),
    }


def account_condition(environment: Environment) -> dict[str, dict[str, str]]:
    """Return a trust's condition that a service acts only for a resource of this account."""
    return {"StringEquals": {"aws:SourceAccount": environment.account}}


def cluster_arn(environment: Environment) -> str:
    """Return the ARN of the environment's EKS cluster."""
    return build_arn(environment, "eks", f"cluster/{names.cluster_name(environment)}")


def aws_policy_arn(environment: Environment, name: str) -> str:
    """Return the ARN of a policy that AWS manages."""
    return f"arn:{names.aws_partition(environment.region)}:iam::aws:policy/{name}"


def allow_bucket_key(environment: Environment, *, writes: bool) -> list[Statement]:
    """Return the right to the bucket's customer key, only for this region's S3; none for S3 keys.

    The key's own policy stays its owner's. An upload in parts decrypts its earlier parts (S3 user
    guide, "Protecting data using SSE-KMS", uploads in parts).
    """
    key = environment.artifacts.kms_key_arn
    actions = ["kms:Decrypt", "kms:GenerateDataKey"] if writes else ["kms:Decrypt"]
    conditions = {"StringEquals": {"kms:ViaService": f"s3.{environment.region}.amazonaws.com"}}
    if key:
        return [allow(actions, [key], conditions=conditions)]
    return []


@dataclass(frozen=True, kw_only=True)
class PrivateRepository:
    """A repository of some account's private ECR registry."""

    host: str
    account: str
    region: str
    name: str

    @classmethod
    def parse_reference(cls, reference: str) -> Self | None:
        """Return the repository of `[oci://]host/name[:tag][@digest]`, None if not private ECR."""
        match = PRIVATE_ECR.match(reference.removeprefix("oci://"))
        if match and match["name"]:
            return cls(**match.groupdict())
        return None

    def arn(self) -> str:
        """Return the repository's ARN."""
        partition = names.aws_partition(self.region)
        return f"arn:{partition}:ecr:{self.region}:{self.account}:repository/{self.name}"

    def allow_pull(self) -> list[Statement]:
        """Return the rights to pull from the repository: a login, and its layers."""
        return [allow_login(), allow(PULL_ACTIONS, [self.arn()])]


def allow_first_pulls(environment: Environment) -> list[Statement]:
    """Return the right to let pull-through caches first fetch an image, below each mirror's prefix.

    A mirror without a path, the registry's root, has no prefix to limit the right, and gets none:
    its repositories must exist.
    """
    mirrors = sorted(environment.registry_mirrors.values())
    repositories = [PrivateRepository.parse_reference(mirror) for mirror in mirrors]
    arns = [f"{repository.arn()}/*" for repository in repositories if repository]
    return [allow(_FIRST_PULL_ACTIONS, arns)] if arns else []


def allow_login() -> Statement:
    """Return the right to log in to private registries; repository rights decide on access."""
    return allow(["ecr:GetAuthorizationToken"], ["*"])
