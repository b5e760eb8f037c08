"""Checks every resource of a deployed stack against its template.

CREATE_COMPLETE proves nothing here: each resource's own service describes it, and the description
must have each property of the template. No resource is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml
from botocore.exceptions import ClientError

from rehearsal.aws.descriptions import DESCRIBE
from rehearsal.aws.descriptions.conversion import AbsentResourceError, ClientFactory, Properties
from rehearsal.aws.differences import PropertyDifference, find_differences
from rehearsal.aws.fidelity import FidelityLevel, TypeFidelity, find_fidelity
from rehearsal.aws.intrinsic_functions import (
    TemplateNames,
    UnknownExpressionError,
    resolve_value,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceCheck:
    """The check of one resource.

    Args:
        matching_properties: the properties that are as the template says.
        unverifiable_properties: property (or `*`) to the reason why nobody can see it here.
    """

    stack: str
    logical_id: str
    type: str
    physical_id: str
    fidelity: TypeFidelity
    matching_properties: tuple[str, ...]
    differences: tuple[PropertyDifference, ...]
    unverifiable_properties: Mapping[str, str]


def check_stack(
    client: ClientFactory, stack: str, custom_resources: list[dict[str, Any]]
) -> list[ResourceCheck]:
    """Check every resource of `stack`, in the order of its template.

    Args:
        client: gives the boto3 client of a service.
        custom_resources: the endpoint's listing of custom resources.

    Raises:
        UnknownTypeError: the template has a type without a row in the fidelity table.
        UnknownExpressionError: the template has a function that this reading does not know.
    """
    stack_reader = _StackReader(client, stack, custom_resources)
    return [_check_resource(stack_reader, logical_id) for logical_id in stack_reader.resources]


def _check_resource(stack_reader: _StackReader, logical_id: str) -> ResourceCheck:
    resource = stack_reader.resources[logical_id]
    type_fidelity = find_fidelity(resource["Type"])
    properties = stack_reader.properties(logical_id)
    visible_properties = {
        name: value
        for name, value in properties.items()
        if name not in type_fidelity.hidden_properties
    }
    mismatches: list[PropertyDifference] = []
    try:
        description = stack_reader.read_description(logical_id)
    except (ClientError, AbsentResourceError) as error:
        mismatches.append(
            PropertyDifference(
                property_path="*", template_value="deployed", actual_value=str(error)
            )
        )
    else:
        mismatches += find_differences(visible_properties, description, "")
    differing_names = {
        difference.property_path.split(".")[0].removesuffix("[]") for difference in mismatches
    }
    return ResourceCheck(
        stack=stack_reader.name,
        logical_id=logical_id,
        type=resource["Type"],
        physical_id=stack_reader.physical_ids.get(logical_id, ""),
        fidelity=type_fidelity,
        matching_properties=(
            ()
            if "*" in differing_names
            else tuple(name for name in visible_properties if name not in differing_names)
        ),
        differences=tuple(mismatches),
        unverifiable_properties={
            **(
                {"*": type_fidelity.sentence}
                if type_fidelity.level is FidelityLevel.RECORDED
                else {}
            ),
            **{
                name: type_fidelity.hidden_properties[name]
                for name in properties
                if name in type_fidelity.hidden_properties
            },
        },
    )


class _StackReader:
    """A stack with its template, its physical ids and a cache of descriptions."""

    def __init__(
        self, client: ClientFactory, name: str, custom_resources: list[dict[str, Any]]
    ) -> None:
        self.client = client
        self.name = name
        self._custom_resources = {
            item["LogicalId"]: item for item in custom_resources if item["Stack"] == name
        }
        self._descriptions: dict[str, Properties] = {}

    @cached_property
    def template(self) -> Any:
        body = self.client("cloudformation").get_template(
            StackName=self.name, TemplateStage="Processed"
        )["TemplateBody"]
        if not isinstance(body, str):
            return body
        # the CLI sends small ones as YAML
        return json.loads(body) if body.startswith("{") else yaml.safe_load(body)

    @cached_property
    def physical_ids(self) -> Mapping[str, str]:
        pages = (
            self.client("cloudformation")
            .get_paginator("list_stack_resources")
            .paginate(StackName=self.name)
        )
        return {
            item["LogicalResourceId"]: item["PhysicalResourceId"]
            for page in pages
            for item in page["StackResourceSummaries"]
        }

    @cached_property
    def names(self) -> TemplateNames:
        cloudformation = self.client("cloudformation")
        (stack,) = cloudformation.describe_stacks(StackName=self.name)["Stacks"]
        arn = stack["StackId"].split(":")
        parameters = {item["ParameterKey"]: item for item in stack.get("Parameters", [])}
        exports = [
            item
            for page in cloudformation.get_paginator("list_exports").paginate()
            for item in page["Exports"]
        ]
        return TemplateNames(
            physical_ids=self.physical_ids,
            attribute=self._attribute,
            parameters={
                key: item.get("ResolvedValue", item["ParameterValue"])
                for key, item in parameters.items()
            },
            pseudo_parameters={
                "AWS::Partition": "aws",
                "AWS::Region": arn[3],
                "AWS::AccountId": arn[4],
                "AWS::URLSuffix": "amazonaws.com",
                "AWS::StackName": self.name,
                "AWS::StackId": stack["StackId"],
            },
            exports={item["Name"]: item["Value"] for item in exports},
        )

    @cached_property
    def resources(self) -> Mapping[str, Any]:
        resources: Mapping[str, Any] = self.template["Resources"]
        for logical_id, resource in resources.items():
            if "Condition" in resource:
                raise UnknownExpressionError(f"no reading of the condition of {logical_id}")
        return resources

    def properties(self, logical_id: str) -> Properties:
        properties: Properties = resolve_value(
            self.resources[logical_id].get("Properties", {}), self.names
        )
        return properties

    def read_description(self, logical_id: str) -> Properties:
        """Return the resource as its service describes it, or the endpoint's record of it."""
        if logical_id not in self._descriptions:
            self._descriptions[logical_id] = self._fetch_description(logical_id)
        return self._descriptions[logical_id]

    def _fetch_description(self, logical_id: str) -> Properties:
        if logical_id not in self.physical_ids:
            raise AbsentResourceError(f"{logical_id} is in the template and not in the stack")
        type_ = self.resources[logical_id]["Type"]
        if find_fidelity(type_).level is FidelityLevel.RECORDED:
            if logical_id not in self._custom_resources:
                raise AbsentResourceError(
                    f"{logical_id} is not among the recorded custom resources"
                )
            properties: Properties = self._custom_resources[logical_id]["Properties"]
            return properties
        return DESCRIBE[type_](
            self.client, self.physical_ids[logical_id], self.properties(logical_id)
        )

    def _attribute(self, logical_id: str, attribute: str) -> Any:
        description = self.read_description(logical_id)
        if attribute not in description:
            raise UnknownExpressionError(
                f"{self.resources[logical_id]['Type']} has no described attribute {attribute}"
            )
        return description[attribute]
