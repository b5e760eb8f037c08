"""Each `*` in the statements of the deployed roles, keys, topics, queues and buckets, and why it cannot be narrower.

Invariant: a test walks the statements of every template: none holds a `*` that has no row here, and no row is unused.
Account, region, environment and bucket stand as ACCOUNT, REGION, ENV and BUCKET, the kinds of a container log as KIND.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWildcard:
    """Some texts with a `*` in statements of some actions.

    Args:
        holder: whose role, or whose resource policy.
        actions: of the statements; `kms:*` stands for the actions of a key, which are written out.
        texts: resources, principals or values of conditions.
        reason: why no narrower one is possible.
    """

    holder: str
    actions: tuple[str, ...]
    texts: tuple[str, ...]
    reason: str


_GUARD, _PODS = "functions stop and reap", "pods"
_ID_REASON = "ids are not known beforehand; the condition asks for the tags that EKS puts on this node group's"
_NODE_GROUP = "arn:aws:eks:REGION:ACCOUNT:nodegroup/tandem-ENV/ENV-trn2/*"
_LIST_REASON = "the action takes no narrower resource (Service Authorization Reference)"
_KEY_REASON = "keys of objects are not known beforehand; the prefix is the boundary between readers and writers"
_UPLOAD_ACTIONS = ("s3:AbortMultipartUpload", "s3:ListMultipartUploadParts", "s3:PutObject")
_NOTIFY_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey", "sns:Publish")
_VPC_ACTIONS = (
    "ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:UnassignPrivateIpAddresses",
)  # fmt: skip
_CHART_LOGIN_ACTIONS = ("ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken")

POLICY_WILDCARDS = (
    PolicyWildcard(holder=_GUARD, texts=("*",), reason=_LIST_REASON, actions=(
        "autoscaling:DescribeAutoScalingGroups", "cloudwatch:GetMetricStatistics", "ec2:DescribeInstances",
        "scheduler:ListSchedules",
    )),
    PolicyWildcard(holder=f"{_GUARD}; tandem-bench", texts=("*",), actions=("cloudwatch:PutMetricData",),
                     reason="metrics are no resources; the condition asks for a namespace of the environment's own"),
    PolicyWildcard(holder=_GUARD, texts=("arn:aws:ec2:REGION:ACCOUNT:instance/*",), reason=_ID_REASON,
                     actions=("ec2:TerminateInstances",)),
    PolicyWildcard(holder=_GUARD, reason=_ID_REASON,
                     texts=("arn:aws:autoscaling:REGION:ACCOUNT:autoScalingGroup:*:autoScalingGroupName/*",),
                     actions=("autoscaling:SuspendProcesses", "autoscaling:UpdateAutoScalingGroup")),
    PolicyWildcard(holder=f"{_GUARD}; one-shot stops", texts=(_NODE_GROUP,),
                     actions=("eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"),
                     reason="EKS ends the ARN of a node group with an id of its own; all before it is literal"),
    PolicyWildcard(holder=_GUARD, actions=("s3:GetObject",),
                     texts=("arn:aws:s3:::BUCKET/runs/*/heartbeat.json", "arn:aws:s3:::BUCKET/runs/*/lease.json"),
                     reason="a run's name is not known beforehand; the file's own name is literal"),
    PolicyWildcard(holder=_PODS, actions=(*_UPLOAD_ACTIONS, "s3:GetObject"), reason=_KEY_REASON, texts=(
        "arn:aws:s3:::BUCKET/artifacts/*", "arn:aws:s3:::BUCKET/models/*", "arn:aws:s3:::BUCKET/results/*",
    )),
    PolicyWildcard(holder=_PODS, texts=("artifacts/*", "models/*", "results/*"), actions=("s3:ListBucket",),
                     reason="a condition that keeps a listing to the same prefixes"),
    PolicyWildcard(holder=_PODS, texts=("tandem-*",), actions=("sts:AssumeRole", "sts:TagSession"),
                     reason="the namespaces of experiments, also of those to come; cluster and account are literal"),
    PolicyWildcard(holder="CloudWatch's agent", texts=("*",), actions=("ec2:DescribeTags", "ec2:DescribeVolumes"),
                     reason=_LIST_REASON),
    PolicyWildcard(holder="CloudWatch's agent", actions=(
        "logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents",
    ), texts=("arn:aws:logs:REGION:ACCOUNT:log-group:/aws/containerinsights/tandem-ENV/KIND:log-stream:*",),
                     reason="a stream is named after its node, which is not known beforehand; the group is literal"),
    PolicyWildcard(holder="image builds; the function that applies manifests", texts=("*",),
                     actions=("ecr:GetAuthorizationToken", *_CHART_LOGIN_ACTIONS),
                     reason="a login takes no narrower resource; the repositories' own rights decide what it opens"),
    PolicyWildcard(holder="the function that applies manifests", texts=("*",),
                     actions=(*_VPC_ACTIONS, *_CHART_LOGIN_ACTIONS, "ecr:GetAuthorizationToken"),
                     reason="Lambda makes its network interfaces in the VPC with these, and none takes a narrower "
                     "resource (Lambda developer guide, execution role of a function in a VPC)"),
    PolicyWildcard(holder="keys", texts=("*",), actions=("kms:*",),
                     reason="in a key's own policy this is the key and nothing else (KMS developer guide)"),
    PolicyWildcard(holder="the key of container logs", actions=("kms:*",),
                     texts=("arn:aws:logs:REGION:ACCOUNT:log-group:/aws/containerinsights/tandem-ENV/*",),
                     reason="a condition: CloudWatch Logs may use the key for the cluster's groups alone"),
    PolicyWildcard(holder="topics and their key", actions=_NOTIFY_ACTIONS,
                     texts=("arn:aws:cloudwatch:REGION:ACCOUNT:alarm:ENV-notify-*",),
                     reason="a condition: CloudWatch may act for the environment's alarms that notify, alone"),
    PolicyWildcard(holder="topics and their key", texts=("arn:aws:budgets::ACCOUNT:*",), actions=_NOTIFY_ACTIONS,
                     reason="a condition, as the user guide of AWS Budgets writes it: Budgets may act for this account "
                     "alone"),
    PolicyWildcard(holder="topics", texts=("*",), actions=("sns:Publish",),
                     reason="a denial: of everybody who does not use TLS"),
    PolicyWildcard(holder="buckets and the queue", texts=("*", "AWS::S3::Bucket/*", "s3:*", "sqs:*"),
                     actions=("s3:*", "sqs:*"), reason="a denial: of everything, of everybody who does not use TLS"),
    PolicyWildcard(holder="the bucket of access logs", texts=("AWS::S3::Bucket/access/*",), actions=("s3:PutObject",),
                     reason="S3 chooses the keys of the logs that it delivers; the condition names the bucket"),
    PolicyWildcard(holder="image builds inside the VPC", texts=("*",), actions=(
        "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:DescribeDhcpOptions",
        "ec2:DescribeNetworkInterfaces", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets", "ec2:DescribeVpcs",
    ), reason="CodeBuild makes its network interfaces in the VPC with these (CodeBuild user guide, VPC support)"),
    PolicyWildcard(holder="image builds inside the VPC", texts=("arn:aws:ec2:REGION:ACCOUNT:network-interface/*",),
                     actions=("ec2:CreateNetworkInterfacePermission",),
                     reason="ids are not known beforehand; the condition names the subnets"),
    PolicyWildcard(holder="nodes", actions=("ecr:BatchImportUpstreamImage", "ecr:CreateRepository"), texts=(
        "arn:aws:ecr:REGION:ACCOUNT:repository/ecr-public/*", "arn:aws:ecr:REGION:ACCOUNT:repository/k8s/*",
    ), reason="a pull-through cache makes a repository at an image's first pull; the mirror's prefix is literal"),
    PolicyWildcard(holder="the S3 gateway endpoint", texts=("*",), actions=(
        "s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetBucketVersioning", "s3:GetObject", "s3:GetObjectVersion",
        "s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:ListBucketVersions", "s3:ListMultipartUploadParts",
        "s3:PutObject",
    ), reason="as principal: whoever calls from the VPC, each by a role of its own; as resource, of reads alone: "
       "layers of images, packages of the nodes' system and charts lie in buckets of others"),
    PolicyWildcard(holder="the S3 gateway endpoint", texts=("arn:aws:s3:::BUCKET/*",), actions=(
        "s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:GetObjectVersion",
        "s3:ListMultipartUploadParts", "s3:PutObject",
    ), reason="keys of objects are not known beforehand; the bucket is the environment's own"),
    PolicyWildcard(holder="the S3 gateway endpoint", actions=("s3:PutObject",),
                     texts=("arn:aws:s3:::cloudformation-custom-resource-response-useast2/*",),
                     reason="a function answers CloudFormation at a key that CloudFormation chooses, in its bucket"),
)  # fmt: skip
"""Rows in the order of what they can change."""
