# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""The EKS API's missing half: every field kept, updates with a record, and the refusals that protect a cluster."""

from __future__ import annotations

import json
import re

from ministack.core.responses import AccountRegionScopedDict, get_account_id, new_uuid
from ministack.services import ec2, eks

from . import wire
from .handlers import REFUSED

NEEDS = {
    ec2: ("_launch_templates", "_security_groups", "_subnets"),
    eks: (
        "_clusters", "_create_cluster", "_create_nodegroup", "_delete_cluster", "_error", "_handle_request_sync",
        "_json_resp", "_nodegroups", "_now",
    ),
}  # fmt: skip

_CLUSTER = wire.answer_shape("eks", "DescribeCluster", "cluster")
_NODEGROUP = wire.answer_shape("eks", "DescribeNodegroup", "nodegroup")
# Merged member by member by an update; what an update does not name stays.
_NESTED = {"resourcesVpcConfig", "accessConfig", "scalingConfig", "kubernetesNetworkConfig"}

_updates = AccountRegionScopedDict()
_originals = {}


def install(_handlers: dict) -> None:
    """Wrap the service's functions and put our routes before its own."""
    for name, wrapper in (("_create_cluster", _create_cluster), ("_delete_cluster", _delete_cluster),
                          ("_create_nodegroup", _create_nodegroup), ("_handle_request_sync", _handle)):  # fmt: skip
        _originals[name] = getattr(eks, name)
        setattr(eks, name, wrapper)


def _create_cluster(body, creator_arn=None):
    answer = _originals["_create_cluster"](body, creator_arn)
    if answer[0] < REFUSED:
        cluster = eks._clusters[body["name"]]
        keep(cluster, body, _CLUSTER)
        network = cluster["resourcesVpcConfig"]
        network["vpcId"] = _network_of(network)
        _make_group(body["name"], network)
    return answer


def _make_group(name, network):
    """The security group that EKS makes for a cluster; templates add rules to it, so it has to be there."""
    identity = network["clusterSecurityGroupId"]
    ec2._security_groups[identity] = {
        "GroupId": identity, "GroupName": f"eks-cluster-sg-{name}", "VpcId": network["vpcId"],
        "Description": "EKS created security group applied to ENI that is attached to EKS Control Plane nodes",
        "OwnerId": get_account_id(), "IpPermissions": [],
        "IpPermissionsEgress": [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}], "Ipv6Ranges": [],
                                 "PrefixListIds": [], "UserIdGroupPairs": []}],
    }  # fmt: skip


def keep(record: dict, said: dict, shape=_CLUSTER) -> None:
    """Everything said that a describe call can return goes onto the record."""
    for name, value in said.items():
        if name not in shape.members:
            continue
        record[name] = {**record.get(name, {}), **value} if name in _NESTED else value


def _network_of(network):
    subnets = [ec2._subnets[name] for name in network.get("subnetIds", []) if name in ec2._subnets]
    return subnets[0]["VpcId"] if subnets else "vpc-00000000"


def _delete_cluster(name):
    cluster = eks._clusters.get(name)
    if cluster and cluster.get("deletionProtection"):
        return eks._error(
            400, "InvalidRequestException", f"Cluster {name} has deletion protection enabled and cannot be deleted."
        )
    if cluster and any(key.startswith(f"{name}/") for key in eks._nodegroups):
        return eks._error(409, "ResourceInUseException", "Cluster has nodegroups attached")
    answer = _originals["_delete_cluster"](name)
    if cluster:
        ec2._security_groups.pop(cluster["resourcesVpcConfig"]["clusterSecurityGroupId"], None)
    return answer


def _create_nodegroup(cluster_name, body):
    refused = _refused(body)
    if refused:
        return eks._error(400, "InvalidParameterException", refused)
    answer = _originals["_create_nodegroup"](cluster_name, body)
    if answer[0] >= REFUSED:
        return answer
    nodegroup = eks._nodegroups[f"{cluster_name}/{body['nodegroupName']}"]
    keep(nodegroup, body, _NODEGROUP)
    if "launchTemplate" in body:
        # With a launch template EKS invents neither a type nor a disk.
        for name in {"instanceTypes", "diskSize"} - body.keys():
            nodegroup.pop(name, None)
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


def _handle(method, path, headers, body, query):
    for pattern, verb, answer in _ROUTES:
        found = re.fullmatch(pattern, path)
        if found and method == verb:
            said = json.loads(body) if body else {}
            plain = {name: value[0] if isinstance(value, list) else value for name, value in query.items()}
            return answer(*found.groups(), said, plain)
    return _originals["_handle_request_sync"](method, path, headers, body, query)


def _update_cluster(name, said, _query):
    cluster = eks._clusters.get(name)
    if cluster is None:
        return _missing(f"No cluster found for name: {name}.")
    keep(cluster, said)
    return _updated(name, "", "VersionUpdate" if "version" in said else "ConfigUpdate", said)


def _update_nodegroup(cluster, name, said, _query):
    nodegroup = eks._nodegroups.get(f"{cluster}/{name}")
    if nodegroup is None:
        return _missing(f"No node group found for name: {name}.")
    scaling = {**nodegroup["scalingConfig"], **said.get("scalingConfig", {})}
    if not in_order(scaling):
        return eks._error(400, "InvalidParameterException", f"Minimum, desired and maximum out of order: {scaling}")
    labels, taints = said.pop("labels", {}), said.pop("taints", {})
    keep(nodegroup, said, _NODEGROUP)
    nodegroup["labels"] = {
        **{key: value for key, value in nodegroup["labels"].items() if key not in labels.get("removeLabels", [])},
        **labels.get("addOrUpdateLabels", {}),
    }
    nodegroup["taints"] = _tainted(nodegroup["taints"], taints)
    nodegroup["modifiedAt"] = eks._now()
    return _updated(cluster, name, "ConfigUpdate", said)


def _tainted(taints, said):
    gone = [_taint_key(taint) for taint in said.get("removeTaints", []) + said.get("addOrUpdateTaints", [])]
    return [taint for taint in taints if _taint_key(taint) not in gone] + said.get("addOrUpdateTaints", [])


def _taint_key(taint):
    return taint["key"], taint["effect"]


def _update_nodegroup_version(cluster, name, said, _query):
    nodegroup = eks._nodegroups.get(f"{cluster}/{name}")
    if nodegroup is None:
        return _missing(f"No node group found for name: {name}.")
    keep(nodegroup, said, _NODEGROUP)
    return _updated(cluster, name, "VersionUpdate", said)


def _updated(cluster, nodegroup, type_, said):
    """The update's record: it is in force at once, the answer says InProgress as EKS does, a describe Successful."""
    params = [
        {"type": _parameter(name), "value": json.dumps(value)} for name, value in said.items() if _parameter(name)
    ]
    update = {"id": new_uuid(), "status": "Successful", "type": type_, "params": params, "createdAt": eks._now(),
              "errors": []}  # fmt: skip
    _updates[f"{cluster}/{nodegroup}/{update['id']}"] = update
    return eks._json_resp(200, {"update": {**update, "status": "InProgress"}})


def _parameter(name):
    return {"scalingConfig": "DesiredSize", "version": "Version", "deletionProtection": "DeletionProtection"}.get(name)


def _list_updates(cluster, _said, query):
    prefix = f"{cluster}/{query.get('nodegroupName', '')}/"
    found = [key.rsplit("/", 1)[-1] for key in _updates if key.startswith(prefix)]
    return eks._json_resp(200, {"updateIds": found})


def _describe_update(cluster, identity, _said, query):
    update = _updates.get(f"{cluster}/{query.get('nodegroupName', '')}/{identity}")
    return eks._json_resp(200, {"update": update}) if update else _missing(f"No update found for ID: {identity}")


def _missing(message):
    return eks._error(404, "ResourceNotFoundException", message)


_GROUP = r"/clusters/([^/]+)/node-groups/([^/]+)"
_ROUTES = (
    (r"/clusters/([^/]+)/update-config", "POST", _update_cluster),
    (r"/clusters/([^/]+)/updates", "POST", _update_cluster),
    (r"/clusters/([^/]+)/updates", "GET", _list_updates),
    (r"/clusters/([^/]+)/updates/([^/]+)", "GET", _describe_update),
    (f"{_GROUP}/update-config", "POST", _update_nodegroup),
    (f"{_GROUP}/update-version", "POST", _update_nodegroup_version),
)
