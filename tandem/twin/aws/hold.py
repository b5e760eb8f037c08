"""Holds every resource of a deployed stack against its template.

CREATE_COMPLETE proves nothing here: each resource is described by its own service, and each property that the
template names has to be found there. No resource is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml
from botocore.exceptions import ClientError

from tandem.twin.aws.compare import Difference, differences
from tandem.twin.aws.describe import DESCRIBE
from tandem.twin.aws.describe.form import Client, GoneError, Properties
from tandem.twin.aws.fidelity import Fidelity, Level, fidelity
from tandem.twin.aws.resolve import NOTHING, Names, UnresolvedError, holds, resolved


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What became of one resource.

    Args:
        held: the properties that are as the template says.
        not_rehearsed: property (or `*`) to the reason why it cannot be seen here.
    """

    stack: str
    logical_id: str
    type: str
    physical_id: str
    fidelity: Fidelity
    held: tuple[str, ...]
    differs: tuple[Difference, ...]
    not_rehearsed: Mapping[str, str]


def hold(client: Client, stack: str, recorded: list[dict[str, Any]]) -> list[Held]:
    """Every resource of `stack` in the order of its template.

    Args:
        client: gives the boto3 client of a service.
        recorded: the endpoint's listing of custom resources.

    Raises:
        UnknownTypeError: the template has a type without a row in the fidelity table.
        UnresolvedError: the template has a function that this reading does not know.
    """
    deployed = _Deployed(client, stack, recorded)
    return [_held(deployed, logical_id) for logical_id in deployed.resources]


def _held(deployed: _Deployed, logical_id: str) -> Held:
    resource = deployed.resources[logical_id]
    row = fidelity(resource["Type"])
    properties = deployed.properties(logical_id)
    seen = {name: value for name, value in properties.items() if name not in row.unseen}
    found: list[Difference] = []
    try:
        described = deployed.described(logical_id)
    except (ClientError, GoneError) as missing:
        found.append(Difference(property="*", template="deployed", described=str(missing)))
    else:
        found += differences(seen, described, "")
    wrong = {difference.property.split(".")[0].removesuffix("[]") for difference in found}
    return Held(
        stack=deployed.name,
        logical_id=logical_id,
        type=resource["Type"],
        physical_id=deployed.physical.get(logical_id, ""),
        fidelity=row,
        held=() if "*" in wrong else tuple(name for name in seen if name not in wrong),
        differs=tuple(found),
        not_rehearsed={
            **({"*": row.sentence} if row.level is Level.RECORDED else {}),
            **{name: row.unseen[name] for name in properties if name in row.unseen},
        },
    )


class _Deployed:
    """A stack with its template, its physical ids and a cache of descriptions."""

    def __init__(self, client: Client, name: str, recorded: list[dict[str, Any]]) -> None:
        self.client = client
        self.name = name
        self._recorded = {item["LogicalId"]: item for item in recorded if item["Stack"] == name}
        self._descriptions: dict[str, Properties] = {}

    @cached_property
    def template(self) -> Any:
        body = self.client("cloudformation").get_template(StackName=self.name, TemplateStage="Processed")[
            "TemplateBody"
        ]
        if not isinstance(body, str):
            return body
        return json.loads(body) if body.startswith("{") else yaml.safe_load(body)  # the CLI sends small ones as YAML

    @cached_property
    def physical(self) -> Mapping[str, str]:
        pages = self.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=self.name)
        return {
            item["LogicalResourceId"]: item["PhysicalResourceId"]
            for page in pages
            for item in page["StackResourceSummaries"]
        }

    @cached_property
    def names(self) -> Names:
        cloudformation = self.client("cloudformation")
        (stack,) = cloudformation.describe_stacks(StackName=self.name)["Stacks"]
        arn = stack["StackId"].split(":")
        said = {item["ParameterKey"]: item for item in stack.get("Parameters", [])}
        exports = [item for page in cloudformation.get_paginator("list_exports").paginate() for item in page["Exports"]]
        return Names(
            physical=self.physical,
            attribute=self._attribute,
            parameters={key: item.get("ResolvedValue", item["ParameterValue"]) for key, item in said.items()},
            pseudo={
                "AWS::Partition": "aws",
                "AWS::Region": arn[3],
                "AWS::AccountId": arn[4],
                "AWS::URLSuffix": "amazonaws.com",
                "AWS::StackName": self.name,
                "AWS::StackId": stack["StackId"],
            },
            exports={item["Name"]: item["Value"] for item in exports},
            mappings=self.template.get("Mappings", {}),
            conditions=self.template.get("Conditions", {}),
        )

    @cached_property
    def resources(self) -> Mapping[str, Any]:
        return {
            logical_id: resource
            for logical_id, resource in self.template["Resources"].items()
            if "Condition" not in resource or holds(resource["Condition"], self.names)
        }

    def properties(self, logical_id: str) -> Properties:
        properties = resolved(self.resources[logical_id].get("Properties", {}), self.names)
        return {} if properties is NOTHING else properties

    def described(self, logical_id: str) -> Properties:
        """The resource as its service describes it; of a recorded one, what the endpoint kept."""
        if logical_id not in self._descriptions:
            self._descriptions[logical_id] = self._describe(logical_id)
        return self._descriptions[logical_id]

    def _describe(self, logical_id: str) -> Properties:
        if logical_id not in self.physical:
            raise GoneError(f"{logical_id} is in the template and not in the stack")
        type_ = self.resources[logical_id]["Type"]
        if type_ == "AWS::CDK::Metadata":
            return self.properties(logical_id)
        if fidelity(type_).level is Level.RECORDED:
            if logical_id not in self._recorded:
                raise GoneError(f"{logical_id} is not among the recorded custom resources")
            properties: Properties = self._recorded[logical_id]["Properties"]
            return properties
        return DESCRIBE[type_](self.client, self.physical[logical_id], self.properties(logical_id))

    def _attribute(self, logical_id: str, attribute: str) -> Any:
        described = self.described(logical_id)
        if attribute not in described:
            raise UnresolvedError(f"{self.resources[logical_id]['Type']} has no described attribute {attribute}")
        return described[attribute]
