# ruff: noqa: SLF001, ANN001, ANN002, ANN202 - MiniStack is untyped and has no public interface
"""The EKS types of CloudFormation: properties go to the EKS API by its own model, nothing is picked by hand."""

from __future__ import annotations

from functools import partial

from ministack.services import eks
from ministack.services.cloudformation import provisioners

from . import node_groups, wire
from .eks_api import keep
from .handlers import MISSING, answered, handler, replaced, succeeded, taggable
from .node_group_api import in_order

NEEDS = {
    eks: (
        "_access_entries", "_addons", "_ae_key", "_associate_access_policy", "_clusters", "_create_access_entry",
        "_create_addon", "_create_cluster", "_create_nodegroup", "_create_pod_identity_association",
        "_delete_access_entry", "_delete_addon", "_delete_cluster", "_delete_nodegroup",
        "_delete_pod_identity_association", "_disassociate_access_policy", "_nodegroups", "_pia_key",
        "_pod_identity_associations", "_tags", "_update_access_entry", "_update_pod_identity_association",
    ),
    provisioners: (
        "_EKS_LOG_TYPES", "_eks_cluster_attrs", "_eks_cluster_create", "_eks_nodegroup_attrs", "_eks_nodegroup_create",
        "_physical_name", "_tag_map",
    ),
}  # fmt: skip

# where an add-on lives unless it is told otherwise; all others of ours in kube-system
_NAMESPACES = {"amazon-cloudwatch-observability": "amazon-cloudwatch"}
_CLUSTER = partial(wire.request_shape, "eks", "CreateCluster")
_NODEGROUP = partial(wire.request_shape, "eks", "CreateNodegroup")
_NODEGROUP_RECORD = partial(wire.answer_shape, "eks", "DescribeNodegroup", "nodegroup")


def install(handlers: dict) -> None:
    """Register the missing types, and replace what picks properties by hand."""
    cluster, nodegroup = handlers["AWS::EKS::Cluster"], handlers["AWS::EKS::Nodegroup"]
    cluster["create"] = _cluster_create
    cluster["update"] = _then_kept(cluster["update"], _cluster_kept)
    cluster["delete"] = lambda physical_id, _properties: _gone(eks._delete_cluster(physical_id))
    nodegroup["create"] = _nodegroup_create
    nodegroup["update"] = _then_kept(nodegroup["update"], _nodegroup_kept)
    provisioners._eks_cluster_create, provisioners._eks_nodegroup_create = _cluster_create, _nodegroup_create
    handlers["AWS::EKS::Addon"] = handler(_addon_create, _addon_update, _addon_delete)
    handlers["AWS::EKS::AccessEntry"] = handler(_entry_create, _entry_update, _entry_delete)
    handlers["AWS::EKS::PodIdentityAssociation"] = handler(_identity_create, _identity_update, _identity_delete)
    taggable("AWS::EKS::Addon", "AWS::EKS::AccessEntry", "AWS::EKS::PodIdentityAssociation")


def _gone(answer):
    if answer[0] != MISSING:
        succeeded(answer)


def _then_kept(update, kept):
    def updated(physical_id, old, new, stack, logical_id=None):
        identity, attributes = update(physical_id, old, new, stack, logical_id)
        kept(identity, new)
        return identity, attributes

    return updated


def _cluster_said(properties):
    """The CreateCluster request: CloudFormation nests the log types and the tags differently, all else is spelling."""
    plain = {name: value for name, value in properties.items() if name not in ("Logging", "Force")}
    said = wire.shaped(_CLUSTER(), plain, "AWS::EKS::Cluster", wire.camel)
    if "Logging" in properties:
        types = [item["Type"] for item in properties["Logging"].get("ClusterLogging", {}).get("EnabledTypes", [])]
        off = [type_ for type_ in provisioners._EKS_LOG_TYPES if type_ not in types]
        groups = ((types, True), (off, False))
        said["logging"] = {"clusterLogging": [{"types": names, "enabled": on} for names, on in groups if names]}
    return said


def _cluster_create(logical_id, properties, stack):
    said = _cluster_said(properties)
    said.setdefault("name", provisioners._physical_name(stack, logical_id, max_len=100))
    succeeded(eks._create_cluster(said))
    return said["name"], provisioners._eks_cluster_attrs(eks._clusters[said["name"]])


def _cluster_kept(name, properties):
    said = {key: value for key, value in _cluster_said(properties).items() if key not in ("name", "tags")}
    keep(eks._clusters[name], said)
    if "DeletionProtection" not in properties:
        eks._clusters[name]["deletionProtection"] = False


def _nodegroup_said(properties):
    plain = {name: value for name, value in properties.items() if name != "ForceUpdateEnabled"}
    said = wire.shaped(_NODEGROUP(), plain, "AWS::EKS::Nodegroup", wire.camel)
    scaling = said.get("scalingConfig")
    if scaling is not None and not in_order(scaling):
        raise ValueError(f"Minimum, desired and maximum out of order: {scaling}")
    return said


def _nodegroup_create(logical_id, properties, stack):
    said = _nodegroup_said(properties)
    said.setdefault("nodegroupName", provisioners._physical_name(stack, logical_id, max_len=63))
    succeeded(eks._create_nodegroup(said["clusterName"], said))
    cluster, name = said["clusterName"], said["nodegroupName"]
    record = eks._nodegroups[f"{cluster}/{name}"]
    try:
        node_groups.awaited(cluster, name)
    except ValueError:
        eks._delete_nodegroup(cluster, name)  # the rollback knows no physical id to delete
        node_groups.awaited(cluster, name)
        raise
    return _nodegroup_identity(record)


def _nodegroup_identity(record):
    """MiniStack knows a node group by its bare name; AWS's Ref is cluster/name, which the attribute Id keeps."""
    attributes = provisioners._eks_nodegroup_attrs(record)
    return record["nodegroupName"], {**attributes, "Id": f"{record['clusterName']}/{record['nodegroupName']}"}


def _nodegroup_kept(name, properties):
    said = {key: value for key, value in _nodegroup_said(properties).items() if key != "tags"}
    record = eks._nodegroups[f"{properties['ClusterName']}/{name}"]
    keep(record, said, _NODEGROUP_RECORD)
    node_groups.follow(record)


def _said(operation, properties, *left_out):
    plain = {name: value for name, value in properties.items() if name not in left_out}
    return wire.shaped(wire.request_shape("eks", operation), plain, operation, wire.camel)


def _addon_create(_logical_id, properties, _stack):
    said = _said("CreateAddon", properties, "PreserveOnDelete")
    cluster, associations = properties["ClusterName"], said.pop("podIdentityAssociations", [])
    record = answered(eks._create_addon(cluster, said))["addon"]
    _associate(cluster, record["addonName"], associations)
    if "namespaceConfig" in said:
        eks._addons[f"{cluster}/{record['addonName']}"]["namespaceConfig"] = said["namespaceConfig"]
    return f"{cluster}|{record['addonName']}", {"Arn": record["addonArn"]}


def _associate(cluster, addon, associations):
    """An add-on's associations are associations of their own in its namespace, and the add-on lists their ARNs."""
    record = eks._addons[f"{cluster}/{addon}"]
    _dissociate(cluster, record)
    usual = _NAMESPACES.get(addon, "kube-system")
    namespace = (record.get("namespaceConfig") or {}).get("namespace", usual)
    record["podIdentityAssociations"] = [
        answered(eks._create_pod_identity_association(cluster, {**item, "namespace": namespace}))["association"][
            "associationArn"
        ]
        for item in associations
    ]


def _dissociate(cluster, record):
    for arn in record.get("podIdentityAssociations", []):
        _gone(eks._delete_pod_identity_association(cluster, arn.rsplit("/", 1)[-1]))


def _addon_update(physical_id, old, new, stack, logical_id=None):
    if any(old.get(name) != new.get(name) for name in ("ClusterName", "AddonName", "NamespaceConfig")):
        return _addon_create(logical_id, new, stack)
    said = _said("CreateAddon", new, "PreserveOnDelete")
    cluster, name = physical_id.split("|")
    record = eks._addons[f"{cluster}/{name}"]
    for key in ("addonVersion", "configurationValues", "serviceAccountRoleArn"):
        record[key] = said.get(key, "")
    if old.get("PodIdentityAssociations") != new.get("PodIdentityAssociations"):
        _associate(cluster, name, said.get("podIdentityAssociations", []))
    _retag(record, record["addonArn"], new)
    return physical_id, {"Arn": record["addonArn"]}


def _retag(record, arn, properties):
    record["tags"] = provisioners._tag_map(properties.get("Tags"))
    eks._tags[arn] = dict(record["tags"])


def _addon_delete(physical_id, _properties):
    cluster, name = physical_id.split("|")
    record = eks._addons.get(f"{cluster}/{name}")
    if record:
        _dissociate(cluster, record)
    _gone(eks._delete_addon(cluster, name))


def _entry_create(_logical_id, properties, _stack):
    cluster, principal = properties["ClusterName"], properties["PrincipalArn"]
    entry = answered(eks._create_access_entry(cluster, _said("CreateAccessEntry", properties, "AccessPolicies")))
    for policy in properties.get("AccessPolicies", []):
        succeeded(eks._associate_access_policy(cluster, principal, _said("AssociateAccessPolicy", policy)))
    return f"{principal}|{cluster}", {"AccessEntryArn": entry["accessEntry"]["accessEntryArn"]}


def _entry_update(physical_id, old, new, stack, logical_id=None):
    if any(old.get(name) != new.get(name) for name in ("ClusterName", "PrincipalArn", "Type")):
        return _entry_create(logical_id, new, stack)
    principal, cluster = physical_id.split("|")
    said = _said("CreateAccessEntry", new, "AccessPolicies", "ClusterName", "PrincipalArn", "Type", "Tags")
    entry = answered(eks._update_access_entry(cluster, principal, {"kubernetesGroups": [], **said}))["accessEntry"]
    wanted = {policy["PolicyArn"]: policy for policy in new.get("AccessPolicies", [])}
    for policy in old.get("AccessPolicies", []):
        if policy["PolicyArn"] not in wanted:
            succeeded(eks._disassociate_access_policy(cluster, principal, policy["PolicyArn"]))
    for policy in wanted.values():
        succeeded(eks._associate_access_policy(cluster, principal, _said("AssociateAccessPolicy", policy)))
    _retag(eks._access_entries[eks._ae_key(cluster, principal)], entry["accessEntryArn"], new)
    return physical_id, {"AccessEntryArn": entry["accessEntryArn"]}


def _entry_delete(physical_id, _properties):
    principal, cluster = physical_id.split("|")
    _gone(eks._delete_access_entry(cluster, principal))


def _identity_create(_logical_id, properties, _stack):
    said = _said("CreatePodIdentityAssociation", properties)
    record = answered(eks._create_pod_identity_association(properties["ClusterName"], said))["association"]
    return record["associationArn"], _identity_attributes(record)


def _identity_attributes(record):
    names = {"AssociationArn": "associationArn", "AssociationId": "associationId", "ExternalId": "externalId"}
    return {name: record[key] for name, key in names.items() if key in record}


def _identity_update(physical_id, old, new, stack, logical_id=None):
    fixed = ("ClusterName", "Namespace", "ServiceAccount")
    if any(old.get(name) != new.get(name) for name in fixed):
        return replaced(_identity_create)(physical_id, old, new, stack, logical_id)
    said = _said("CreatePodIdentityAssociation", new, *fixed, "Tags")
    cluster, identity = new["ClusterName"], physical_id.rsplit("/", 1)[-1]
    record = answered(eks._update_pod_identity_association(cluster, identity, said))["association"]
    _retag(eks._pod_identity_associations[eks._pia_key(cluster, identity)], physical_id, new)
    return physical_id, _identity_attributes(record)


def _identity_delete(physical_id, properties):
    _gone(eks._delete_pod_identity_association(properties["ClusterName"], physical_id.rsplit("/", 1)[-1]))
