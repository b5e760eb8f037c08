"""Where an environment is, as plain text for ARNs.

Invariant: no CDK token; account and region are declared, so every ARN is literal in the template.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.spec.environment import Environment

_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}  # AWS General Reference, ARNs


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsLocation:
    """An account and a region."""

    account: str
    region: str

    @property
    def partition(self) -> str:
        """Return the partition the region lies in."""
        return next((name for start, name in _PARTITIONS.items() if self.region.startswith(start)), "aws")

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a regional resource of this account."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    def cluster_arn(self, name: str) -> str:
        """Return the ARN of an EKS cluster."""
        return self.arn("eks", f"cluster/{name}")

    def bucket_arn(self, name: str) -> str:
        """Return the ARN of a bucket, which names neither account nor region."""
        return f"arn:{self.partition}:s3:::{name}"

    def account_condition(self) -> dict[str, dict[str, str]]:
        """Return the condition of a trust that a service acts for a resource of this account, and of no other."""
        return {"StringEquals": {"aws:SourceAccount": self.account}}

    def aws_policy_arn(self, name: str) -> str:
        """Return the ARN of a policy that AWS manages."""
        return f"arn:{self.partition}:iam::aws:policy/{name}"

    def access_policy_arn(self, name: str) -> str:
        """Return the ARN of one of EKS's own access policies."""
        return f"arn:{self.partition}:eks::aws:cluster-access-policy/{name}"


def locate_environment(environment: Environment) -> AwsLocation:
    """Return where `environment` is."""
    return AwsLocation(account=environment.account, region=environment.region)
