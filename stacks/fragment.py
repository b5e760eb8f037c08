"""Many like resources in one message to Node (docs/decisions/0044-alike-resources-in-one-message.md).

Invariant: logical ids and addresses are those that the CDK gives to a construct each.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aws_cdk.cloudformation_include import CfnInclude
from constructs import Construct


class Fragment:
    """Resources of a stack, written as a template writes them.

    Args:
        parameters: what `Ref` stands for in them: name -> value, such as another resource's attribute, or a long text,
            because the CDK reads a fragment as YAML, slowly.
    """

    def __init__(self, **parameters: str) -> None:
        self.parameters, self.resources = parameters, dict[str, dict[str, Any]]()

    def add_resource(
        self, path: Sequence[str], type_: str, properties: Mapping[str, Any], *, waits_for: Sequence[str] = (),
        **attributes: str,
    ) -> str:  # fmt: skip
        """Add a resource and return its logical id.

        Args:
            path: as in compute_logical_id.
            waits_for: logical ids of resources that are made before it and deleted after it.
            attributes: of the resource, such as DeletionPolicy.
        """
        logical_id = compute_logical_id(path)
        dependencies = {"DependsOn": list(waits_for)} if waits_for else {}
        self.resources[logical_id] = {"Type": type_, **attributes, **dependencies, "Properties": properties}
        return logical_id

    def include(self, scope: Construct, id_: str) -> CfnInclude:
        """Hand all resources to the CDK."""
        template = {"Parameters": {name: {"Type": "String"} for name in self.parameters}, "Resources": self.resources}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "fragment.json"
            path.write_text(json.dumps(template))
            return CfnInclude(scope, id_, template_file=str(path), parameters=self.parameters)


def compute_logical_id(path: Sequence[str]) -> str:
    """Return the logical id that the CDK gives a resource: the path's names, then a hash of the path.

    Args:
        path: ids of the constructs from below the stack to the resource, without `Default`.
    """
    names: list[str] = []
    for id_ in path:
        if not names or not names[-1].endswith(id_):  # the CDK leaves out what the name before ends with
            names.append(id_)
    # letters and digits, of which the CDK keeps 240
    name = re.sub(r"[^A-Za-z0-9]", "", "".join(id_ for id_ in names if id_ != "Resource"))[:240]
    return name + hashlib.md5("/".join(path).encode(), usedforsecurity=False).hexdigest()[:8].upper()


def compute_address(path: Sequence[str]) -> str:
    """Return what `node.addr` is of the construct with these ids from below the app on, without `Default`."""
    return "c8" + hashlib.sha1("".join(f"{id_}\n" for id_ in ("", *path)).encode(), usedforsecurity=False).hexdigest()
