# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""The EKS API of node groups: every field kept, the refusals, and updates that last until the instances followed."""

from __future__ import annotations

from functools import partial

from ministack.services import ec2, eks
from ministack.services.cloudformation import provisioners, stacks

from . import eks_api, fleet_knobs, node_groups, wire
from .handlers import MISSING, REFUSED, succeeded

NEEDS = {
    ec2: ("_launch_templates",),
    eks: ("_create_nodegroup", "_delete_nodegroup", "_describe_nodegroup", "_error", "_json_resp", "_nodegroups",
          "_now"),
    provisioners: ("_eks_nodegroup_delete",),
    stacks: ("_runs_on_worker_thread",),
}  # fmt: skip

_TYPE = "AWS::EKS::Nodegroup"
_NODEGROUP = partial(wire.answer_shape, "eks", "DescribeNodegroup", "nodegroup")
_originals = {}


def install(handlers: dict) -> None:
    """Wrap the service's functions, add our routes, and let CloudFormation wait for a node group."""
    _originals["create"] = eks._create_nodegroup
    eks._create_nodegroup, eks._delete_nodegroup, eks._describe_nodegroup = _create, _delete, _describe
    eks_api.ROUTES.extend((
        (r"/clusters/([^/]+)/node-groups/([^/]+)/update-config", "POST", _update),
        (r"/clusters/([^/]+)/node-groups/([^/]+)/update-version", "POST", _update_version),
    ))  # fmt: skip
    node_groups.followed.append(eks_api.succeed)
    provisioners._eks_nodegroup_delete = _delete_by_stack
    handlers[_TYPE]["delete"] = _delete_by_stack
    on_thread = stacks._runs_on_worker_thread
    stacks._runs_on_worker_thread = lambda type_: type_ == _TYPE or on_thread(type_)


def _create(cluster_name, body):
    refused = _refused(body)
    if refused:
        return eks._error(400, "InvalidParameterException", refused)
    answer = _originals["create"](cluster_name, body)
    if answer[0] >= REFUSED:
        return answer
    nodegroup = eks._nodegroups[f"{cluster_name}/{body['nodegroupName']}"]
    eks_api.keep(nodegroup, body, _NODEGROUP)
    if "launchTemplate" in body:
        # With a launch template EKS invents neither a type nor a disk.
        for name in {"instanceTypes", "diskSize"} - body.keys():
            nodegroup.pop(name, None)
    node_groups.begin(nodegroup)
    return eks._json_resp(200, {"nodegroup": nodegroup})


def _refused(body):
    scaling = body.get("scalingConfig", {})
    template = body.get("launchTemplate", {})
    if scaling and not in_order(scaling):
        return "Minimum capacity must not exceed desired, nor desired the maximum capacity"
    if template.get("id") and template["id"] not in ec2._launch_templates:
        return f"Launch template {template['id']} does not exist"
    if body.get("capacityType") == "CAPACITY_BLOCK" and not template:
        return "A launch template is required for capacity type CAPACITY_BLOCK"
    if template and "diskSize" in body:
        return "Disk size must be specified within the launch template."
    return None


def in_order(scaling: dict) -> bool:
    """Whether minSize <= desiredSize <= maxSize, with a maximum of at least one node, as EKS demands."""
    smallest, wanted, largest = (scaling.get(name, 0) for name in ("minSize", "desiredSize", "maxSize"))
    return 0 <= smallest <= wanted <= largest and largest >= 1


def _describe(cluster_name, name):
    nodegroup = eks._nodegroups.get(f"{cluster_name}/{name}")
    if nodegroup is None:
        return _missing(name)
    return eks._json_resp(200, {"nodegroup": {**nodegroup, "status": _status(nodegroup)}})


def _status(nodegroup):
    knobs = fleet_knobs.of(f"{nodegroup['clusterName']}/{nodegroup['nodegroupName']}")
    return "UPDATING" if knobs.refuses_update and nodegroup["status"] == "ACTIVE" else nodegroup["status"]


def _missing(name):
    return eks._error(MISSING, "ResourceNotFoundException", f"No node group found for name: {name}.")


def _delete(cluster_name, name):
    nodegroup = eks._nodegroups.get(f"{cluster_name}/{name}")
    if nodegroup is None:
        return _missing(name)
    nodegroup["status"] = "DELETING"
    said = eks._json_resp(200, {"nodegroup": nodegroup})
    node_groups.follow(nodegroup)
    return said


def _delete_by_stack(physical_id, properties):
    answer = eks._delete_nodegroup(properties["ClusterName"], physical_id)
    if answer[0] != MISSING:
        succeeded(answer)
        node_groups.awaited(properties["ClusterName"], physical_id)


def _update(cluster, name, said, _query):
    with fleet_knobs.lock:  # or a look at the instances between the record and the sizes would end it too early
        return _updated(cluster, name, said)


def _updated(cluster, name, said):
    nodegroup = eks._nodegroups.get(f"{cluster}/{name}")
    if nodegroup is None:
        return _missing(name)
    if fleet_knobs.of(f"{cluster}/{name}").throttles:
        return eks._error(429, "ThrottlingException", "Rate exceeded")
    scaling = {**nodegroup["scalingConfig"], **said.get("scalingConfig", {})}
    if not in_order(scaling):
        return eks._error(400, "InvalidParameterException", f"Minimum, desired and maximum out of order: {scaling}")
    if _status(nodegroup) not in ("ACTIVE", "DEGRADED"):
        return _busy()
    plain = {key: value for key, value in said.items() if key not in ("labels", "taints")}
    if fleet_knobs.of(f"{cluster}/{name}").ignores_request:
        return eks_api.updated(f"{cluster}/{name}", "ConfigUpdate", plain, status="InProgress", lost=True)
    eks_api.keep(nodegroup, plain, _NODEGROUP)
    _mark(nodegroup, said)
    answer = eks_api.updated(f"{cluster}/{name}", "ConfigUpdate", plain, status="InProgress")
    node_groups.follow(nodegroup)
    return answer


def _mark(nodegroup, said):
    """The nodes' labels and taints, added and removed."""
    labels, taints = said.get("labels", {}), said.get("taints", {})
    nodegroup["labels"] = {
        **{key: value for key, value in nodegroup["labels"].items() if key not in labels.get("removeLabels", [])},
        **labels.get("addOrUpdateLabels", {}),
    }
    nodegroup["taints"] = _tainted(nodegroup["taints"], taints)
    nodegroup["modifiedAt"] = eks._now()


def _busy():
    message = "Nodegroup cannot be updated as it is currently not in Active State"
    return eks._error(409, "ResourceInUseException", message)


def _tainted(taints, said):
    gone = [_taint_key(taint) for taint in said.get("removeTaints", []) + said.get("addOrUpdateTaints", [])]
    return [taint for taint in taints if _taint_key(taint) not in gone] + said.get("addOrUpdateTaints", [])


def _taint_key(taint):
    return taint["key"], taint["effect"]


def _update_version(cluster, name, said, _query):
    nodegroup = eks._nodegroups.get(f"{cluster}/{name}")
    if nodegroup is None:
        return _missing(name)
    if _status(nodegroup) != "ACTIVE":
        return _busy()
    with fleet_knobs.lock:
        eks_api.keep(nodegroup, said, _NODEGROUP)
        answer = eks_api.updated(f"{cluster}/{name}", "VersionUpdate", said, status="InProgress")
        node_groups.recycle(nodegroup)
    return answer
