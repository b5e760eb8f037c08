# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""The EKS API of node groups: all fields, refusals, updates that last until instances follow."""

from __future__ import annotations

from functools import partial

from ministack.services import ec2, eks
from ministack.services.cloudformation import provisioners, stacks

from . import eks_api, fleet_settings, node_groups, service_model
from .handlers import ERROR_STATUS, NOT_FOUND_STATUS, require_success

_TYPE = "AWS::EKS::Nodegroup"
_NODEGROUP_SHAPE = partial(service_model.answer_shape, "eks", "DescribeNodegroup", "nodegroup")
_originals = {}


def install(handlers: dict) -> None:
    """Wrap the service's functions, add our routes, make CloudFormation wait for a node group."""
    _originals["create"] = eks._create_nodegroup
    eks._create_nodegroup = _create_nodegroup
    eks._delete_nodegroup = _delete_nodegroup
    eks._describe_nodegroup = _describe_nodegroup
    eks_api.ROUTES.append(
        (r"/clusters/([^/]+)/node-groups/([^/]+)/update-config", "POST", _update_config)
    )
    node_groups.settle_callbacks.append(eks_api.finish_updates)
    provisioners._eks_nodegroup_delete = _delete_by_stack
    handlers[_TYPE]["delete"] = _delete_by_stack
    runs_on_thread = stacks._runs_on_worker_thread
    stacks._runs_on_worker_thread = lambda type_: type_ == _TYPE or runs_on_thread(type_)


def _create_nodegroup(cluster_name, body):
    problem = _find_request_fault(body)
    if problem:
        return eks._error(400, "InvalidParameterException", problem)
    answer = _originals["create"](cluster_name, body)
    if answer[0] >= ERROR_STATUS:
        return answer
    nodegroup = eks._nodegroups[f"{cluster_name}/{body['nodegroupName']}"]
    eks_api.store_fields(nodegroup, body, _NODEGROUP_SHAPE)
    if "launchTemplate" in body:
        # With a launch template EKS invents neither a type nor a disk.
        for name in {"instanceTypes", "diskSize"} - body.keys():
            nodegroup.pop(name, None)
        if "id" in body["launchTemplate"]:
            nodegroup["launchTemplate"] = _name_version(body["launchTemplate"])
    node_groups.create_group(nodegroup)
    return eks._json_resp(200, {"nodegroup": nodegroup})


def _name_version(template):
    """Return a reference to a launch template with the default version where it names none.

    Source: EKS API reference, LaunchTemplateSpecification.
    """
    default_version = ec2._launch_templates[template["id"]]["DefaultVersionNumber"]
    return {"version": str(default_version), **template}


def _find_request_fault(body):
    scaling = body.get("scalingConfig", {})
    template = body.get("launchTemplate", {})
    if scaling and not is_in_order(scaling):
        return "Minimum capacity must not exceed desired, nor desired the maximum capacity"
    if template.get("id") and template["id"] not in ec2._launch_templates:
        return f"Launch template {template['id']} does not exist"
    if body.get("capacityType") == "CAPACITY_BLOCK" and not template:
        return "A launch template is required for capacity type CAPACITY_BLOCK"
    if template and "diskSize" in body:
        return "Disk size must be specified within the launch template."
    return None


def is_in_order(scaling: dict) -> bool:
    """Return whether minSize <= desiredSize <= maxSize and maxSize >= 1, as EKS requires."""
    smallest, desired_size, largest = (
        scaling.get(name, 0) for name in ("minSize", "desiredSize", "maxSize")
    )
    return 0 <= smallest <= desired_size <= largest and largest >= 1


def _describe_nodegroup(cluster_name, name):
    nodegroup = eks._nodegroups.get(f"{cluster_name}/{name}")
    if nodegroup is None:
        return _not_found_error(name)
    return eks._json_resp(200, {"nodegroup": {**nodegroup, "status": _nodegroup_status(nodegroup)}})


def _nodegroup_status(nodegroup):
    status = nodegroup["status"]
    is_busy = fleet_settings.read_settings().refuses_update and status == "ACTIVE"
    return "UPDATING" if is_busy else status


def _not_found_error(name):
    return eks._error(
        NOT_FOUND_STATUS, "ResourceNotFoundException", f"No node group found for name: {name}."
    )


def _delete_nodegroup(cluster_name, name):
    nodegroup = eks._nodegroups.get(f"{cluster_name}/{name}")
    if nodegroup is None:
        return _not_found_error(name)
    nodegroup["status"] = "DELETING"
    answer = eks._json_resp(200, {"nodegroup": nodegroup})
    node_groups.apply_sizes(nodegroup)
    return answer


def _delete_by_stack(physical_id, properties):
    answer = eks._delete_nodegroup(properties["ClusterName"], physical_id)
    if answer[0] != NOT_FOUND_STATUS:
        require_success(answer)
        node_groups.wait_settled(properties["ClusterName"], physical_id)


def _update_config(cluster, name, fields, _query):
    # otherwise a look at the instances between record and sizes ends the update too early
    with fleet_settings.lock:
        return _update_config_locked(cluster, name, fields)


def _update_config_locked(cluster, name, fields):
    nodegroup = eks._nodegroups.get(f"{cluster}/{name}")
    if nodegroup is None:
        return _not_found_error(name)
    if fleet_settings.read_settings().throttles:
        return eks._error(429, "ThrottlingException", "Rate exceeded")
    problem = _find_change_fault(nodegroup, fields)
    if problem:
        return eks._error(400, "InvalidParameterException", problem)
    if _nodegroup_status(nodegroup) not in ("ACTIVE", "DEGRADED"):
        return _busy_error()
    plain_fields = {key: value for key, value in fields.items() if key != "labels"}
    if fleet_settings.read_settings().ignores_request:
        return eks_api.record_update(
            f"{cluster}/{name}", plain_fields, status="InProgress", is_stuck=True
        )
    eks_api.store_fields(nodegroup, plain_fields, _NODEGROUP_SHAPE)
    _update_labels(nodegroup, fields.get("labels", {}))
    answer = eks_api.record_update(f"{cluster}/{name}", plain_fields, status="InProgress")
    node_groups.apply_sizes(nodegroup)
    return answer


def _find_change_fault(nodegroup, fields):
    scaling = {**nodegroup["scalingConfig"], **fields.get("scalingConfig", {})}
    if not is_in_order(scaling):
        return f"Minimum, desired and maximum out of order: {scaling}"
    return "taints change by a deploy alone here" if "taints" in fields else None


def _update_labels(nodegroup, change):
    removed_keys = change.get("removeLabels", [])
    kept = {key: value for key, value in nodegroup["labels"].items() if key not in removed_keys}
    nodegroup["labels"] = kept | change.get("addOrUpdateLabels", {})


def _busy_error():
    message = "Nodegroup cannot be updated as it is currently not in Active State"
    return eks._error(409, "ResourceInUseException", message)
