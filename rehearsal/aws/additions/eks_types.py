# ruff: noqa: SLF001, ANN001, ANN002, ANN202 - MiniStack is untyped and has no public interface
"""The EKS types of CloudFormation: all properties go to the EKS API by its model, not by hand."""

from __future__ import annotations

from functools import partial

from ministack.services import eks
from ministack.services.cloudformation import provisioners

from . import node_groups, service_model
from .eks_api import store_fields
from .handlers import (
    NOT_FOUND_STATUS,
    add_stack_tags,
    build_handler,
    build_replacing_update,
    parse_answer,
    require_success,
)
from .node_group_api import is_in_order

# default namespaces of add-ons; all others of ours are in kube-system
_ADDON_NAMESPACES = {"amazon-cloudwatch-observability": "amazon-cloudwatch"}
_NODEGROUP_RECORD_SHAPE = partial(
    service_model.answer_shape, "eks", "DescribeNodegroup", "nodegroup"
)


def install(handlers: dict) -> None:
    """Register the missing types, and replace handlers that pick properties by hand."""
    cluster = handlers["AWS::EKS::Cluster"]
    nodegroup = handlers["AWS::EKS::Nodegroup"]
    cluster["create"] = _create_cluster
    cluster["update"] = _update_then_store(cluster["update"], _store_cluster)
    cluster["delete"] = lambda physical_id, _properties: _require_success_or_missing(
        eks._delete_cluster(physical_id)
    )
    nodegroup["create"] = _create_nodegroup
    nodegroup["update"] = _update_then_store(nodegroup["update"], _store_nodegroup)
    provisioners._eks_cluster_create = _create_cluster
    provisioners._eks_nodegroup_create = _create_nodegroup
    handlers["AWS::EKS::Addon"] = build_handler(_create_addon, _update_addon, _delete_addon)
    handlers["AWS::EKS::AccessEntry"] = build_handler(_create_entry, _update_entry, _delete_entry)
    handlers["AWS::EKS::PodIdentityAssociation"] = build_handler(
        _create_identity, _update_identity, _delete_identity
    )
    add_stack_tags("AWS::EKS::Addon", "AWS::EKS::AccessEntry", "AWS::EKS::PodIdentityAssociation")


def _require_success_or_missing(answer):
    if answer[0] != NOT_FOUND_STATUS:
        require_success(answer)


def _update_then_store(update, store):
    def update_and_store(physical_id, old, new, stack, logical_id=None):
        resource_id, attributes = update(physical_id, old, new, stack, logical_id)
        store(resource_id, new)
        return resource_id, attributes

    return update_and_store


def _cluster_request(properties):
    """Return the CreateCluster request: log types and tags nest otherwise, the rest is spelling."""
    request = _build_request("CreateCluster", properties, "Logging", "Force")
    if "Logging" in properties:
        types = [
            item["Type"]
            for item in properties["Logging"].get("ClusterLogging", {}).get("EnabledTypes", [])
        ]
        disabled_types = [type_ for type_ in provisioners._EKS_LOG_TYPES if type_ not in types]
        groups = ((types, True), (disabled_types, False))
        request["logging"] = {
            "clusterLogging": [
                {"types": names, "enabled": is_on} for names, is_on in groups if names
            ]
        }
    return request


def _create_cluster(logical_id, properties, stack):
    request = _cluster_request(properties)
    request.setdefault("name", provisioners._physical_name(stack, logical_id, max_len=100))
    require_success(eks._create_cluster(request))
    return request["name"], provisioners._eks_cluster_attrs(eks._clusters[request["name"]])


def _store_cluster(name, properties):
    fields = {
        key: value
        for key, value in _cluster_request(properties).items()
        if key not in ("name", "tags")
    }
    store_fields(eks._clusters[name], fields)
    if "DeletionProtection" not in properties:
        eks._clusters[name]["deletionProtection"] = False


def _nodegroup_request(properties):
    request = _build_request("CreateNodegroup", properties, "ForceUpdateEnabled")
    scaling = request.get("scalingConfig")
    if scaling is not None and not is_in_order(scaling):
        raise ValueError(f"Minimum, desired and maximum out of order: {scaling}")
    return request


def _create_nodegroup(logical_id, properties, stack):
    request = _nodegroup_request(properties)
    request.setdefault("nodegroupName", provisioners._physical_name(stack, logical_id, max_len=63))
    require_success(eks._create_nodegroup(request["clusterName"], request))
    cluster = request["clusterName"]
    name = request["nodegroupName"]
    record = eks._nodegroups[f"{cluster}/{name}"]
    try:
        node_groups.wait_settled(cluster, name)
    except ValueError:
        eks._delete_nodegroup(cluster, name)  # the rollback knows no physical id to delete
        node_groups.wait_settled(cluster, name)
        raise
    return _nodegroup_identity(record)


def _nodegroup_identity(record):
    """Return name and attributes: MiniStack knows the bare name; AWS's Ref, cluster/name, is Id."""
    attributes = provisioners._eks_nodegroup_attrs(record)
    return record["nodegroupName"], {
        **attributes,
        "Id": f"{record['clusterName']}/{record['nodegroupName']}",
    }


def _store_nodegroup(name, properties):
    fields = {key: value for key, value in _nodegroup_request(properties).items() if key != "tags"}
    record = eks._nodegroups[f"{properties['ClusterName']}/{name}"]
    store_fields(record, fields, _NODEGROUP_RECORD_SHAPE)
    node_groups.apply_sizes(record)


def _build_request(operation, properties, *ignored_names):
    request_properties = {
        name: value for name, value in properties.items() if name not in ignored_names
    }
    return service_model.convert_value(
        service_model.request_shape("eks", operation),
        request_properties,
        f"AWS::EKS::{operation.removeprefix('Create')}",
        service_model.to_camel_case,
    )


def _create_addon(_logical_id, properties, _stack):
    request = _build_request("CreateAddon", properties, "PreserveOnDelete")
    cluster = properties["ClusterName"]
    associations = request.pop("podIdentityAssociations", [])
    record = parse_answer(eks._create_addon(cluster, request))["addon"]
    _associate_roles(cluster, record["addonName"], associations)
    if "namespaceConfig" in request:
        eks._addons[f"{cluster}/{record['addonName']}"]["namespaceConfig"] = request[
            "namespaceConfig"
        ]
    return f"{cluster}|{record['addonName']}", {"Arn": record["addonArn"]}


def _associate_roles(cluster, addon, associations):
    """Make an add-on's associations separately in its namespace; it lists their ARNs."""
    record = eks._addons[f"{cluster}/{addon}"]
    _dissociate_roles(cluster, record)
    default_namespace = _ADDON_NAMESPACES.get(addon, "kube-system")
    namespace = (record.get("namespaceConfig") or {}).get("namespace", default_namespace)
    record["podIdentityAssociations"] = [
        parse_answer(
            eks._create_pod_identity_association(cluster, {**item, "namespace": namespace})
        )["association"]["associationArn"]
        for item in associations
    ]


def _dissociate_roles(cluster, record):
    for arn in record.get("podIdentityAssociations", []):
        _require_success_or_missing(
            eks._delete_pod_identity_association(cluster, arn.rsplit("/", 1)[-1])
        )


def _update_addon(physical_id, old, new, stack, logical_id=None):
    if any(
        old.get(name) != new.get(name) for name in ("ClusterName", "AddonName", "NamespaceConfig")
    ):
        return _create_addon(logical_id, new, stack)
    request = _build_request("CreateAddon", new, "PreserveOnDelete")
    cluster, name = physical_id.split("|")
    record = eks._addons[f"{cluster}/{name}"]
    for key in ("addonVersion", "configurationValues", "serviceAccountRoleArn"):
        record[key] = request.get(key, "")
    if old.get("PodIdentityAssociations") != new.get("PodIdentityAssociations"):
        _associate_roles(cluster, name, request.get("podIdentityAssociations", []))
    _store_tags(record, record["addonArn"], new)
    return physical_id, {"Arn": record["addonArn"]}


def _store_tags(record, arn, properties):
    record["tags"] = provisioners._tag_map(properties.get("Tags"))
    eks._tags[arn] = dict(record["tags"])


def _delete_addon(physical_id, _properties):
    cluster, name = physical_id.split("|")
    record = eks._addons.get(f"{cluster}/{name}")
    if record:
        _dissociate_roles(cluster, record)
    _require_success_or_missing(eks._delete_addon(cluster, name))


def _create_entry(_logical_id, properties, _stack):
    cluster = properties["ClusterName"]
    principal = properties["PrincipalArn"]
    entry = parse_answer(
        eks._create_access_entry(
            cluster, _build_request("CreateAccessEntry", properties, "AccessPolicies")
        )
    )
    for policy in properties.get("AccessPolicies", []):
        require_success(
            eks._associate_access_policy(
                cluster, principal, _build_request("AssociateAccessPolicy", policy)
            )
        )
    return f"{principal}|{cluster}", {"AccessEntryArn": entry["accessEntry"]["accessEntryArn"]}


def _update_entry(physical_id, old, new, stack, logical_id=None):
    if any(old.get(name) != new.get(name) for name in ("ClusterName", "PrincipalArn", "Type")):
        return _create_entry(logical_id, new, stack)
    principal, cluster = physical_id.split("|")
    request = _build_request(
        "CreateAccessEntry", new, "AccessPolicies", "ClusterName", "PrincipalArn", "Type", "Tags"
    )
    entry = parse_answer(
        eks._update_access_entry(cluster, principal, {"kubernetesGroups": [], **request})
    )["accessEntry"]
    new_policies = {policy["PolicyArn"]: policy for policy in new.get("AccessPolicies", [])}
    for policy in old.get("AccessPolicies", []):
        if policy["PolicyArn"] not in new_policies:
            require_success(
                eks._disassociate_access_policy(cluster, principal, policy["PolicyArn"])
            )
    for policy in new_policies.values():
        require_success(
            eks._associate_access_policy(
                cluster, principal, _build_request("AssociateAccessPolicy", policy)
            )
        )
    _store_tags(eks._access_entries[eks._ae_key(cluster, principal)], entry["accessEntryArn"], new)
    return physical_id, {"AccessEntryArn": entry["accessEntryArn"]}


def _delete_entry(physical_id, _properties):
    principal, cluster = physical_id.split("|")
    _require_success_or_missing(eks._delete_access_entry(cluster, principal))


def _create_identity(_logical_id, properties, _stack):
    request = _build_request("CreatePodIdentityAssociation", properties)
    record = parse_answer(eks._create_pod_identity_association(properties["ClusterName"], request))[
        "association"
    ]
    return record["associationArn"], _identity_attributes(record)


def _identity_attributes(record):
    names = {
        "AssociationArn": "associationArn",
        "AssociationId": "associationId",
        "ExternalId": "externalId",
    }
    return {name: record[key] for name, key in names.items() if key in record}


def _update_identity(physical_id, old, new, stack, logical_id=None):
    immutable_names = ("ClusterName", "Namespace", "ServiceAccount")
    if any(old.get(name) != new.get(name) for name in immutable_names):
        return build_replacing_update(_create_identity)(physical_id, old, new, stack, logical_id)
    request = _build_request("CreatePodIdentityAssociation", new, *immutable_names, "Tags")
    cluster = new["ClusterName"]
    association_id = physical_id.rsplit("/", 1)[-1]
    record = parse_answer(eks._update_pod_identity_association(cluster, association_id, request))[
        "association"
    ]
    _store_tags(
        eks._pod_identity_associations[eks._pia_key(cluster, association_id)], physical_id, new
    )
    return physical_id, _identity_attributes(record)


def _delete_identity(physical_id, properties):
    _require_success_or_missing(
        eks._delete_pod_identity_association(
            properties["ClusterName"], physical_id.rsplit("/", 1)[-1]
        )
    )
