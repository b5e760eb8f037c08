"""The cluster's add-ons, each at the version the data files give.

Invariant: what nodes need in order to become ready precedes them; what needs nodes to run follows them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from stacks.aws_location import AwsLocation
from stacks.identity import PodRole
from stacks.nag import acknowledge_findings

CNI = "vpc-cni"
BEFORE_NODES = ("kube-proxy", "eks-pod-identity-agent")  # DaemonSets: healthy with no node
AFTER_NODES = ("coredns", "aws-mountpoint-s3-csi-driver")  # Deployments: degraded until a node takes them
# A policy without the controller that enforces it is silently nothing (EKS user guide, CNI network policy).
CNI_CONFIGURATION = {"enableNetworkPolicy": "true"}


class NodeAddons(Construct):
    """The add-ons that come before the nodes.

    Attributes:
        addons: the resources, for ordering.
    """

    def __init__(
        self, scope: Construct, id_: str, *, cluster_ref: str, cluster_name: str, location: AwsLocation,
        versions: Mapping[str, str | None],
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        role = _add_cni_role(self, cluster_name, location)
        association = eks.CfnAddon.PodIdentityAssociationProperty(role_arn=role.arn, service_account="aws-node")
        agents = [add_addon(self, name, cluster_ref=cluster_ref, versions=versions) for name in BEFORE_NODES]
        cni = add_addon(
            self, CNI, cluster_ref=cluster_ref, versions=versions, configuration=CNI_CONFIGURATION,
            pod_identity_associations=[association],
        )  # fmt: skip
        for agent in agents:
            cni.add_resource_dependency(agent)  # the CNI's credentials come from the agent
        self.addons = [*agents, cni]


class WorkloadAddons(Construct):
    """The add-ons that need the system nodes."""

    def __init__(
        self, scope: Construct, id_: str, *, cluster_ref: str, versions: Mapping[str, str | None],
        nodes: eks.CfnNodegroup,
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        for name in AFTER_NODES:
            add_addon(self, name, cluster_ref=cluster_ref, versions=versions).add_resource_dependency(nodes)


def add_addon(
    scope: Construct, name: str, *, cluster_ref: str, versions: Mapping[str, str | None],
    configuration: Mapping[str, Any] | None = None,
    pod_identity_associations: list[eks.CfnAddon.PodIdentityAssociationProperty] | None = None,
) -> eks.CfnAddon:  # fmt: skip
    """Add one add-on; a version of None is left out, and EKS takes its default."""
    return eks.CfnAddon(
        scope,
        name,
        cluster_name=cluster_ref,
        addon_name=name,
        addon_version=versions.get(name),
        configuration_values=json.dumps(configuration) if configuration else None,
        pod_identity_associations=pod_identity_associations,
        resolve_conflicts="OVERWRITE",  # the template is what runs; kubectl edits of an add-on do not last
    )


def _add_cni_role(scope: Construct, cluster_name: str, location: AwsLocation) -> PodRole:
    arn = location.aws_policy_arn("AmazonEKS_CNI_Policy")
    role = PodRole(
        scope, "CniRole", cluster_name=cluster_name, location=location, namespace="kube-system", account="aws-node",
        managed_policy_arns=[arn],
    )  # fmt: skip
    reason = "AWS maintains it with the CNI's releases; it is bound to the CNI's service account, not to nodes"
    acknowledge_findings(role.role, {f"AwsSolutions-IAM4[Policy::{arn}]": reason})
    return role
