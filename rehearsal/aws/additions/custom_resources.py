# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Custom resources: properties are recorded for listing; their Lambda is deployed, never invoked.

There is no Kubernetes API behind the cluster and no internet for a chart, so a run of the kubectl
provider would only fail. CloudFormation's own record of a resource is the store, and rolls back
with its stack.

Only the images of ours are real: their Lambda calls ECR and CodeBuild, which are both here.
"""

from __future__ import annotations

import json

from ministack import app
from ministack.core.responses import new_uuid
from ministack.services import cloudformation
from ministack.services.cloudformation import provisioners

PATH = "/_tandem/recorded"
_REAL_TYPES = {"Custom::TandemImage"}
_originals = {}


def install(_handlers: dict) -> None:
    """Replace the Lambda call, and serve the listing."""
    for action, replacement in (
        ("create", _create_resource),
        ("update", _update_resource),
        ("delete", _delete_resource),
    ):
        name = f"_custom_resource_{action}"
        _originals[action] = getattr(provisioners, name)
        setattr(provisioners, name, replacement)
    serve_app = app.app

    async def serve_with_listing(scope, receive, send):
        if scope["type"] == "http" and scope["path"] == PATH:
            await _send_json(send, list_resources())
        else:
            await serve_app(scope, receive, send)

    app.app = serve_with_listing


def _create_resource(logical_id, properties, stack, type_):
    if "ServiceToken" not in properties:
        raise ValueError("ServiceToken is required for a custom resource")
    if type_ in _REAL_TYPES:
        return _originals["create"](logical_id, properties, stack, type_)
    return f"{logical_id.lower()}-{new_uuid()[:8]}", {}


def _update_resource(physical_id, old, new, stack, logical_id=None, resource_type=""):  # noqa: PLR0913, PLR0917  # its callers'
    if resource_type in _REAL_TYPES:
        return _originals["update"](physical_id, old, new, stack, logical_id, resource_type)
    return physical_id, {}


def _delete_resource(physical_id, properties, stack_name=None, logical_id=None, resource_type=""):
    if resource_type in _REAL_TYPES:
        _originals["delete"](physical_id, properties, stack_name, logical_id, resource_type)


def list_resources() -> list[dict]:
    """Return all custom resources, any account and region, with what their provider would get."""
    return [
        {
            "Stack": name,
            "LogicalId": logical_id,
            "Properties": resource["Properties"],
        }
        for (_account, _region, name), stack in cloudformation._stacks.all_items()
        if stack.get("StackStatus") != "DELETE_COMPLETE"
        for logical_id, resource in stack.get("_resources", {}).items()
        if resource["ResourceType"].startswith("Custom::")
    ]


async def _send_json(send, value):
    head = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": json.dumps(value, default=str).encode()})
