"""The Cluster stack: control plane, people, add-ons, system nodes, pods' roles.

Invariant: settings that EKS leaves open by default are explicit. A principal has one access entry;
a rule refuses to name one twice, because EKS would. An admin has EKS's own policy, which works from
the first minute. The others have a Kubernetes group each and no policy. charts/roles.py renders the
rights of a group; until they are applied it has none. No experiment is named here, so a new one
changes nothing in this template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.addons import add_node_addons, add_workload_addons
from stacks.identity import add_pod_roles
from stacks.network import NetworkIds
from stacks.nodes import add_node_role, add_system_nodes
from stacks.policy import account_condition, allow, aws_policy_arn, cluster_arn
from stacks.role import add_customer_key, add_log_group, add_role, import_log_key
from stacks.stack import EnvironmentStack, export_value
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.ops.people.cluster_rights import CLUSTER_KINDS, kubernetes_group

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
_Cluster = eks.CfnCluster


class ClusterStack(EnvironmentStack):
    """An EKS cluster that is ready for accelerator nodes and has none; it depends on no experiment.

    Attributes:
        node_role_arn, security_group_id: as other stacks import them.
        pod_role_arns: service account to role, for import by Workloads.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        network: NetworkIds,
        addon_versions: Mapping[str, str | None],
    ) -> None:
        super().__init__(
            scope,
            id_,
            environment=environment,
            description="Tandem: EKS cluster, add-ons, system nodes, access",
        )
        cluster = _add_control_plane(
            Construct(self, "ControlPlane"), environment, network.control_plane_subnet_ids
        )
        cluster_ref = cluster.ref
        _add_access_entries(Construct(self, "Access"), cluster_ref, environment)
        node_role_arn = add_node_role(Construct(self, "NodeRole"), environment).attr_arn
        node_addons = add_node_addons(
            Construct(self, "NodeAddons"), cluster_ref, environment, addon_versions
        )
        system_nodes = add_system_nodes(
            Construct(self, "SystemNodes"),
            environment,
            cluster_ref=cluster_ref,
            node_role_arn=node_role_arn,
            subnet_ids=network.base_subnet_ids(),
        )
        for addon in node_addons:
            system_nodes.add_resource_dependency(addon)
        add_workload_addons(Construct(self, "Addons"), cluster_ref, addon_versions, system_nodes)
        metrics_namespaces = (
            names.bench_namespace(environment),
            names.simulation_namespace(environment),
        )
        role_arns = add_pod_roles(Construct(self, "PodRoles"), environment, metrics_namespaces)
        self.node_role_arn = export_value(self, "NodeRoleArn", node_role_arn)
        self.security_group_id = export_value(
            self, "SecurityGroupId", cluster.attr_cluster_security_group_id
        )
        self.pod_role_arns = {
            account: export_value(self, f"RoleArn-{account}", arn)
            for account, arn in role_arns.items()
        }


def _add_control_plane(
    scope: Construct, environment: Environment, subnet_ids: list[str]
) -> eks.CfnCluster:
    """Add the cluster, with its key, logs and role."""
    name = names.cluster_name(environment)
    settings = environment.cluster
    endpoint = settings.endpoint
    is_public = endpoint.access == "public"
    # encrypts the cluster's secrets in etcd
    key = add_customer_key(
        Construct(scope, "SecretsKey"),
        environment,
        alias=f"alias/{name}",
        description=f"Kubernetes secrets of {name}",
    )
    key_arn = key.key_arn
    role = _add_cluster_role(scope, key_arn, environment)
    # if the group does not exist, EKS makes one that keeps its logs for ever
    group = add_log_group(
        scope,
        "LogGroup",
        environment.log_retention_days,
        name=f"/aws/eks/{name}/cluster",
        key=import_log_key(scope, environment),
    )
    log_types = [_Cluster.LoggingTypeConfigProperty(type=type_) for type_ in LOG_TYPES]
    # two servers that claim half a node each should share one node, not use two half-empty ones
    scoring = _Cluster.NodeResourcesFitConfigProperty(
        scoring_strategy=_Cluster.ScoringStrategyProperty(type="MostAllocated")
    )
    key_provider = _Cluster.ProviderProperty(key_arn=key_arn)
    cluster = eks.CfnCluster(
        scope,
        "Cluster",
        name=name,
        version=settings.kubernetes,
        role_arn=role.attr_arn,
        resources_vpc_config=_Cluster.ResourcesVpcConfigProperty(
            subnet_ids=subnet_ids,
            endpoint_private_access=True,  # nodes never leave the VPC to reach the API
            endpoint_public_access=is_public,
            public_access_cidrs=list(endpoint.cidrs) if is_public else None,
        ),
        access_config=_Cluster.AccessConfigProperty(
            authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
        ),
        bootstrap_self_managed_addons=False,
        logging=_Cluster.LoggingProperty(
            cluster_logging=_Cluster.ClusterLoggingProperty(enabled_types=log_types)
        ),
        encryption_config=[
            _Cluster.EncryptionConfigProperty(provider=key_provider, resources=["secrets"])
        ],
        kube_scheduler_config=_Cluster.KubeSchedulerConfigProperty(node_resources_fit=scoring),
        upgrade_policy=_Cluster.UpgradePolicyProperty(support_type="STANDARD"),
        deletion_protection=settings.deletion_protection,
    )
    cluster.node.add_dependency(group)
    # EKS's own security group admits only nodes and pods; a client is a range or a security group
    for client in endpoint.clients:
        source_property = "source_security_group_id" if client.startswith("sg-") else "cidr_ip"
        ec2.CfnSecurityGroupIngress(
            scope,
            f"Client-{client.replace('/', '-')}",
            group_id=cluster.attr_cluster_security_group_id,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            **{source_property: client},
            description="people's way to the Kubernetes API",
        )
    return cluster


def _add_cluster_role(scope: Construct, key_arn: str, environment: Environment) -> iam.CfnRole:
    """Add the cluster's role, which EKS may assume for this cluster alone.

    Source: EKS user guide, "Cross-service confused deputy prevention in Amazon EKS", 2025-08-19.
    """
    conditions = {
        **account_condition(environment),
        "ArnLike": {"aws:SourceArn": cluster_arn(environment)},
    }
    policy = aws_policy_arn(environment, "AmazonEKSClusterPolicy")
    key_statement = allow(
        ["kms:Encrypt", "kms:Decrypt", "kms:ListGrants", "kms:DescribeKey"], [key_arn]
    )
    return add_role(
        scope,
        "eks.amazonaws.com",
        actions=["sts:AssumeRole", "sts:TagSession"],
        conditions=conditions,
        policy_name="secrets-key",
        statements=[key_statement],
        managed_policy_arns=[policy],
        reasons={
            policy: (
                "EKS requires this policy of its cluster role"
                " and extends it with new Kubernetes versions"
            )
        },
    )


def _add_access_entries(scope: Construct, cluster_ref: str, environment: Environment) -> None:
    """Add one entry per principal, with its rights in the cluster."""
    access = environment.cluster.access
    admin_policy = build_admin_policy(environment)
    rights: dict[str, dict[str, Any]] = {
        principal: {"access_policies": [admin_policy]} for principal in access.admin
    }
    for kind in CLUSTER_KINDS:
        for principal in getattr(access, kind):
            rights[principal] = {"kubernetes_groups": [kubernetes_group(kind)]}

    for principal, properties in rights.items():
        eks.CfnAccessEntry(
            scope,
            principal.partition(":iam::")[2].replace("/", ":"),
            cluster_name=cluster_ref,
            principal_arn=principal,
            type="STANDARD",
            **properties,
        )


def build_admin_policy(environment: Environment) -> eks.CfnAccessEntry.AccessPolicyProperty:
    """Return EKS's own policy of an admin, for the whole cluster."""
    partition = names.aws_partition(environment.region)
    return eks.CfnAccessEntry.AccessPolicyProperty(
        policy_arn=(f"arn:{partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"),
        access_scope=eks.CfnAccessEntry.AccessScopeProperty(type="cluster"),
    )
