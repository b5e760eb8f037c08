"""The cluster's add-ons, each at the version in the data files.

Invariant: add-ons that nodes need to become ready precede the nodes; add-ons that need nodes follow
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from stacks.identity import add_pod_role
from stacks.policy import aws_policy_arn
from tandem.declarations.environment import Environment

BEFORE_NODES = ("kube-proxy", "eks-pod-identity-agent")  # DaemonSets: healthy with no node
# Deployments: degraded until a node takes them
AFTER_NODES = ("coredns", "aws-mountpoint-s3-csi-driver")
# Without its controller a policy silently has no effect (EKS user guide, CNI network policy).
CNI_CONFIGURATION = {"enableNetworkPolicy": "true"}
CNI_ACCOUNT = "aws-node"
Versions = Mapping[str, str | None]


def add_node_addons(
    scope: Construct, cluster_ref: str, environment: Environment, versions: Versions
) -> list[eks.CfnAddon]:
    """Add the add-ons that come before the nodes."""
    policy = aws_policy_arn(environment, "AmazonEKS_CNI_Policy")
    role = add_pod_role(
        Construct(scope, "CniRole"),
        environment=environment,
        namespace="kube-system",
        account=CNI_ACCOUNT,
        managed_policy_arns=[policy],
        reasons={
            policy: (
                "AWS maintains this policy with the CNI's releases; only the CNI's service account"
                " has it"
            )
        },
    )
    agents = [
        add_addon(scope, name, cluster_ref=cluster_ref, versions=versions) for name in BEFORE_NODES
    ]
    cni = add_addon(
        scope,
        "vpc-cni",
        cluster_ref=cluster_ref,
        versions=versions,
        configuration=CNI_CONFIGURATION,
        role_arns={CNI_ACCOUNT: role.attr_arn},
    )
    for agent in agents:
        cni.add_resource_dependency(agent)  # the CNI's credentials come from the agent
    return [*agents, cni]


def add_workload_addons(
    scope: Construct, cluster_ref: str, versions: Versions, nodes: eks.CfnNodegroup
) -> None:
    """Add the add-ons that need the system nodes."""
    for name in AFTER_NODES:
        add_addon(scope, name, cluster_ref=cluster_ref, versions=versions).add_resource_dependency(
            nodes
        )


def add_addon(
    scope: Construct,
    name: str,
    *,
    cluster_ref: str,
    versions: Versions,
    configuration: Mapping[str, Any] | None = None,
    role_arns: Mapping[str, str] | None = None,
) -> eks.CfnAddon:
    """Add one add-on; without a version (None) EKS takes its default.

    Args:
        role_arns: service account of the add-on's pods to role.
    """
    associations = [
        eks.CfnAddon.PodIdentityAssociationProperty(role_arn=role_arn, service_account=account)
        for account, role_arn in (role_arns or {}).items()
    ]
    return eks.CfnAddon(
        scope,
        name,
        cluster_name=cluster_ref,
        addon_name=name,
        addon_version=versions.get(name),
        configuration_values=json.dumps(configuration) if configuration else None,
        pod_identity_associations=associations or None,
        # the template decides; kubectl edits of an add-on do not last
        resolve_conflicts="OVERWRITE",
    )
