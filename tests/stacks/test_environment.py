"""An environment's stage: names, account, bootstrap, protection, order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from assemblies import hosted, list_mappings, places, resources

from tandem.declarations.names import stack_kinds
from tandem.declarations.project_image import list_hosted_images
from tandem.ops.doctor.identity import MIN_BOOTSTRAP_VERSION, MIN_LOOKUP_VERSION

pytestmark = pytest.mark.cdk


def artifacts(assembly: Path, name: str) -> dict[str, dict[str, Any]]:
    """Return kind of stack -> its entry in the cloud assembly."""
    result = json.loads((assembly / f"assembly-{name}" / "manifest.json").read_text())["artifacts"]
    return {
        item["properties"]["stackName"].removeprefix(f"{name}-"): {**item, "id": key}
        for key, item in result.items()
        if item["type"] == "aws:cloudformation:stack"
    }


@pytest.mark.parametrize("place", places(), ids=lambda place: place.name)
def test_the_summary_names_the_stacks_that_are_made(assembly, place):
    images = [image.name for image in list_hosted_images(hosted(place))]
    assert set(stack_kinds(place, images)) == set(artifacts(assembly, place.name))


@pytest.mark.parametrize(
    ("name", "protected"), [("post-us-east-2", True), ("spot-unprotected", False)]
)
def test_every_stack_but_a_build_is_protected_as_declared(assembly, name, protected):
    """A build that failed at first could not be created anew: the CDK deletes its stack before."""
    protections = {
        kind: stack["properties"].get("terminationProtection", False)
        for kind, stack in artifacts(assembly, name).items()
    }
    builds = {kind for kind in protections if kind.startswith("Image")}
    assert {protections[kind] for kind in builds} == {False}
    assert {protections[kind] for kind in protections.keys() - builds} == {protected}


@pytest.mark.parametrize(
    ("name", "qualifier"), [("post-us-east-2", "tandem"), ("on-demand-bounded", "acme")]
)
def test_the_bootstrap_is_the_environments_own(assembly, name, qualifier):
    roles = {item["properties"]["assumeRoleArn"] for item in artifacts(assembly, name).values()}
    assert all(f"cdk-{qualifier}-deploy-role" in role for role in roles)


def test_every_role_has_the_boundary(stacks):
    boundaries = {
        json.dumps(role.get("PermissionsBoundary"))
        for name, template in stacks.items()
        if name.startswith("on-demand-bounded-")
        for role in resources(template, "AWS::IAM::Role")
    }

    assert len(boundaries) == 1
    assert "policy/TeamBoundary" in boundaries.pop()


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        ("Cluster", "Network"),
        ("Guard", "Artifacts"),
        ("Fleet", "Cluster"),
        ("Fleet", "Guard"),
        ("Observability", "Cluster"),
        ("Observability", "Guard"),
        ("Workloads", "Cluster"),
        ("ImageTools", "Registry"),
        ("Workloads", "ImageTools"),
        ("Workloads", "ImageRun"),
        ("ImageLlmperf", "Workloads"),
        ("Observability", "Workloads"),
    ],
)
def test_stacks_are_deployed_in_order_and_deleted_in_reverse(assembly, later, earlier):
    result = artifacts(assembly, "capacity-block")
    assert result[earlier]["id"] in result[later]["dependencies"]


def test_guard_waits_for_no_cluster_so_that_it_outlives_it(assembly):
    result = artifacts(assembly, "capacity-block")
    assert result["Cluster"]["id"] not in result["Guard"]["dependencies"]


def test_the_newest_bootstrap_that_is_asked_for_is_the_one_the_doctor_looks_for(assembly):
    needs = "requiresBootstrapStackVersion"
    properties = [
        artifact.get("properties", {})
        for manifest in assembly.rglob("manifest.json")
        for artifact in json.loads(manifest.read_text())["artifacts"].values()
    ]

    assert max(item[needs] for item in properties if needs in item) == MIN_BOOTSTRAP_VERSION
    assert (
        max(item["lookupRole"][needs] for item in properties if "lookupRole" in item)
        == MIN_LOOKUP_VERSION
    )


def test_every_import_is_exported(stacks):
    exported_names = {
        output["Export"]["Name"]
        for template in stacks.values()
        for output in template.get("Outputs", {}).values()
    }
    imported_names = {
        mapping["Fn::ImportValue"]
        for mapping in list_mappings([*stacks.values()])
        if "Fn::ImportValue" in mapping
    }
    assert imported_names <= exported_names
