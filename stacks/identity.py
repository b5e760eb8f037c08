"""Pod Identity: each service account's rights on bucket and CloudWatch, and the runner's.

Invariant: readers cannot write, each writer writes one prefix and one namespace of metrics, and
nobody can delete. The runner may make the calls of a start, a relabel and an end, and keeps
requests' answers and journals of runs. A role trusts this cluster's pods only, by the session tags
that EKS sets. Source: EKS user guide, "Create IAM role with trust policy required by EKS Pod
Identity". Roles know no experiment; an association does, so associations are in Workloads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks import policy
from stacks.finding import Reasons
from stacks.policy import PrivateRepository, Statement, allow
from stacks.role import add_role
from tandem.declarations import names
from tandem.declarations.arns import build_arn, build_bucket_arn
from tandem.declarations.environment import Environment
from tandem.ops.people.cluster_rights import RUNNER_ACCOUNT, RUNNER_NAMESPACE
from tandem.ops.people.policies import build_runner_policy

PODS = "pods.eks.amazonaws.com"
SOURCE_CONTROLLER = "source-controller"  # the service account's name in Flux's own manifests
MODELS = "models/*"
ARTIFACTS = "artifacts/*"
TASK_SETS = "tasks/*"
SUITES = "suites/*"
RESULTS = "results/*"
# service account -> the prefixes that it reads and lists, and the one that it writes. The bench
# reads its own writes: an upload that continues after a kill checks which objects exist.
PREFIXES: dict[str, tuple[tuple[str, ...], str | None]] = {
    names.SERVE_ACCOUNT: ((MODELS, ARTIFACTS), None),
    names.STAGE_ACCOUNT: ((MODELS,), MODELS),
    names.COMPILE_ACCOUNT: ((MODELS, ARTIFACTS), ARTIFACTS),
    names.BENCH_ACCOUNT: ((TASK_SETS, SUITES, RESULTS), RESULTS),
}
# No DeleteObject: an upload replaces or adds, and a replaced object stays as an old version.
UPLOAD_ACTIONS = ("s3:PutObject", "s3:AbortMultipartUpload")
POD_REASONS = {
    "arn:*:s3:::*": (
        "object keys are not known beforehand;"
        " the prefix is the boundary between readers and writers"
    ),
    "[*]": "metrics are no resources; the condition binds their namespace",
}


def add_pod_role(
    scope: Construct,
    *,
    environment: Environment,
    namespace: str,
    account: str,
    statements: Sequence[Statement] = (),
    managed_policy_arns: Sequence[str] = (),
    policy_name: str = "bucket",
    reasons: Reasons,
) -> iam.CfnRole:
    """Add the role of `scope`, for one service account of this cluster."""
    conditions = {
        "StringEquals": {
            "aws:RequestTag/eks-cluster-arn": policy.cluster_arn(environment),
            "aws:RequestTag/kubernetes-service-account": account,
        },
        "StringLike": {"aws:RequestTag/kubernetes-namespace": namespace},
    }
    return add_role(
        scope,
        PODS,
        actions=["sts:AssumeRole", "sts:TagSession"],
        conditions=conditions,
        policy_name=policy_name,
        statements=statements,
        managed_policy_arns=managed_policy_arns,
        reasons=reasons,
    )


def add_pod_roles(
    scope: Construct, environment: Environment, metrics_namespaces: Sequence[str]
) -> dict[str, str]:
    """Add roles of the reader and writers stage, compile, bench; return service account to role."""
    role_arns = {}
    for account in PREFIXES:
        role_arns[account] = add_pod_role(
            Construct(scope, account),
            environment=environment,
            namespace=f"{names.NAMESPACE_PREFIX}*",
            account=account,
            statements=_list_statements(environment, account, metrics_namespaces),
            reasons=POD_REASONS,
        ).attr_arn
    return role_arns


def add_chart_reader(
    scope: Construct, environment: Environment, *, namespace: str, chart: PrivateRepository
) -> None:
    """Bind Flux's source-controller to a role that pulls one chart from private ECR.

    Pods on system nodes cannot reach the node's role (IMDS hop limit 1), so the controller needs
    its own role.
    """
    reader = add_pod_role(
        Construct(scope, SOURCE_CONTROLLER),
        environment=environment,
        namespace=namespace,
        account=SOURCE_CONTROLLER,
        statements=chart.allow_pull(),
        policy_name="chart",
        reasons={"[*]": "a login to private registries takes no narrower resource"},
    )
    add_pod_identities(
        Construct(scope, "Identity"),
        cluster_name=names.cluster_name(environment),
        namespace=namespace,
        role_arns={SOURCE_CONTROLLER: reader.attr_arn},
    )


def add_runner_identity(scope: Construct, environment: Environment) -> Construct:
    """Bind the runner to its role; return `scope` as a dependency for users of both."""
    role = add_pod_role(
        Construct(scope, RUNNER_ACCOUNT),
        environment=environment,
        namespace=RUNNER_NAMESPACE,
        account=RUNNER_ACCOUNT,
        statements=build_runner_policy(environment)["Statement"],
        policy_name="run",
        reasons={
            "*": (
                "what the runner may is docs/people.md's,"
                " with a reason for each place that has a wildcard"
            )
        },
    )
    add_pod_identities(
        Construct(scope, "Identity"),
        cluster_name=names.cluster_name(environment),
        namespace=RUNNER_NAMESPACE,
        role_arns={RUNNER_ACCOUNT: role.attr_arn},
    )
    return scope


def add_pod_identities(
    scope: Construct, *, cluster_name: str, namespace: str, role_arns: Mapping[str, str]
) -> Construct:
    """Bind a namespace's service accounts to their roles; return `scope` as a dependency."""
    for account, role_arn in role_arns.items():
        eks.CfnPodIdentityAssociation(
            scope,
            account,
            cluster_name=cluster_name,
            namespace=namespace,
            service_account=account,
            role_arn=role_arn,
        )
    return scope


def _list_statements(
    environment: Environment, account: str, metrics_namespaces: Sequence[str]
) -> list[Statement]:
    """Return the rights of a service account.

    A writer searches unfinished uploads after a kill. They can be listed only for a whole bucket:
    ListBucketMultipartUploads has no condition on a prefix (Service Authorization Reference, Amazon
    S3). So a writer may see the names of others' uploads and touch none. Metrics take no resource,
    but a condition on the namespace (the same, Amazon CloudWatch). Secrets Manager ends the ARN of
    the one secret with six random characters (its user guide, "Permissions policy examples"). A key
    of the operator must itself admit the role.
    """
    token_secret = environment.hub.token_secret
    bucket = build_bucket_arn(environment)
    read_prefixes, write_prefix = PREFIXES[account]
    conditions = {"StringLike": {"s3:prefix": list(read_prefixes)}}
    statements = [
        allow(["s3:ListBucket"], [bucket], conditions=conditions),
        allow(["s3:GetObject"], [f"{bucket}/{prefix}" for prefix in read_prefixes]),
    ]
    if write_prefix:
        statements.append(allow(UPLOAD_ACTIONS, [f"{bucket}/{write_prefix}"]))
        statements.append(allow(["s3:ListBucketMultipartUploads"], [bucket]))
    statements += policy.allow_bucket_key(environment, writes=write_prefix is not None)
    if account == names.STAGE_ACCOUNT and token_secret:
        secret_arn = build_arn(environment, "secretsmanager", f"secret:{token_secret}-??????")
        statements.append(allow(["secretsmanager:GetSecretValue"], [secret_arn]))
    if account == names.BENCH_ACCOUNT:
        conditions = {"StringEquals": {"cloudwatch:namespace": list(metrics_namespaces)}}
        statements.append(allow(["cloudwatch:PutMetricData"], ["*"], conditions=conditions))
    return statements
