"""An environment's stage: names, account, bootstrap, protection, order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from assemblies import Templates, environment, places, resources

from tandem.spec.environment import Environment
from tandem.spec.names import stack_kinds

pytestmark = pytest.mark.cdk


def artifacts(assembly: Path, name: str) -> dict[str, dict[str, Any]]:
    """Return kind of stack -> its entry in the cloud assembly."""
    found = json.loads((assembly / f"assembly-{name}" / "manifest.json").read_text())["artifacts"]
    return {
        each["properties"]["stackName"].removeprefix(f"{name}-"): {**each, "id": key}
        for key, each in found.items()
        if each["type"] == "aws:cloudformation:stack"
    }


def test_an_environment_has_these_stacks(assembly: Path) -> None:
    assert set(artifacts(assembly, "capacity-block")) == {
        "Network", "Artifacts", "Image", "Cluster", "Guard", "Fleet", "Observability", "Workloads",
    }  # fmt: skip


@pytest.mark.parametrize("place", places(), ids=lambda place: place.name)
def test_the_summary_names_the_stacks_that_are_made(assembly: Path, place: Environment) -> None:
    assert set(stack_kinds(place)) == set(artifacts(assembly, place.name))


@pytest.mark.parametrize(("name", "warned"), [("no-reservation", True), ("capacity-block", False)])
def test_a_fleet_left_out_is_a_warning_of_the_synthesis(assembly: Path, name: str, warned: bool) -> None:
    told = "".join(path.read_text() for path in (assembly / f"assembly-{name}").glob("*.metadata.json"))

    assert ("no Fleet stack" in told) == warned


def test_stacks_are_addressed_by_the_environment(assembly: Path) -> None:
    names = {each["displayName"].partition(" ")[0] for each in artifacts(assembly, "post-us-east-2").values()}

    assert names == {f"post-us-east-2/{kind}" for kind in stack_kinds(environment("post-us-east-2"))}


def test_account_and_region_are_literal(assembly: Path) -> None:
    found = {each["environment"] for each in artifacts(assembly, "dev-trn2-3xlarge").values()}

    assert found == {"aws://111122223333/ap-southeast-4"}


@pytest.mark.parametrize(("name", "protected"), [("post-us-east-2", True), ("unprotected", False)])
def test_every_stack_is_protected_as_declared(assembly: Path, name: str, protected: bool) -> None:
    found = {each["properties"].get("terminationProtection", False) for each in artifacts(assembly, name).values()}

    assert found == {protected}


@pytest.mark.parametrize(("name", "qualifier"), [("post-us-east-2", "tandem"), ("permissions-boundary", "acme")])
def test_the_bootstrap_is_the_environments_own(assembly: Path, name: str, qualifier: str) -> None:
    roles = {each["properties"]["assumeRoleArn"] for each in artifacts(assembly, name).values()}

    assert all(f"cdk-{qualifier}-deploy-role" in role for role in roles)


def test_every_role_has_the_boundary(stacks: Templates) -> None:
    boundaries = {
        json.dumps(role.get("PermissionsBoundary"))
        for name, template in stacks.items()
        if name.startswith("permissions-boundary-")
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
        ("Workloads", "Image"),
    ],
)
def test_stacks_are_deployed_in_order_and_deleted_in_reverse(assembly: Path, later: str, earlier: str) -> None:
    found = artifacts(assembly, "capacity-block")

    assert found[earlier]["id"] in found[later]["dependencies"]


def test_guard_waits_for_no_cluster_so_that_it_outlives_it(assembly: Path) -> None:
    found = artifacts(assembly, "capacity-block")

    assert found["Cluster"]["id"] not in found["Guard"]["dependencies"]


def test_a_missing_block_holds_up_no_other_stack(assembly: Path) -> None:
    found = artifacts(assembly, "capacity-block")

    waiting = [kind for kind, each in found.items() if found["Fleet"]["id"] in each.get("dependencies", [])]
    assert waiting == []


def test_templates_spend_no_bytes_on_indentation(assembly: Path) -> None:
    assert [path.name for path in assembly.glob("*/*.template.json") if path.read_text().count("\n") > 1] == []


def test_nothing_reports_usage(stacks: Templates) -> None:
    assert [name for name, template in stacks.items() if resources(template, "AWS::CDK::Metadata")] == []


def test_stacks_are_tagged_themselves(assembly: Path) -> None:
    found = [each["properties"].get("tags") for each in artifacts(assembly, "post-us-east-2").values()]

    ours = {"tandem:environment": "post-us-east-2"}
    assert all(tags == {"project": "tandem", "cost-center": "inference", **ours} for tags in found)
