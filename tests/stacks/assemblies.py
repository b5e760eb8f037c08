"""Environments in memory, and their templates: every variant of an environment in one cloud
assembly.

Invariant: a variant differs from a committed environment in the fields that its row names, in its
name, and in that it hosts the smallest of its experiments alone: charts, alarms and dashboards are
most of a synthesis. For the same reason a row sets several fields that meet in no resource.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from declared_environments import read_environments
from shipped import ENVIRONMENTS as COMMITTED

from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.selection import Selection
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.record import SpecRecord

ROOT = Path(__file__).parent.parent.parent
RANGE = "10.8.0.0/16"
GROUP = "sg-0123456789abcdef0"
MIRROR = "111122223333.dkr.ecr.us-east-2.amazonaws.com/ecr-public"
RESERVATION = "cr-0123456789abcdef0"

Template = dict[str, Any]
Templates = dict[str, Template]
Synth = Callable[..., Path]  # environments to the folder of their cloud assembly


@cache
def inputs() -> CommandInputs:
    return read_legal_inputs(
        Selection(
            environments=ROOT / "environments", experiments=ROOT / "experiments", names=COMMITTED
        )
    )


def environment(name: str) -> Environment:
    return inputs().workspace.environments[name].record


def changed(base: Environment, **parts: Any) -> Environment:
    """Copy `base`; a dict updates the fields of a part, anything else replaces it."""
    update = {
        name: (
            part.model_copy(update=value)
            if isinstance(part := getattr(base, name), SpecRecord) and isinstance(value, dict)
            else value
        )
        for name, value in parts.items()
    }
    return base.model_copy(update=update)


def variants() -> dict[str, Environment]:
    post = changed(
        environment("post-us-east-2"),
        capacity={"reservation_id": RESERVATION},
        experiments=("post",),
    )
    endpoint = post.cluster.endpoint
    access = post.cluster.access
    alike = (
        "arn:aws:iam::111122223333:role/team/Admin",
        "arn:aws:iam::111122223333:role/team-Admin",
    )
    public = endpoint.model_copy(update={"access": "public", "cidrs": ("203.0.113.0/24",)})
    private = endpoint.model_copy(update={"clients": (RANGE, GROUP)})
    rows = {
        "capacity-block": {},
        "reservation-public": {
            "capacity": {"kind": "reservation"},
            "cluster": {"endpoint": public},
        },
        "spot-unprotected": {
            "capacity": {"kind": "spot", "reservation_id": None},
            "artifacts": {"existing_bucket": "their-models"},
            "cluster": {"deletion_protection": False},
            "termination_protection": False,
        },
        "efa-nat-per-zone": {
            "capacity": {"efa": True},
            "cluster": {"access": access.model_copy(update={"admin": alike})},
            "network": {"nat": "per-zone", "interface_endpoints": False},
            "builds_in_vpc": True,
        },
        "on-demand-bounded": {
            "capacity": {"efa": True, "kind": "on-demand", "reservation_id": None},
            "bootstrap": {"permissions_boundary": "TeamBoundary", "qualifier": "acme"},
        },
        "closed": {
            "network": {"nat": "none"},
            "registry_mirrors": {"public.ecr.aws": MIRROR},
            "cluster": {"endpoint": private},
        },
    }
    return {name: changed(post, name=name, **row) for name, row in rows.items()}


def places() -> list[Environment]:
    """Return the committed environments, those of tests/environments, then the variants."""
    return [
        *(environment(name) for name in COMMITTED),
        *read_environments().values(),
        *variants().values(),
    ]


def hosted(place: Environment) -> list[Experiment]:
    return inputs().list_experiments(place)


def texts(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every template of an assembly by the name of its stack."""
    named_values: dict[str, bytes] = {}
    for assembly in sorted(folder.glob("assembly-*")):
        artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
        for artifact in artifacts.values():
            if artifact["type"] == "aws:cloudformation:stack":
                file = artifact["properties"]["templateFile"]
                named_values[artifact["properties"]["stackName"]] = (assembly / file).read_bytes()
    return named_values


def templates(folder: Path) -> Templates:
    return {name: json.loads(text) for name, text in texts(folder).items()}


def synth_alone(
    place: Environment, folder: Path, stack_type: Callable[..., Any], **inputs_: Any
) -> Template:
    """Return the template of a stack, made with no other of its environment."""
    import aws_cdk as cdk  # noqa: PLC0415  # seconds, as in conftest.py

    kind = stack_type.__name__.removesuffix("Stack")
    root = cdk.App(
        outdir=str(folder), analytics_reporting=False, builtin_cloud_formation_validation=False
    )
    home = cdk.Environment(account=place.account, region=place.region)
    stack_type(cdk.Stage(root, place.name, env=home), kind, **inputs_)
    root.synth()
    return templates(folder)[f"{place.name}-{kind}"]


def wide_experiment(variants: int) -> Experiment:
    """The post's experiment with so many variants, every name as long as the rules let it be."""
    post = next(item for item in hosted(environment("post-us-east-2")) if item.name == "post")
    update = {
        "name": "e" * 50,
        "variants": tuple(
            post.variants[1].model_copy(
                update={"name": f"{index:03}-" + "v" * 42, "num_speculative_tokens": 2 + index}
            )
            for index in range(variants)
        ),
    }
    return post.model_copy(update=update)


def resources(template: Template, type_: str, **having: Any) -> list[dict[str, Any]]:
    """Return the properties of every resource of a type that has these values."""
    every = [
        resource.get("Properties", {})
        for resource in template["Resources"].values()
        if resource["Type"] == type_
    ]
    return [properties for properties in every if having.items() <= properties.items()]


def of_type(stacks: Templates, type_: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the properties of every resource of a type in all stacks, with the stack's name."""
    for name, template in stacks.items():
        for properties in resources(template, type_):
            yield name, properties


def list_mappings(value: object) -> Iterator[dict[str, Any]]:
    """Yield every mapping anywhere in a document."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from list_mappings(part)


def list_statements(value: object) -> Iterator[dict[str, Any]]:
    """Yield every policy statement anywhere in a template, key and bucket policies included."""
    return (row for row in list_mappings(value) if "Effect" in row and "Action" in row)


def list_actions(statement: dict[str, Any]) -> list[str]:
    """Return the actions of a statement, which may be one text."""
    return [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]


def one(template: Template, type_: str) -> dict[str, Any]:
    """Return the properties of the only resource of a type."""
    (resource,) = resources(template, type_)
    return resource
