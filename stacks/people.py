"""The IAM policies of people and the pipeline, where an environment asks for them.

Invariant: nothing is attached here, because whose the roles are is not ours to say; and what was attached outlives the
stack: whoever takes the environment down has his rights from it to the end.
"""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.nag import acknowledge_findings
from stacks.stack import TemplateLimitError
from tandem.ops.people.policies import MAX_POLICY_CHARACTERS, build_policy, count_policy_characters
from tandem.ops.people.policy_targets import build_targets
from tandem.ops.people.rights import TARGET_REASONS, list_rights
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.names import PEOPLE, PeopleKind


class PeoplePolicies(Construct):
    """One managed policy for each kind.

    Raises:
        TemplateLimitError: one is longer than IAM takes.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_)
        for kind in PEOPLE:
            document = build_policy(environment, kind)
            if count_policy_characters(document) > MAX_POLICY_CHARACTERS:
                raise TemplateLimitError(
                    f"{count_policy_characters(document)} characters, and IAM takes {MAX_POLICY_CHARACTERS}",
                    where=f"IAM policy {names.people_policy_name(environment, kind)}",
                    change="name fewer principals in cluster.access, or leave guard.people_policies false and write "
                    "your own",
                )
            managed_policy = iam.CfnManagedPolicy(
                self, kind.capitalize(), managed_policy_name=names.people_policy_name(environment, kind),
                description=f"Tandem {environment.name}: {kind}; docs/people.md", policy_document=document,
            )  # fmt: skip
            managed_policy.apply_removal_policy(RemovalPolicy.RETAIN)
            acknowledge_findings(managed_policy, _list_nag_reasons(environment, kind))


def _list_nag_reasons(environment: Environment, kind: PeopleKind) -> dict[str, str]:
    """Return why cdk-nag's findings on one policy stand."""
    policy_places = build_targets(environment)
    return {
        f"AwsSolutions-IAM5[Resource::{arn}]": TARGET_REASONS[right.target]
        for right in list_rights(kind)
        for arn in policy_places[right.target].arns
        if "*" in arn
    }
