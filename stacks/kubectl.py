"""CloudFormation's access to the cluster: a function with kubectl and helm, and one that calls it.

Invariant: the rights of their two roles are written here, statement by statement; the CDK's wide
policies are removed. Both functions run in the private subnets, because the cluster's endpoint may
be reachable from nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk.lambda_layer_kubectl_v36 import KubectlV36Layer
from constructs import Construct, DependencyGroup, IConstruct

from stacks.cluster import build_admin_policy
from stacks.finding import accept_finding
from stacks.policy import (
    PrivateRepository,
    Statement,
    account_condition,
    allow,
    cluster_arn,
    policy_document,
)
from stacks.role import LAMBDA
from stacks.stack import ROOT
from tandem.declarations import names
from tandem.declarations.environment import Environment

# Lambda unpacks the layer that holds this file into the handler's /opt.
SETTINGS = ROOT / "stacks" / "kubectl_settings" / "kuberc"
# rights of Lambda in a VPC (Lambda developer guide, "Giving Lambda functions access to resources in
# an Amazon VPC", required IAM permissions)
_VPC_ACTIONS = (
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
)
_WILDCARD_REASON = "Lambda's network interfaces and registry logins take no narrower resource"


class KubectlAccess(Construct):
    """A kubectl provider for a cluster with a known name.

    Attributes:
        cluster: the handle for charts and manifests.
        ready: dependency of both, which must outlive them: the rights to enter the cluster, and to
            write logs.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        subnet_ids: Sequence[str],
        security_group_id: str,
        chart_repository: str,
    ) -> None:
        super().__init__(scope, id_)

        role = _add_handler_role(self, environment, chart_repository)
        cluster_name = names.cluster_name(environment)
        entry = eks.CfnAccessEntry(
            self,
            "AccessEntry",
            cluster_name=cluster_name,
            principal_arn=role.role_arn,
            type="STANDARD",
            access_policies=[build_admin_policy(environment)],
        )

        provider = eks.KubectlProvider(
            self,
            "Provider",
            cluster=eks.Cluster.from_cluster_attributes(self, "Named", cluster_name=cluster_name),
            kubectl_layer=KubectlV36Layer(self, "Layer"),
            role=role.without_policy_updates(),
            environment={"KUBERC": f"/opt/{SETTINGS.name}"},
        )
        # the CDK adds a condition for a policy that our role does not have
        self.node.try_remove_child("HasEcrPublic")
        self.cluster = eks.Cluster.from_cluster_attributes(
            self, "Cluster", cluster_name=cluster_name, kubectl_provider=provider
        )

        children = provider.node.find_all()
        handler, framework = (child for child in children if isinstance(child, lambda_.CfnFunction))
        for function in (handler, framework):
            function.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
                subnet_ids=list(subnet_ids), security_group_ids=[security_group_id]
            )
        settings = lambda_.LayerVersion(
            self,
            "Settings",
            code=lambda_.Code.from_asset(str(SETTINGS.parent)),
            description="Tandem: what kubectl may prune",
        )
        # layers 0 and 1 are those of the AWS CLI and of kubectl
        handler.add_property_override("Layers.2", settings.layer_version_arn)
        accept_finding(handler, "L1", "the CDK pins the Python its handler is tested with")

        framework_role = _narrow_framework_role(children, handler.attr_arn, environment)
        groups = [child for child in children if isinstance(child, logs.CfnLogGroup)]
        for group in groups:
            group.retention_in_days = environment.log_retention_days
            group.apply_removal_policy(RemovalPolicy.DESTROY)

        writes = allow(
            ["logs:CreateLogStream", "logs:PutLogEvents"], [group.attr_arn for group in groups]
        )
        policy = iam.CfnPolicy(
            self,
            "WriteLogs",
            policy_name="write-logs",
            roles=[role.role_name, framework_role.ref],
            policy_document=policy_document(writes),
        )
        self.ready = DependencyGroup(entry, policy)


def _narrow_framework_role(
    children: Sequence[IConstruct], handler_arn: str, environment: Environment
) -> iam.CfnRole:
    """Limit the framework's role to two rights: call the handler, and run in the VPC.

    The CDK's own policies also allow every version of the handler, and new log groups.
    """
    (policy,) = [child for child in children if isinstance(child, iam.CfnPolicy)]
    policy.policy_document = policy_document(
        allow(["lambda:InvokeFunction", "lambda:GetFunction"], [handler_arn])
    )

    (role,) = [child for child in children if isinstance(child, iam.CfnRole)]
    role.managed_policy_arns = []
    trust = allow(["sts:AssumeRole"], service=LAMBDA, conditions=account_condition(environment))
    role.assume_role_policy_document = policy_document(trust)
    vpc_document = policy_document(allow(_VPC_ACTIONS, ["*"]))
    role.policies = [
        iam.CfnRole.PolicyProperty(policy_name="run-in-vpc", policy_document=vpc_document)
    ]
    accept_finding(role, "IAM5[Resource::*]", _WILDCARD_REASON)
    return role


def _add_handler_role(
    scope: Construct, environment: Environment, chart_repository: str
) -> iam.Role:
    """Add the handler's role: find the cluster, run in the VPC, pull one chart."""
    statements = [
        allow(_VPC_ACTIONS, ["*"]),
        allow(["eks:DescribeCluster"], [cluster_arn(environment)]),
        *_allow_chart_pull(chart_repository),
    ]
    role = iam.Role(
        scope,
        "HandlerRole",
        assumed_by=iam.ServicePrincipal(LAMBDA, conditions=account_condition(environment)),
        inline_policies={"handler": iam.PolicyDocument.from_json(policy_document(*statements))},
    )
    accept_finding(role, "IAM5[Resource::*]", _WILDCARD_REASON)
    return role


def _allow_chart_pull(repository: str) -> list[Statement]:
    """Return the rights to pull the chart: a login, and for a private repository its layers."""
    private_repository = PrivateRepository.parse_reference(repository)
    if private_repository:
        return private_repository.allow_pull()
    if repository.startswith("oci://public.ecr.aws/"):
        return [allow(["ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken"], ["*"])]
    return []
