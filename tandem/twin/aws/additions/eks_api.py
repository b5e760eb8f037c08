# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""The EKS API's missing half but for node groups: every field kept, updates with a record, protected clusters."""

from __future__ import annotations

import json
import re
from functools import partial
from urllib.parse import unquote

from ministack.core.responses import AccountRegionScopedDict, get_account_id, new_uuid
from ministack.services import ec2, eks

from . import fleet_knobs, wire
from .handlers import REFUSED

NEEDS = {
    ec2: ("_security_groups", "_subnets"),
    eks: (
        "_access_entries", "_addons", "_clusters", "_create_cluster", "_delete_cluster", "_error",
        "_handle_request_sync", "_json_resp", "_nodegroups", "_now", "_tag_resource", "_tags", "_untag_resource",
    ),
}  # fmt: skip

_CLUSTER = partial(wire.answer_shape, "eks", "DescribeCluster", "cluster")
# Merged member by member by an update; what an update does not name stays.
_NESTED = {"resourcesVpcConfig", "accessConfig", "scalingConfig", "kubernetesNetworkConfig"}

_updates = AccountRegionScopedDict()
_lost = set()
_originals = {}


def install(_handlers: dict) -> None:
    """Wrap the service's functions and put our routes before its own."""
    for name, wrapper in (
        ("_create_cluster", _create_cluster), ("_delete_cluster", _delete_cluster), ("_handle_request_sync", _handle),
        ("_tag_resource", _tag),
    ):  # fmt: skip
        _originals[name] = getattr(eks, name)
        setattr(eks, name, wrapper)
    fleet_knobs.forget.extend((_updates.clear, _lost.clear))


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
        if name not in shape().members:
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


def _handle(method, path, headers, body, query):
    if method == "DELETE" and path.startswith("/tags/"):
        return _untag(unquote(path.removeprefix("/tags/")), query)  # plain MiniStack keeps the first key alone
    for pattern, verb, answer in ROUTES:
        found = re.fullmatch(pattern, path)
        if found and method == verb:
            said = json.loads(body) if body else {}
            plain = {name: value[0] if isinstance(value, list) else value for name, value in query.items()}
            return answer(*found.groups(), said, plain)
    return _originals["_handle_request_sync"](method, path, headers, body, query)


def _tag(arn, body):
    return _retagged(arn, _originals["_tag_resource"](arn, body), lambda tags: {**tags, **body.get("tags", {})})


def _untag(arn, query):
    keys = query.get("tagKeys", [])
    gone = {keys} if isinstance(keys, str) else set(keys)
    answer = eks._untag_resource(arn, query)
    return _retagged(arn, answer, lambda tags: {key: value for key, value in tags.items() if key not in gone})


def _retagged(arn, answer, change):
    """Plain MiniStack keeps tags in a table of their own, which no describe call reads."""
    if answer[0] < REFUSED:
        for record in _tagged():
            if arn in (record.get("arn"), record.get("nodegroupArn"), record.get("addonArn"),
                       record.get("accessEntryArn")):  # fmt: skip
                record["tags"] = change(record.get("tags") or {})
                eks._tags[arn] = dict(record["tags"])
    return answer


def _tagged():
    for records in (eks._clusters, eks._nodegroups, eks._addons, eks._access_entries):
        yield from records.values()


def _update_cluster(name, said, _query):
    cluster = eks._clusters.get(name)
    if cluster is None:
        return _missing(f"No cluster found for name: {name}.")
    keep(cluster, said)
    return updated(f"{name}/", "VersionUpdate" if "version" in said else "ConfigUpdate", said)


def updated(of: str, type_: str, said: dict, *, status: str = "Successful", lost: bool = False) -> tuple:
    """Record an update; the answer to it says InProgress, as EKS does.

    Args:
        of: `cluster/node group`; the second part is empty for the cluster itself.
        type_: as EKS names it.
        said: the request.
        status: what a describe says from now on; `succeed` ends one that is InProgress.
        lost: nothing will come of it, and it is never ended.
    """
    params = [{"type": name, "value": value} for name, value in _parameters(said)]
    update = {"id": new_uuid(), "status": status, "type": type_, "params": params, "createdAt": eks._now(),
              "errors": []}  # fmt: skip
    key = f"{of}/{update['id']}"
    _updates[key] = update
    if lost:
        _lost.add(key)
    return eks._json_resp(200, {"update": {**update, "status": "InProgress"}})


def succeed(nodegroup: str) -> None:
    """End the updates of a node group, `cluster/name`, that its instances have followed."""
    for key, update in _updates.items():
        if key.startswith(f"{nodegroup}/") and key not in _lost:
            update["status"] = "Successful"


def _parameters(said):
    """What was asked for, as EKS lists it: each size by itself."""
    for name, kind in (("version", "Version"), ("deletionProtection", "DeletionProtection")):
        if name in said:
            yield kind, json.dumps(said[name])
    for name, size in said.get("scalingConfig", {}).items():
        yield f"{name[:1].upper()}{name[1:]}", str(size)


def _list_updates(cluster, _said, query):
    prefix = f"{cluster}/{query.get('nodegroupName', '')}/"
    found = [key.rsplit("/", 1)[-1] for key in _updates if key.startswith(prefix)]
    return eks._json_resp(200, {"updateIds": found})


def _describe_update(cluster, identity, _said, query):
    update = _updates.get(f"{cluster}/{query.get('nodegroupName', '')}/{identity}")
    return eks._json_resp(200, {"update": update}) if update else _missing(f"No update found for ID: {identity}")


def _missing(message):
    return eks._error(404, "ResourceNotFoundException", message)


# other modules add theirs
ROUTES = [
    (r"/clusters/([^/]+)/update-config", "POST", _update_cluster),
    (r"/clusters/([^/]+)/updates", "POST", _update_cluster),
    (r"/clusters/([^/]+)/updates", "GET", _list_updates),
    (r"/clusters/([^/]+)/updates/([^/]+)", "GET", _describe_update),
]
