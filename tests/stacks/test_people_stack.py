"""The policies of people in the Guard stack: none unasked, the documents of the page, kept, and not
too long."""

from __future__ import annotations

import json

import pytest
from assemblies import changed, environment, list_mappings, resources
from aws_cdk import App, Stack
from declared_environments import read_environments

from stacks.guard import add_people_policies
from stacks.stack import TemplateLimitError
from tandem.declarations import names
from tandem.ops.people.policies import build_policy
from tandem.ops.people.policy_targets import build_targets

pytestmark = pytest.mark.cdk

ASKING = "customer-keys"  # the environment that asks for them
POLICY = "AWS::IAM::ManagedPolicy"


def test_each_kind_has_the_document_that_the_rights_say(stacks):
    place = read_environments()[ASKING]
    result = {
        resource["ManagedPolicyName"]: resource["PolicyDocument"]
        for resource in resources(stacks[f"{ASKING}-Guard"], POLICY)
    }
    assert result == {
        names.people_policy_name(place, kind): build_policy(place, kind) for kind in names.PEOPLE
    }


def test_a_policy_that_iam_would_not_take_is_refused_with_what_to_do():
    many = tuple(f"arn:aws:iam::111122223333:role/Engineer{number}" for number in range(200))
    base = environment("post-us-east-2")
    place = changed(
        base, cluster={"access": base.cluster.access.model_copy(update={"engineer": many})}
    )

    with pytest.raises(
        TemplateLimitError, match=r"IAM takes 6144; name fewer principals in cluster\.access"
    ):
        add_people_policies(Stack(App(), "Guard"), place)


def test_the_pipeline_takes_on_the_roles_that_a_deploy_asks_for_and_no_other(assembly):
    """Its manifests name who deploys, who publishes assets and who looks; nobody builds images
    while deploying."""
    place = environment("post-us-east-2")
    folder = assembly / f"assembly-{place.name}"
    paths = [folder / "manifest.json", *folder.glob("*.assets.json")]
    mappings = list(list_mappings([json.loads(path.read_text()) for path in paths]))
    arns = [mapping.get("assumeRoleArn") for mapping in mappings]
    arns += [mapping.get("lookupRole", {}).get("arn") for mapping in mappings]
    spelt = {arn.replace("${AWS::Partition}", "aws") for arn in arns if arn}
    assert spelt == set(build_targets(place)["bootstrap roles"].arns)
