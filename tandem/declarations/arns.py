"""ARNs of an environment's resources, computed from its names: no program looks one up."""

from __future__ import annotations

from tandem.declarations import names
from tandem.declarations.environment import Environment


def build_arn(
    environment: Environment, service: str, rest: str, *, region: str | None = None
) -> str:
    """Return the ARN of a resource of the account, by default in its region; "" names none."""
    arn_region = environment.region if region is None else region
    partition = names.aws_partition(environment.region)
    return f"arn:{partition}:{service}:{arn_region}:{environment.account}:{rest}"


def build_bucket_arn(environment: Environment, path: str = "", bucket: str = "") -> str:
    """Return the ARN of a bucket, the environment's by default, or of a path with its slash."""
    partition = names.aws_partition(environment.region)
    return f"arn:{partition}:s3:::{bucket or names.bucket_name(environment)}{path}"


def build_topic_arn(environment: Environment) -> str:
    """Return the ARN of the topic that notifies people."""
    return build_arn(environment, "sns", names.topic_name(environment))


def build_stop_topic_arn(environment: Environment) -> str:
    """Return the ARN of the topic that stops the fleet, for any publisher."""
    return build_arn(environment, "sns", names.stop_topic_name(environment))
