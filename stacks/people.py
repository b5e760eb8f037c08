"""The IAM policies of people and the pipeline, where an environment asks for them.

Invariant: nothing is attached here, because whose the roles are is not ours to say; and what was attached outlives the
stack: whoever takes the environment down has his rights from it to the end.
"""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.nag import acknowledge
from stacks.stack import RefusedError
from tandem.ops.people.places import places
from tandem.ops.people.policies import MOST_CHARACTERS, policy, size
from tandem.ops.people.rights import REASONS, rights
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.names import PEOPLE, PeopleKind


class PeoplePolicies(Construct):
    """One managed policy for each kind.

    Raises:
        RefusedError: one is longer than IAM takes.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_)
        for kind in PEOPLE:
            document = policy(environment, kind)
            if size(document) > MOST_CHARACTERS:
                raise RefusedError(
                    f"IAM policy {names.people_policy(environment, kind)}: {size(document)} characters; IAM takes "
                    f"{MOST_CHARACTERS}. Name fewer principals in cluster.access, or leave guard.people_policies "
                    "false and write your own"
                )
            made = iam.CfnManagedPolicy(
                self, kind.capitalize(), managed_policy_name=names.people_policy(environment, kind),
                description=f"Tandem {environment.name}: {kind}; docs/people.md", policy_document=document,
            )  # fmt: skip
            made.apply_removal_policy(RemovalPolicy.RETAIN)
            acknowledge(made, _reasons(environment, kind))


def _reasons(environment: Environment, kind: PeopleKind) -> dict[str, str]:
    """Return why cdk-nag's findings on one policy stand."""
    known = places(environment)
    return {
        f"AwsSolutions-IAM5[Resource::{arn}]": REASONS[right.on]
        for right in rights(kind)
        for arn in known[right.on].arns
        if "*" in arn
    }
