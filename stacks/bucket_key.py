"""What reading and writing a bucket takes beside S3's own actions where a customer key encrypts it.

Invariant: the key is used by S3 alone, in this region; the key's own policy stays its owner's.
"""

from __future__ import annotations

from typing import Any

from stacks.policy import allow
from tandem.spec.environment import Environment

READ = ("kms:Decrypt",)
# an upload in parts decrypts what it sent before (S3 user guide, "Protecting data using SSE-KMS", uploads in parts)
WRITE = ("kms:Decrypt", "kms:GenerateDataKey")


def allow_bucket_key(environment: Environment, *, writes: bool) -> list[dict[str, Any]]:
    """Return the right to the bucket's key; none where S3's own keys encrypt it."""
    key = environment.artifacts.kms_key_arn
    conditions = {"StringEquals": {"kms:ViaService": f"s3.{environment.region}.amazonaws.com"}}
    return [allow(WRITE if writes else READ, [key], conditions=conditions)] if key else []
