"""EKS as its API describes it."""

from __future__ import annotations

from typing import Any

from rehearsal.aws.descriptions.conversion import (
    ClientFactory,
    DescribeFunction,
    Properties,
    tag_list,
    to_pascal_case,
)

_USER_KEYS = frozenset({"tags", "labels"})  # their keys are names that users chose


def _describe_cluster(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    cluster = client("eks").describe_cluster(name=physical_id)["cluster"]
    description: Properties = to_pascal_case(cluster, _USER_KEYS)
    types = [
        type_
        for item in cluster["logging"]["clusterLogging"]
        if item["enabled"]
        for type_ in item["types"]
    ]
    return {
        **description,
        "Logging": {"ClusterLogging": {"EnabledTypes": [{"Type": type_} for type_ in types]}},
        "Tags": tag_list(cluster["tags"]),
        "CertificateAuthorityData": cluster["certificateAuthority"]["data"],
        "ClusterSecurityGroupId": cluster["resourcesVpcConfig"]["clusterSecurityGroupId"],
        "OpenIdConnectIssuerUrl": cluster["identity"]["oidc"]["issuer"],
    }


def _describe_nodegroup(
    client: ClientFactory, physical_id: str, properties: Properties
) -> Properties:
    name = physical_id.rsplit("/", 1)[-1]  # AWS: cluster/name
    nodegroup = client("eks").describe_nodegroup(
        clusterName=properties["ClusterName"], nodegroupName=name
    )["nodegroup"]
    description: Properties = to_pascal_case(nodegroup, _USER_KEYS)
    return {
        **description,
        "Arn": nodegroup["nodegroupArn"],
        "Id": f"{nodegroup['clusterName']}/{nodegroup['nodegroupName']}",
    }


def _describe_addon(client: ClientFactory, physical_id: str, _properties: Properties) -> Properties:
    eks = client("eks")
    cluster, name = physical_id.split("|")
    addon = eks.describe_addon(clusterName=cluster, addonName=name)["addon"]
    description: Properties = to_pascal_case(addon, _USER_KEYS)
    associations = [
        _read_association(eks, cluster, arn) for arn in addon.get("podIdentityAssociations", [])
    ]
    return {
        **description,
        "Arn": addon["addonArn"],
        "Tags": tag_list(addon["tags"]),
        "PodIdentityAssociations": [to_pascal_case(item, _USER_KEYS) for item in associations],
    }


def _describe_access_entry(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    eks = client("eks")
    principal, cluster = physical_id.split("|")
    entry = eks.describe_access_entry(clusterName=cluster, principalArn=principal)["accessEntry"]
    policies = eks.list_associated_access_policies(clusterName=cluster, principalArn=principal)
    description: Properties = to_pascal_case(entry, _USER_KEYS)
    return {
        **description,
        "Tags": tag_list(entry["tags"]),
        "AccessPolicies": to_pascal_case(policies["associatedAccessPolicies"]),
    }


def _describe_association(
    client: ClientFactory, physical_id: str, properties: Properties
) -> Properties:
    association = _read_association(client("eks"), properties["ClusterName"], physical_id)
    description: Properties = to_pascal_case(association, _USER_KEYS)
    return {**description, "Tags": tag_list(association["tags"])}


def _read_association(eks: Any, cluster: str, arn: str) -> Any:
    association_id = arn.rsplit("/", 1)[-1]
    return eks.describe_pod_identity_association(clusterName=cluster, associationId=association_id)[
        "association"
    ]


DESCRIBE: dict[str, DescribeFunction] = {
    "AWS::EKS::Cluster": _describe_cluster,
    "AWS::EKS::Nodegroup": _describe_nodegroup,
    "AWS::EKS::Addon": _describe_addon,
    "AWS::EKS::AccessEntry": _describe_access_entry,
    "AWS::EKS::PodIdentityAssociation": _describe_association,
}
