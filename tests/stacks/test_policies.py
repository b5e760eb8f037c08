"""What holds for every template: linters clean, no wildcard action, everything tagged, nothing unresolved."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from assemblies import ROOT, Template, Templates, environment, hosted, inputs, places, variants
from aws_cdk import Validations
from cdk_nag import AwsSolutionsChecks
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER
from conftest import Synth

import app

pytestmark = pytest.mark.cdk

TAGS = {("project", "tandem"), ("cost-center", "inference")}
# one environment per kind of template; the other variants repeat these
DISTINCT = ["efa-on-demand", "reservation", "existing-network", "public-endpoint", "nat-per-zone", "mirror"]


FLEET_LEFT_OUT = "Annotation::tandem:reservation-given"  # what the CDK reports of our own warning


def reports(folder: Path) -> list[dict[str, Any]]:
    """Return what each plugin found, but for the warning that an environment has no Fleet."""
    plugins: list[dict[str, Any]] = json.loads((folder / "validation-report.json").read_text())["pluginReports"]
    kept = [
        {**plugin, "violations": [found for found in plugin["violations"] if found["ruleName"] != FLEET_LEFT_OUT]}
        for plugin in plugins
    ]
    return [plugin for plugin in kept if plugin["violations"] or plugin["pluginName"] != "Construct Annotations"]


def test_the_cdks_own_validation_finds_nothing(synth: Synth) -> None:
    distinct = [environment("post-us-east-2"), *(variants()[name] for name in DISTINCT)]

    folder = synth(*distinct, validate=True)  # raises on an error; a warning is in the report

    assert [found["ruleName"] for plugin in reports(folder) for found in plugin["violations"]] == []


@pytest.fixture(scope="session")
def nag(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of cdk-nag's AwsSolutions over every environment."""
    folder = tmp_path_factory.mktemp("nag")
    hosts = [(place, hosted(place)) for place in places()]
    root = app.app(hosts, inputs().catalogue, outdir=str(folder), validate=False)
    Validations.of(root).add_plugins(AwsSolutionsChecks(root, verbose=False))
    root.synth()
    (plugin,) = reports(folder)
    return plugin


def test_cdk_nag_finds_nothing_without_a_written_reason(nag: dict[str, Any]) -> None:
    assert nag["violations"] == []


def test_every_reason_for_cdk_nag_is_a_sentence(nag: dict[str, Any]) -> None:
    assert nag["suppressedViolations"] != []
    assert [found for found in nag["suppressedViolations"] if len(found["reason"].split()) < 6] == []


@pytest.mark.parametrize("name", ["post-us-east-2", "native-us-east-2", "dev-trn2-3xlarge"])
def test_cfn_lint_finds_nothing_in_the_environments_region(assembly: Path, name: str) -> None:
    assert lint(sorted((assembly / f"assembly-{name}").glob("*.template.json")), environment(name).region) == []


def test_cfn_lint_finds_nothing_in_the_variants(assembly: Path) -> None:
    files = [
        path
        for name in DISTINCT
        for path in sorted((assembly / f"assembly-{name}").glob("*.template.json"))
        if "Workloads" not in path.name and "Artifacts" not in path.name  # the same as the committed ones'
    ]

    assert lint(files, "us-east-2") == []


def lint(files: list[Path], region: str) -> list[str]:
    command = [str(Path(sys.executable).parent / "cfn-lint"), "--format", "json", "--regions", region, "--template"]
    done = subprocess.run([*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True, check=False)
    return [f"{found['Rule']['Id']} {found['Message']}" for found in json.loads(done.stdout or "[]")]


def statements(found: object) -> Iterator[dict[str, Any]]:
    """Yield every policy statement anywhere in a template, key and bucket policies included."""
    if isinstance(found, dict):
        if "Effect" in found and "Action" in found:
            yield found
        for value in found.values():
            yield from statements(value)
    elif isinstance(found, list):
        for value in found:
            yield from statements(value)


def test_no_allowed_action_is_a_wildcard(stacks: Templates) -> None:
    wide = {
        (name, action)
        for name, template in stacks.items()
        for statement in statements(template)
        if statement["Effect"] == "Allow"
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        if "*" in action
    }

    assert wide == set()


def test_a_wildcard_resource_is_justified_by_the_service(stacks: Templates) -> None:
    """Lambda's interfaces, registry logins, and a key's own policy, in which `*` is the key."""
    services = {
        action.partition(":")[0]
        for template in stacks.values()
        for statement in statements(template)
        if statement["Effect"] == "Allow" and statement.get("Resource") in ("*", ["*"])
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }

    assert services <= {"ec2", "ecr", "ecr-public", "sts", "kms"}


def taggable(type_: str) -> bool:
    if not type_.startswith("AWS::"):
        return False
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-2", type_).schema
    return bool(schema.get("tagging", {}).get("taggable", schema.get("taggable", "Tags" in schema["properties"])))


def tags(properties: dict[str, Any]) -> set[tuple[str, str]]:
    found = properties.get("Tags", [])
    return set(found.items()) if isinstance(found, dict) else {(tag["Key"], tag["Value"]) for tag in found}


def test_every_taggable_resource_is_tagged(stacks: Templates) -> None:
    bare = {
        (found["Type"], name)
        for stack, template in stacks.items()
        for name, found in template["Resources"].items()
        if taggable(found["Type"]) and not tags(found.get("Properties", {})) >= TAGS
    }

    assert bare == set()


def templates_of(stacks: Templates) -> list[Template]:
    return [
        found["Properties"]
        for template in stacks.values()
        for found in template["Resources"].values()
        if found["Type"] == "AWS::EC2::LaunchTemplate"
    ]


@pytest.mark.parametrize("kind", ["instance", "volume", "network-interface"])
def test_what_a_launch_template_starts_is_tagged(stacks: Templates, kind: str) -> None:
    for template in templates_of(stacks):
        specifications = template["LaunchTemplateData"]["TagSpecifications"]
        (found,) = [each for each in specifications if each["ResourceType"] == kind]
        assert tags(found) >= TAGS


def test_launch_templates_are_tagged_themselves(stacks: Templates) -> None:
    for template in templates_of(stacks):
        (found,) = template["TagSpecifications"]
        assert found["ResourceType"] == "launch-template"
        assert tags(found) >= TAGS


def test_no_template_holds_an_unresolved_token(stacks: Templates) -> None:
    assert [name for name, template in stacks.items() if "${Token[" in json.dumps(template)] == []


def test_every_bucket_cluster_log_group_and_key_is_guarded_where_cdk_nag_is_blind(stacks: Templates) -> None:
    forgotten = [
        name
        for name, template in stacks.items()
        for found in template["Resources"].values()
        if found["Type"] == "AWS::Logs::LogGroup" and "RetentionInDays" not in found["Properties"]
    ]
    plain = [
        name
        for name, template in stacks.items()
        for found in template["Resources"].values()
        if found["Type"] == "AWS::EKS::Cluster" and not found["Properties"].get("EncryptionConfig")
    ]
    silent = [
        name
        for name, template in stacks.items()
        for found in template["Resources"].values()
        if found["Type"] == "AWS::EKS::Cluster"
        and len(found["Properties"].get("Logging", {}).get("ClusterLogging", {}).get("EnabledTypes", [])) != 5
    ]

    assert (forgotten, plain, silent) == ([], [], [])


def test_no_template_asks_for_a_look_up(assembly: Path) -> None:
    manifests = [assembly / "manifest.json", *assembly.glob("assembly-*/manifest.json")]

    assert [path.parent.name for path in manifests if "missing" in json.loads(path.read_text())] == []
