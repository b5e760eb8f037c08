"""EKS as its API describes it."""

from __future__ import annotations

from typing import Any

from tandem.twin.aws.describe.form import Client, Describe, Properties, pascal, tag_list

_USER_KEYS = frozenset({"tags", "labels"})  # their keys are names that users chose


def _cluster(client: Client, physical_id: str, _properties: Properties) -> Properties:
    found = client("eks").describe_cluster(name=physical_id)["cluster"]
    described: Properties = pascal(found, _USER_KEYS)
    types = [type_ for item in found["logging"]["clusterLogging"] if item["enabled"] for type_ in item["types"]]
    return {
        **described,
        "Logging": {"ClusterLogging": {"EnabledTypes": [{"Type": type_} for type_ in types]}},
        "Tags": tag_list(found["tags"]),
        "CertificateAuthorityData": found["certificateAuthority"]["data"],
        "ClusterSecurityGroupId": found["resourcesVpcConfig"]["clusterSecurityGroupId"],
        "OpenIdConnectIssuerUrl": found["identity"]["oidc"]["issuer"],
    }


def _nodegroup(client: Client, physical_id: str, properties: Properties) -> Properties:
    name = physical_id.rsplit("/", 1)[-1]  # AWS: cluster/name
    found = client("eks").describe_nodegroup(clusterName=properties["ClusterName"], nodegroupName=name)["nodegroup"]
    described: Properties = pascal(found, _USER_KEYS)
    return {**described, "Arn": found["nodegroupArn"], "Id": f"{found['clusterName']}/{found['nodegroupName']}"}


def _addon(client: Client, physical_id: str, _properties: Properties) -> Properties:
    eks = client("eks")
    cluster, name = physical_id.split("|")
    found = eks.describe_addon(clusterName=cluster, addonName=name)["addon"]
    described: Properties = pascal(found, _USER_KEYS)
    associations = [_association_record(eks, cluster, arn) for arn in found.get("podIdentityAssociations", [])]
    return {
        **described,
        "Arn": found["addonArn"],
        "Tags": tag_list(found["tags"]),
        "PodIdentityAssociations": [pascal(item, _USER_KEYS) for item in associations],
    }


def _access_entry(client: Client, physical_id: str, _properties: Properties) -> Properties:
    eks = client("eks")
    principal, cluster = physical_id.split("|")
    found = eks.describe_access_entry(clusterName=cluster, principalArn=principal)["accessEntry"]
    policies = eks.list_associated_access_policies(clusterName=cluster, principalArn=principal)
    described: Properties = pascal(found, _USER_KEYS)
    return {
        **described,
        "Tags": tag_list(found["tags"]),
        "AccessPolicies": pascal(policies["associatedAccessPolicies"]),
    }


def _association(client: Client, physical_id: str, properties: Properties) -> Properties:
    found = _association_record(client("eks"), properties["ClusterName"], physical_id)
    described: Properties = pascal(found, _USER_KEYS)
    return {**described, "Tags": tag_list(found["tags"])}


def _association_record(eks: Any, cluster: str, arn: str) -> Any:
    identity = arn.rsplit("/", 1)[-1]
    return eks.describe_pod_identity_association(clusterName=cluster, associationId=identity)["association"]


DESCRIBE: dict[str, Describe] = {
    "AWS::EKS::Cluster": _cluster,
    "AWS::EKS::Nodegroup": _nodegroup,
    "AWS::EKS::Addon": _addon,
    "AWS::EKS::AccessEntry": _access_entry,
    "AWS::EKS::PodIdentityAssociation": _association,
}
