"""Somebody else than the account itself at an endpoint that enforces policies: a role with its
policy, and who has it.

Invariant: a principal may do what its role's policies say and nothing besides; its secret is
checked.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

from rehearsal.aws.endpoint import AwsEndpoint

# Any trust will do here. The stacks' own roles trust pods.eks.amazonaws.com, which the account
# passes for here.
_TRUST_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
        }
    ],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RolePrincipal:
    """The session of a role: its ARN, where the endpoint is, and the credentials."""

    role: str
    url: str
    region: str
    access_key: str
    secret: str
    token: str

    def environment(self, url: str = "") -> dict[str, str]:
        """The variables that make boto3 in another process this principal, beside the endpoint's
        own."""
        return {
            "AWS_ENDPOINT_URL": url or self.url,
            "AWS_ENDPOINT_URL_S3": url or self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token,
        }

    def client(self, service: str, url: str = "") -> Any:
        """A boto3 client with this principal's credentials; `url` is of a proxy in front of the
        endpoint."""
        return boto3.client(
            service,
            endpoint_url=url or self.url,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret,
            aws_session_token=self.token,
            config=Config(
                s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, proxies={}
            ),
        )


def create_principal(endpoint: AwsEndpoint, *statements: Mapping[str, Any]) -> RolePrincipal:
    """Somebody with a new role that has these statements of a policy, as a template spells them.

    Args:
        endpoint: one that enforces; any other lets everybody do everything.
        statements: `{"Effect": ..., "Action": ..., "Resource": ...}`.
    """
    iam = endpoint.client("iam")
    name = f"role-{uuid.uuid4().hex[:12]}"
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(_TRUST_POLICY))[
        "Role"
    ]["Arn"]
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    iam.put_role_policy(RoleName=name, PolicyName="its-own", PolicyDocument=json.dumps(document))
    return assume_role(endpoint, role)


def assume_role(endpoint: AwsEndpoint, role: str) -> RolePrincipal:
    """Somebody with a role that is there, such as one of a deployed stack.

    Args:
        endpoint: where it is.
        role: its ARN.
    """
    credentials = endpoint.client("sts").assume_role(RoleArn=role, RoleSessionName="session")[
        "Credentials"
    ]
    return RolePrincipal(
        role=role,
        url=endpoint.url,
        region=endpoint.region,
        access_key=credentials["AccessKeyId"],
        secret=credentials["SecretAccessKey"],
        token=credentials["SessionToken"],
    )
