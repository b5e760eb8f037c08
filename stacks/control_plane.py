"""The EKS control plane: cluster, key, logs and role, each said outright because EKS's defaults are open."""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.aws_location import AwsLocation
from stacks.keys import CustomerKey
from stacks.policy import allow
from stacks.role import add_log_group, add_role
from tandem.spec.environment import ClusterSettings

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")


class ControlPlane(Construct):
    """The cluster.

    Attributes:
        cluster_name: the name, as an expression that makes its user wait for the cluster.
        security_group_id: the group EKS makes for nodes and endpoint.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        name: str,
        cluster: ClusterSettings,
        subnet_ids: list[str],
        location: AwsLocation,
        retention_days: int,
    ) -> None:
        super().__init__(scope, id_)
        # wraps what the cluster keeps in etcd
        key = CustomerKey(
            self, "SecretsKey", alias=f"alias/{name}", description=f"Kubernetes secrets of {name}", location=location
        )
        role = _add_cluster_role(self, key.arn, location, name)
        # EKS makes this group itself, and then keeps logs for ever, unless it is there first
        group = add_log_group(self, "LogGroup", retention_days, name=f"/aws/eks/{name}/cluster")
        cluster_ = eks.CfnCluster(
            self,
            "Cluster",
            name=name,
            version=cluster.kubernetes,
            role_arn=role.attr_arn,
            resources_vpc_config=_vpc_config(cluster, subnet_ids),
            access_config=eks.CfnCluster.AccessConfigProperty(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
            ),
            bootstrap_self_managed_addons=False,
            logging=_build_logging(),
            encryption_config=[
                eks.CfnCluster.EncryptionConfigProperty(
                    provider=eks.CfnCluster.ProviderProperty(key_arn=key.arn), resources=["secrets"]
                )
            ],
            kube_scheduler_config=_scheduler_config(),
            upgrade_policy=eks.CfnCluster.UpgradePolicyProperty(support_type="STANDARD"),
            deletion_protection=cluster.deletion_protection,
        )
        cluster_.add_resource_dependency(group)
        self.cluster_name = cluster_.ref
        self.security_group_id = cluster_.attr_cluster_security_group_id
        for client in cluster.endpoint.clients:
            _admit_client(self, client, self.security_group_id)


def _admit_client(scope: Construct, client: str, group_id: str) -> None:
    """Let a range or a security group reach the API; EKS's own group admits nobody but nodes and pods."""
    is_group = client.startswith("sg-")
    ec2.CfnSecurityGroupIngress(
        scope, f"Client-{client.replace('/', '-')}", group_id=group_id, ip_protocol="tcp", from_port=443, to_port=443,
        source_security_group_id=client if is_group else None, cidr_ip=None if is_group else client,
        description="people's way to the Kubernetes API",
    )  # fmt: skip


def _add_cluster_role(scope: Construct, key_arn: str, location: AwsLocation, cluster_name: str) -> iam.CfnRole:
    """Return the cluster's role, which EKS may have for this cluster alone.

    Source: EKS user guide, "Cross-service confused deputy prevention in Amazon EKS", 2025-08-19.
    """
    conditions = {**location.account_condition(), "ArnLike": {"aws:SourceArn": location.cluster_arn(cluster_name)}}
    policy = location.aws_policy_arn("AmazonEKSClusterPolicy")
    key_statement = allow(["kms:Encrypt", "kms:Decrypt", "kms:ListGrants", "kms:DescribeKey"], [key_arn])
    reason = "EKS requires this policy of its cluster role and extends it with new Kubernetes versions"
    return add_role(
        scope, "eks.amazonaws.com", actions=["sts:AssumeRole", "sts:TagSession"], conditions=conditions,
        policy_name="secrets-key", statements=[key_statement], managed_policy_arns=[policy],
        reasons={f"AwsSolutions-IAM4[Policy::{policy}]": reason},
    )  # fmt: skip


def _vpc_config(cluster: ClusterSettings, subnet_ids: list[str]) -> eks.CfnCluster.ResourcesVpcConfigProperty:
    public = cluster.endpoint.access == "public"
    return eks.CfnCluster.ResourcesVpcConfigProperty(
        subnet_ids=subnet_ids,
        endpoint_private_access=True,  # nodes never leave the VPC to reach the API
        endpoint_public_access=public,
        public_access_cidrs=list(cluster.endpoint.cidrs) if public else None,
    )


def _build_logging() -> eks.CfnCluster.LoggingProperty:
    types = [eks.CfnCluster.LoggingTypeConfigProperty(type=type_) for type_ in LOG_TYPES]
    return eks.CfnCluster.LoggingProperty(cluster_logging=eks.CfnCluster.ClusterLoggingProperty(enabled_types=types))


def _scheduler_config() -> eks.CfnCluster.KubeSchedulerConfigProperty:
    # two servers that claim half a node each belong on one node, not on two half-empty ones
    strategy = eks.CfnCluster.ScoringStrategyProperty(type="MostAllocated")
    return eks.CfnCluster.KubeSchedulerConfigProperty(
        node_resources_fit=eks.CfnCluster.NodeResourcesFitConfigProperty(scoring_strategy=strategy)
    )
