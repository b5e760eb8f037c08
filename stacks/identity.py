"""Pod Identity: which service account may do what with the bucket and with CloudWatch.

Invariant: readers cannot write, each writer writes one prefix and one namespace of metrics, and nobody can delete.
A role trusts this cluster's pods only, by the session tags that EKS sets (EKS user guide, "Create IAM role with trust
policy required by EKS Pod Identity"). Roles know no experiment; an association does, so it stands in Workloads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from stacks.aws_location import AwsLocation, locate_environment
from stacks.bucket_key import allow_bucket_key
from stacks.ecr import PULL_ACTIONS, PrivateRepository, allow_login
from stacks.nag import acknowledge_findings
from stacks.policy import Conditions, allow
from stacks.role import add_role
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.names import BENCH_ACCOUNT, COMPILE_ACCOUNT, NAMESPACE_PREFIX, SERVE_ACCOUNT, STAGE_ACCOUNT

PODS = "pods.eks.amazonaws.com"
SOURCE_CONTROLLER = "source-controller"  # the service account's name in Flux's own manifests
MODELS, ARTIFACTS, RESULTS = "models/*", "artifacts/*", "results/*"


class PodRole(Construct):
    """A role for one service account of this cluster.

    Attributes:
        arn: the role.
        role: the resource, for reasons and ordering.
    """

    def __init__(
        self, scope: Construct, id_: str, *, cluster_name: str, location: AwsLocation, namespace: str,
        account: str, statements: Sequence[dict[str, Any]] = (), managed_policy_arns: Sequence[str] = (),
        policy_name: str = "bucket",
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        conditions = {
            "StringEquals": {
                "aws:RequestTag/eks-cluster-arn": location.cluster_arn(cluster_name),
                "aws:RequestTag/kubernetes-service-account": account,
            },
            "StringLike": {"aws:RequestTag/kubernetes-namespace": namespace},
        }
        self.role = add_role(
            self, PODS, actions=["sts:AssumeRole", "sts:TagSession"], conditions=conditions, policy_name=policy_name,
            statements=statements, managed_policy_arns=managed_policy_arns,
        )  # fmt: skip
        self.arn = self.role.attr_arn


class PodRoles(Construct):
    """Those of the reader, and of the writers of stage, compile and bench.

    Attributes:
        arns: service account to role.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, metrics_namespaces: Sequence[str]
    ) -> None:
        super().__init__(scope, id_)
        location, token_secret = locate_environment(environment), environment.hub.token_secret
        arn = location.bucket_arn(names.bucket_name(environment))
        read_key_statements, writes_bucket = (
            allow_bucket_key(environment, writes=writes_bucket) for writes_bucket in (False, True)
        )
        accounts = {
            SERVE_ACCOUNT: [
                _allow_listing(arn, MODELS, ARTIFACTS),
                _allow_reading(arn, MODELS, ARTIFACTS),
                *read_key_statements,
            ],
            STAGE_ACCOUNT: [
                _allow_listing(arn, MODELS),
                _allow_reading(arn, MODELS),
                *_allow_writing(arn, MODELS),
                *writes_bucket,
                *([_allow_secret(location, token_secret)] if token_secret else []),
            ],
            COMPILE_ACCOUNT: [
                _allow_listing(arn, MODELS, ARTIFACTS),
                _allow_reading(arn, MODELS, ARTIFACTS),
                *_allow_writing(arn, ARTIFACTS),
                *writes_bucket,
            ],
            # it reads what it wrote: an upload that goes on after a kill asks what is there already
            BENCH_ACCOUNT: [
                _allow_listing(arn, RESULTS),
                _allow_reading(arn, RESULTS),
                *_allow_writing(arn, RESULTS),
                *writes_bucket,
                *_allow_publishing(metrics_namespaces),
            ],
        }
        cluster_name = names.cluster_name(environment)
        self.arns = {
            account: self._add_role(account, statements, cluster_name, location)
            for account, statements in accounts.items()
        }

    def _add_role(
        self, account: str, statements: Sequence[dict[str, Any]], cluster_name: str, location: AwsLocation
    ) -> str:
        role = PodRole(
            self,
            account,
            cluster_name=cluster_name,
            location=location,
            namespace=f"{NAMESPACE_PREFIX}*",
            account=account,
            statements=statements,
        )
        acknowledge_findings(role.role, _list_nag_reasons(statements))
        return role.arn


class ChartReader(Construct):
    """Flux's source-controller, bound to a role that pulls one chart from private ECR.

    System nodes have no way to the node's own role (IMDS hop limit 1), so the controller needs one of its own.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        cluster_name: str,
        location: AwsLocation,
        namespace: str,
        chart: PrivateRepository,
    ) -> None:
        super().__init__(scope, id_)
        reader = PodRole(
            self, SOURCE_CONTROLLER, cluster_name=cluster_name, location=location, namespace=namespace,
            account=SOURCE_CONTROLLER, statements=[allow_login(), allow(PULL_ACTIONS, [chart.arn(location.partition)])],
            policy_name="chart",
        )  # fmt: skip
        acknowledge_findings(
            reader.role,
            {"AwsSolutions-IAM5[Resource::*]": "a login to private registries takes no narrower resource"},
        )
        PodIdentities(
            self, "Identity", cluster_name=cluster_name, namespace=namespace,
            role_arns={SOURCE_CONTROLLER: reader.arn},
        )  # fmt: skip


class PodIdentities(Construct):
    """The service accounts of one experiment's namespace, each bound to its role."""

    def __init__(
        self, scope: Construct, id_: str, *, cluster_name: str, namespace: str, role_arns: Mapping[str, str]
    ) -> None:
        super().__init__(scope, id_)
        for account, role_arn in role_arns.items():
            eks.CfnPodIdentityAssociation(
                self, account, cluster_name=cluster_name, namespace=namespace, service_account=account,
                role_arn=role_arn,
            )  # fmt: skip


def _allow_listing(bucket_arn: str, *prefixes: str) -> dict[str, Any]:
    return allow(["s3:ListBucket"], [bucket_arn], conditions={"StringLike": {"s3:prefix": list(prefixes)}})


def _allow_reading(bucket_arn: str, *prefixes: str) -> dict[str, Any]:
    return allow(["s3:GetObject"], [f"{bucket_arn}/{prefix}" for prefix in prefixes])


def _allow_writing(bucket_arn: str, prefix: str) -> list[dict[str, Any]]:
    """Return what an upload takes that goes on after a kill: it aborts its own unfinished uploads.

    No DeleteObject: an upload replaces or adds, and what it replaces stays as an old version. Unfinished uploads
    can be listed for a whole bucket only: the action has no condition on a prefix (Service Authorization Reference,
    Amazon S3, ListBucketMultipartUploads), so a writer may see the names of others' and touch none.
    """
    actions = ["s3:PutObject", "s3:AbortMultipartUpload"]
    return [allow(actions, [f"{bucket_arn}/{prefix}"]), allow(["s3:ListBucketMultipartUploads"], [bucket_arn])]


def _allow_publishing(namespaces: Sequence[str]) -> list[dict[str, Any]]:
    """Return what a publisher of metrics takes: to put into its namespaces.

    The action takes no resource, but a condition on the namespace (Service Authorization Reference, Amazon CloudWatch).
    """
    conditions: Conditions = {"StringEquals": {"cloudwatch:namespace": list(namespaces)}}
    return [allow(["cloudwatch:PutMetricData"], ["*"], conditions=conditions)]


def _allow_secret(location: AwsLocation, name: str) -> dict[str, Any]:
    """Return the right to read one secret; a key of the operator's own must admit the role by itself.

    Secrets Manager ends the ARN with six characters of its choice (its user guide, "Permissions policy examples").
    """
    return allow(["secretsmanager:GetSecretValue"], [location.arn("secretsmanager", f"secret:{name}-??????")])


def _list_nag_reasons(statements: Sequence[dict[str, Any]]) -> dict[str, str]:
    resources = {resource for statement in statements for resource in statement["Resource"] if "*" in resource}
    key_reason = "object keys are not known beforehand; the prefix is the boundary between readers and writers"
    metric_reason = "CloudWatch's metrics are no resources; writing is bound by the condition on the namespace"
    return {
        f"AwsSolutions-IAM5[Resource::{resource}]": metric_reason if resource == "*" else key_reason
        for resource in sorted(resources)
    }
