"""Many similar resources in one message to Node (docs/decisions/0044-alike-resources-in-one-message.md).

Invariant: logical ids and addresses are those that the CDK gives to separate constructs.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aws_cdk.cloudformation_include import CfnInclude
from constructs import Construct

Properties = dict[str, Any]
"""In CloudFormation's form."""


class Fragment:
    """Resources of a stack, in the form of a template."""

    def __init__(self) -> None:
        self._template: dict[str, Any] = {"Parameters": {}, "Resources": {}}
        self._values = dict[str, Properties]()

    def add_resource(
        self, path: Sequence[str], type_: str, properties: Properties, *, references: Properties | None = None,
        waits_for: Sequence[str] = (), **attributes: str,
    ) -> str:  # fmt: skip
        """Add a resource and return its logical id.

        Args:
            path: as for compute_logical_id.
            references: further properties, which refer to resources of this fragment.
            waits_for: logical ids of resources that are made before this one and deleted after it.
            attributes: of the resource, such as DeletionPolicy.
        """
        logical_id = compute_logical_id(path)
        resource: Properties = {"Type": type_, **attributes, **({"DependsOn": list(waits_for)} if waits_for else {})}
        if references:
            resource["Properties"] = {**properties, **references}
        else:  # not in the text, because the CDK reads that as YAML, slowly
            parameter = f"{logical_id}Properties"
            resource["Properties"], self._values[parameter] = {"Ref": parameter}, properties
            self._template["Parameters"][parameter] = {"Type": "String"}
        self._template["Resources"][logical_id] = resource
        return logical_id

    def include(self, scope: Construct, id_: str) -> CfnInclude:
        """Pass all resources to the CDK."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "fragment.json"
            path.write_text(json.dumps(self._template, separators=(",", ":")))
            return CfnInclude(scope, id_, template_file=str(path), parameters=self._values)


def compute_logical_id(path: Sequence[str]) -> str:
    """Return the logical id that the CDK gives a resource: the path's names, then a hash of the path.

    Args:
        path: ids of the constructs from the stack (excluded) to the resource, without `Default`.
    """
    names: list[str] = []
    for id_ in path:
        if not names or not names[-1].endswith(id_):  # the CDK omits an id with which the name before ends
            names.append(id_)
    # of letters and digits the CDK keeps 240
    name = re.sub(r"[^A-Za-z0-9]", "", "".join(id_ for id_ in names if id_ != "Resource"))[:240]
    return name + hashlib.md5("/".join(path).encode(), usedforsecurity=False).hexdigest()[:8].upper()


def compute_address(path: Sequence[str]) -> str:
    """Return `node.addr` of the construct with these ids, starting below the app, without `Default`."""
    return "c8" + hashlib.sha1("".join(f"{id_}\n" for id_ in ("", *path)).encode(), usedforsecurity=False).hexdigest()
