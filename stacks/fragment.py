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


def add_fragment(
    scope: Construct, id_: str, resources: Mapping[str, Mapping[str, Any]], parameters: Mapping[str, str]
) -> CfnInclude:
    """Add resources written as a template writes them.

    Args:
        resources: logical id -> type, properties and attributes.
        parameters: what `Ref` stands for in them: name -> value, such as another resource's attribute, or a long text,
            because the CDK reads a fragment as YAML, slowly.
    """
    template = {"Parameters": {name: {"Type": "String"} for name in parameters}, "Resources": resources}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fragment.json"
        path.write_text(json.dumps(template))
        return CfnInclude(scope, id_, template_file=str(path), parameters=parameters)


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
