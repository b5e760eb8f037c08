# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""EKS API parts that MiniStack lacks, but node groups: all fields, updates, cluster protection."""

from __future__ import annotations

import json
import re
from functools import partial

from ministack.core.responses import AccountRegionScopedDict, get_account_id, new_uuid
from ministack.services import ec2, eks

from . import fleet_settings, service_model
from .handlers import ERROR_STATUS

_CLUSTER_SHAPE = partial(service_model.answer_shape, "eks", "DescribeCluster", "cluster")
# An update merges these member by member; members that it does not name stay.
_NESTED_FIELDS = {"resourcesVpcConfig", "accessConfig", "scalingConfig", "kubernetesNetworkConfig"}

_updates = AccountRegionScopedDict()
_stuck_updates = set()
_originals = {}


def install(_handlers: dict) -> None:
    """Wrap the service's functions and put our routes before the service's own."""
    for name, wrapper in (
        ("_create_cluster", _create_cluster),
        ("_delete_cluster", _delete_cluster),
        ("_handle_request_sync", _route_request),
    ):
        _originals[name] = getattr(eks, name)
        setattr(eks, name, wrapper)
    fleet_settings.reset_actions.extend((_updates.clear, _stuck_updates.clear))


def _create_cluster(body, creator_arn=None):
    answer = _originals["_create_cluster"](body, creator_arn)
    if answer[0] < ERROR_STATUS:
        cluster = eks._clusters[body["name"]]
        store_fields(cluster, body, _CLUSTER_SHAPE)
        vpc_config = cluster["resourcesVpcConfig"]
        vpc_config["vpcId"] = _find_vpc_id(vpc_config)
        _create_security_group(body["name"], vpc_config)
    return answer


def _create_security_group(name, vpc_config):
    """Make the security group that EKS makes for a cluster; templates add rules to this group."""
    group_id = vpc_config["clusterSecurityGroupId"]
    ec2._security_groups[group_id] = {
        "GroupId": group_id,
        "GroupName": f"eks-cluster-sg-{name}",
        "VpcId": vpc_config["vpcId"],
        "Description": (
            "EKS created security group applied to ENI that is attached to EKS Control Plane nodes"
        ),
        "OwnerId": get_account_id(),
        "IpPermissions": [],
        "IpPermissionsEgress": [
            {
                "IpProtocol": "-1",
                "IpRanges": [{"CidrIp": "0.0.0.0/0"}],
                "Ipv6Ranges": [],
                "PrefixListIds": [],
                "UserIdGroupPairs": [],
            }
        ],
    }


def store_fields(record: dict, fields: dict, shape=_CLUSTER_SHAPE) -> None:
    """Store all given fields that a describe call can return on the record."""
    for name, value in fields.items():
        if name not in shape().members:
            continue
        record[name] = {**record.get(name, {}), **value} if name in _NESTED_FIELDS else value


def _find_vpc_id(vpc_config):
    subnets = [
        ec2._subnets[name] for name in vpc_config.get("subnetIds", []) if name in ec2._subnets
    ]
    return subnets[0]["VpcId"] if subnets else "vpc-00000000"


def _delete_cluster(name):
    cluster = eks._clusters.get(name)
    if cluster and cluster.get("deletionProtection"):
        return eks._error(
            400,
            "InvalidRequestException",
            f"Cluster {name} has deletion protection enabled and cannot be deleted.",
        )
    if cluster and any(key.startswith(f"{name}/") for key in eks._nodegroups):
        return eks._error(409, "ResourceInUseException", "Cluster has nodegroups attached")
    answer = _originals["_delete_cluster"](name)
    if cluster:
        ec2._security_groups.pop(cluster["resourcesVpcConfig"]["clusterSecurityGroupId"], None)
    return answer


def _route_request(method, path, headers, body, query):
    for pattern, route_method, answer in ROUTES:
        match = re.fullmatch(pattern, path)
        if match and method == route_method:
            fields = json.loads(body) if body else {}
            parameters = {
                name: value[0] if isinstance(value, list) else value
                for name, value in query.items()
            }
            return answer(*match.groups(), fields, parameters)
    return _originals["_handle_request_sync"](method, path, headers, body, query)


def _update_cluster(name, fields, _query):
    cluster = eks._clusters.get(name)
    if cluster is None:
        return _not_found_error(f"No cluster found for name: {name}.")
    store_fields(cluster, fields)
    return record_update(f"{name}/", fields)


def record_update(
    resource_path: str,
    fields: dict,
    *,
    status: str = "Successful",
    is_stuck: bool = False,
) -> tuple:
    """Record an update; the answer to it says InProgress, as EKS does.

    Args:
        resource_path: `cluster/node group`; the second part is empty for the cluster itself.
        fields: the request.
        status: of the update in a describe from now on; `finish_updates` ends one that is
            InProgress.
        is_stuck: the update has no effect and never ends.
    """
    params = [{"type": name, "value": value} for name, value in _update_parameters(fields)]
    update = {
        "id": new_uuid(),
        "status": status,
        "type": "ConfigUpdate",
        "params": params,
        "createdAt": eks._now(),
        "errors": [],
    }
    key = f"{resource_path}/{update['id']}"
    _updates[key] = update
    if is_stuck:
        _stuck_updates.add(key)
    return eks._json_resp(200, {"update": {**update, "status": "InProgress"}})


def finish_updates(nodegroup: str) -> None:
    """End the updates of a node group, `cluster/name`, that its instances have followed."""
    for key, update in _updates.items():
        if key.startswith(f"{nodegroup}/") and key not in _stuck_updates:
            update["status"] = "Successful"


def _update_parameters(fields):
    """Return the requested fields as EKS lists them: each size by itself."""
    if "deletionProtection" in fields:
        yield "DeletionProtection", json.dumps(fields["deletionProtection"])
    for name, size in fields.get("scalingConfig", {}).items():
        yield f"{name[:1].upper()}{name[1:]}", str(size)


def _list_updates(cluster, _fields, query):
    prefix = f"{cluster}/{query.get('nodegroupName', '')}/"
    update_ids = [key.rsplit("/", 1)[-1] for key in _updates if key.startswith(prefix)]
    return eks._json_resp(200, {"updateIds": update_ids})


def _describe_update(cluster, update_id, _fields, query):
    update = _updates.get(f"{cluster}/{query.get('nodegroupName', '')}/{update_id}")
    return (
        eks._json_resp(200, {"update": update})
        if update
        else _not_found_error(f"No update found for ID: {update_id}")
    )


def _not_found_error(message):
    return eks._error(404, "ResourceNotFoundException", message)


# other modules add theirs
ROUTES = [
    (r"/clusters/([^/]+)/update-config", "POST", _update_cluster),
    (r"/clusters/([^/]+)/updates", "GET", _list_updates),
    (r"/clusters/([^/]+)/updates/([^/]+)", "GET", _describe_update),
]
