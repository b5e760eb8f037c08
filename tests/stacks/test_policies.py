"""What holds for every template: linters clean, no wildcard action, everything tagged, nothing
unresolved."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from assemblies import (
    COMMITTED,
    ROOT,
    environment,
    list_actions,
    list_statements,
    of_type,
    places,
    variants,
)
from declared_environments import read_environments

from tandem.declarations.names import OWNER_TAG

pytestmark = pytest.mark.cdk

TAGS = {("project", "tandem"), ("cost-center", "inference")}  # of every committed environment
# environments of which every template is linted, but for
FILES = (*COMMITTED, *read_environments())
# the largest
REPEATED = {
    "post-us-east-2": ("Workloads", "Observability"),
    "native-us-east-2": ("Observability",),
}
# variants -> their templates that hold what no other environment's does; the other variants repeat
# these
DISTINCT = {
    "on-demand-bounded": ("Fleet", "Registry"),
    "reservation-public": ("Fleet", "Cluster"),
    "efa-nat-per-zone": ("Network", "ImageTools"),
    "closed": ("Network", "Cluster"),
}


def is_linted(name: str, template: str) -> bool:
    """Whether a template of an environment, by its file or kind, is linted; those left out repeat
    what others say."""
    if name in FILES:
        return not any(kind in template for kind in REPEATED.get(name, ()))
    return any(kind in template for kind in DISTINCT.get(name, ()))


# of these in make test; make proof lints the others
LINTED = ("post-us-east-2", "dev-trn2-3xlarge")

FLEET_LEFT_OUT = "Annotation::tandem:reservation-given"  # what the CDK reports of our own warning


def reports(folder: Path) -> list[dict[str, Any]]:
    """Return what each plugin found, but for the warning that an environment has no Fleet."""
    plugins = json.loads((folder / "validation-report.json").read_text())["pluginReports"]
    kept_values = [
        {
            **plugin,
            "violations": [
                item for item in plugin["violations"] if item["ruleName"] != FLEET_LEFT_OUT
            ],
        }
        for plugin in plugins
    ]
    return [
        plugin
        for plugin in kept_values
        if plugin["violations"] or plugin["pluginName"] != "Construct Annotations"
    ]


@pytest.mark.proof
def test_the_cdks_own_validation_finds_nothing(synth):
    distinct = [
        environment("post-us-east-2"),
        *read_environments().values(),
        *(variants()[name] for name in DISTINCT),
    ]
    folder = synth(*distinct, validate=True)  # raises on an error; a warning is in the report
    assert [item["ruleName"] for plugin in reports(folder) for item in plugin["violations"]] == []


NagFinding = tuple[str, str]
"""A construct below its environment, and what cdk-nag's AwsSolutions found there: rule, policy or
resource."""


def name_finding(path: str, rule: str) -> NagFinding:
    return path.partition("/")[2], re.sub(
        r"\[\w+::(.*)\]$", r" \1", rule.removeprefix("AwsSolutions-")
    )


@pytest.fixture(scope="session")
def nag_findings(assembly):
    """What cdk-nag found, over every environment, with nothing accepted."""
    (plugin,) = reports(assembly)
    assert plugin["pluginName"] == "AwsSolutions"
    return {
        name_finding(construct["constructPath"], violation["ruleName"])
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
    }


@pytest.fixture(scope="session")
def accepted_findings(assembly):
    """Each finding that a stack gives a reason for, with the construct that has it."""
    return {
        name_finding(path, id_)
        for path, id_ in json.loads((assembly / "accepted_findings.json").read_text())
    }


def answers(accepted: NagFinding, found: NagFinding) -> bool:
    """Whether a reason answers a finding of the same construct, or of one within."""
    return accepted[1] == found[1] and f"{found[0]}/".startswith(f"{accepted[0]}/")


def test_cdk_nag_finds_nothing_without_a_written_reason(nag_findings, accepted_findings):
    assert [
        nag_finding
        for nag_finding in nag_findings
        if not any(answers(row, nag_finding) for row in accepted_findings)
    ] == []


def test_each_written_reason_answers_what_cdk_nag_finds(nag_findings, accepted_findings):
    assert [
        row
        for row in accepted_findings
        if not any(answers(row, nag_finding) for nag_finding in nag_findings)
    ] == []


def test_a_service_has_a_role_for_this_account_or_cluster_alone(stacks):
    """EC2 tells no source of an instance's role."""
    open_trusts = [
        (stack, trust["Principal"])
        for stack, role in of_type(stacks, "AWS::IAM::Role")
        for trust in role["AssumeRolePolicyDocument"]["Statement"]
        if trust["Principal"] != {"Service": "ec2.amazonaws.com"}
        and not {"aws:SourceAccount", "aws:RequestTag/eks-cluster-arn"}
        & trust["Condition"]["StringEquals"].keys()
    ]

    assert open_trusts == []


def templates_of_one(assembly: Path, name: str) -> list[Path]:
    return sorted((assembly / f"assembly-{name}").glob("*.template.json"))


def lint(files: list[Path], region: str) -> dict[str, list[str]]:
    """Return the findings of each file: cfn-lint in this process, which has loaded it for the
    resources' schemas."""
    from cfnlint.api import ManualArgs, lint_by_config  # noqa: PLC0415  # seconds, as in conftest.py

    result = {str(path): [] for path in files}
    with contextlib.chdir(ROOT):  # where .cfnlintrc is
        for item in lint_by_config(ManualArgs(regions=[region], templates=list(result))):
            result[str(item.filename)].append(f"{item.rule.id} {item.message}")
    return result


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in LINTED else pytest.mark.proof)
        for name in (*FILES, *DISTINCT)
    ],
)
def test_cfn_lint_finds_nothing_in_the_environments_region(assembly, name):
    (place,) = [place for place in places() if place.name == name]
    files = [path for path in templates_of_one(assembly, name) if is_linted(name, path.name)]
    assert files
    assert lint(files, place.region) == {str(path): [] for path in files}


def test_no_allowed_action_is_a_wildcard(stacks):
    wide = {
        (name, action)
        for name, template in stacks.items()
        for statement in list_statements(template)
        if statement["Effect"] == "Allow"
        for action in list_actions(statement)
        if "*" in action
    }

    assert wide == set()


def test_the_page_names_each_action_that_is_allowed_on_a_wildcard(stacks):
    """Of people's own policies the page has other tables; `kms:*` stands for actions of keys."""
    text = (ROOT / "docs/reference/rights.md").read_text()
    section = text.partition("## Wildcards of what is deployed\n")[2].partition("\n## ")[0]
    wide = {
        action
        for template in stacks.values()
        for resource in template["Resources"].values()
        if resource["Type"] != "AWS::IAM::ManagedPolicy"
        for statement in list_statements(resource)
        if statement["Effect"] == "Allow" and "*" in json.dumps(statement.get("Resource"))
        for action in list_actions(statement)
        if not action.startswith("kms:")
    }
    assert wide
    assert {action for action in wide if f"`{action}`" not in section} == set()


def taggable(type_: str) -> bool:
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # noqa: PLC0415  # seconds, as in conftest.py

    if not type_.startswith("AWS::"):
        return False
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-2", type_).schema
    return bool(
        schema.get("tagging", {}).get(
            "taggable", schema.get("taggable", "Tags" in schema["properties"])
        )
    )


def tags(properties: dict[str, Any]) -> set[tuple[str, str]]:
    result = properties.get("Tags") or properties.get("ResourceTags", [])  # a budget calls them so
    return (
        set(result.items())
        if isinstance(result, dict)
        else {(tag["Key"], tag["Value"]) for tag in result}
    )


def marked(properties: dict[str, Any]) -> bool:
    """Whether it carries the operator's tags, and the one by which a stop and a teardown know it
    for their own."""
    return tags(properties) >= TAGS and OWNER_TAG in dict(tags(properties))


def test_every_taggable_resource_is_tagged(stacks):
    bare = {
        (resource["Type"], name)
        for stack, template in stacks.items()
        for name, resource in template["Resources"].items()
        if taggable(resource["Type"]) and not marked(resource.get("Properties", {}))
    }

    assert bare == set()


def test_no_template_holds_an_unresolved_token(stacks):
    assert [name for name, template in stacks.items() if "${Token[" in json.dumps(template)] == []


def test_no_template_asks_for_a_look_up(assembly):
    manifests = [assembly / "manifest.json", *assembly.glob("assembly-*/manifest.json")]
    assert [
        path.parent.name for path in manifests if "missing" in json.loads(path.read_text())
    ] == []
