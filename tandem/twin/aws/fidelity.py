"""What the local endpoint is worth, type by type: the table that a rehearsal prints beside its result.

real      the endpoint does with the resource what AWS's API would
stored    it keeps and returns every field, and nothing stands behind it
recorded  only the template's own properties are kept
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Level(StrEnum):
    """How far a type is rehearsed."""

    REAL = "real"
    STORED = "stored"
    RECORDED = "recorded"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fidelity:
    """What a rehearsal of one type shows.

    Args:
        sentence: what happens here, and what would be different on AWS.
        unseen: properties that no describe call returns, with the reason; they are not held.
    """

    level: Level
    sentence: str
    unseen: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def _real(sentence: str, **unseen: str) -> Fidelity:
    return Fidelity(level=Level.REAL, sentence=sentence, unseen=unseen)


def _stored(sentence: str, **unseen: str) -> Fidelity:
    return Fidelity(level=Level.STORED, sentence=sentence, unseen=unseen)


def _recorded(sentence: str) -> Fidelity:
    return Fidelity(level=Level.RECORDED, sentence=sentence)


_NO_PACKETS = "kept and described; no packet flows"
_SILENT = "acts at create, update or delete only; no API returns it"
_KUBECTL = "its properties are recorded; there is no Kubernetes API, the provider Lambda is deployed and never invoked"

FIDELITY: Mapping[str, Fidelity] = {
    "AWS::Budgets::Budget": _stored(
        "kept and described with whom it tells; nothing is spent here, so it never tells anybody"
    ),
    "AWS::CDK::Metadata": _recorded("CDK's own mark; AWS does nothing with it either"),
    "AWS::CloudFormation::CustomResource": _recorded(
        "its properties are recorded; the Lambda behind it is deployed and never invoked"
    ),
    "AWS::CloudWatch::Alarm": _stored(
        "kept and described; one of a single metric looks at the newest values alone, metric math, missing data and "
        "the number of periods are not evaluated"
    ),
    "AWS::CloudWatch::CompositeAlarm": _real(
        "evaluates its rule, tells its topic, and is silent while its suppressor is in alarm; the waits before and "
        "after that are kept, not kept to"
    ),
    "AWS::CloudWatch::Dashboard": _stored("its body is kept byte by byte; whether CloudWatch draws it is not seen"),
    "AWS::CodeBuild::Project": _stored(
        "kept and described; a build is played: it takes the real source and the project's own commands, and pushes a "
        "manifest without layers; no container runs, nothing is downloaded, the role is not needed"
    ),
    "AWS::EC2::EIP": _stored("an address is made up; quotas do not exist here"),
    "AWS::EC2::FlowLog": _stored("kept and described; no flow is ever logged, since no packet flows"),
    "AWS::EC2::InternetGateway": _stored(_NO_PACKETS),
    "AWS::EC2::LaunchTemplate": _stored(
        "versions are kept, instances of a node group take type, tags and root volume from them; whether the "
        "reservation exists, the AMI boots or the interfaces fit the instance type is not seen"
    ),
    "AWS::EC2::NatGateway": _stored("available at once; AWS takes minutes, and no packet flows here"),
    "AWS::EC2::PlacementGroup": _stored("kept and described; nothing is placed"),
    "AWS::EC2::Route": _stored(_NO_PACKETS),
    "AWS::EC2::RouteTable": _stored(_NO_PACKETS),
    "AWS::EC2::SecurityGroup": _stored("rules are kept and described; nothing is filtered"),
    "AWS::EC2::SecurityGroupEgress": _stored("rules are kept and described; nothing is filtered"),
    "AWS::EC2::SecurityGroupIngress": _stored("rules are kept and described; nothing is filtered"),
    "AWS::EC2::Subnet": _stored(
        "kept and described; zone ids map to names by the alphabet, in an account of AWS by its own shuffle, and "
        "whether a zone offers the instance type is not seen"
    ),
    "AWS::EC2::SubnetRouteTableAssociation": _stored(_NO_PACKETS),
    "AWS::EC2::VPC": _stored("kept and described; no packet flows, overlapping ranges and quotas are not seen"),
    "AWS::EC2::VPCEndpoint": _stored("kept and described; whether the region offers the service is not seen"),
    "AWS::EC2::VPCGatewayAttachment": _stored(_NO_PACKETS),
    "AWS::ECR::Repository": _real(
        "takes images, refuses a tag that is there, goes with what it holds; nothing is scanned, lifecycle rules are "
        "kept, not acted on",
        EmptyOnDelete=_SILENT,
    ),
    "AWS::EKS::AccessEntry": _stored("kept and described; no API server reads it"),
    "AWS::EKS::Addon": _stored(
        "ACTIVE at once; whether the version exists for the cluster's minor and its pods run is not seen",
        ResolveConflicts=_SILENT,
        PreserveOnDelete=_SILENT,
    ),
    "AWS::EKS::Cluster": _stored(
        "ACTIVE at once (AWS: about ten minutes), no API server; deletion protection refuses as on AWS",
        BootstrapSelfManagedAddons=_SILENT,
        Force=_SILENT,
    ),
    "AWS::EKS::Nodegroup": _real(
        "its Auto Scaling group starts, stops and replaces EC2 instances in tenths of seconds, AWS takes minutes; "
        "an instance has no machine, network interface or node in it, and capacity is what the endpoint is told",
        ForceUpdateEnabled=_SILENT,
    ),
    "AWS::EKS::PodIdentityAssociation": _stored("kept and described; no pod asks for its credentials"),
    "AWS::Events::Rule": _real("fires by pattern and by rate; a target that fails is not tried again or sent on"),
    "AWS::IAM::InstanceProfile": _stored("kept and described"),
    "AWS::IAM::ManagedPolicy": _stored("kept and described; whether it suffices is not enforced here"),
    "AWS::IAM::Policy": _stored("kept and described; whether it suffices is not enforced here"),
    "AWS::IAM::Role": _stored("kept and described; every caller here may do everything"),
    "AWS::KMS::Alias": _real("names its key"),
    "AWS::KMS::Key": _stored(
        "kept and described; nothing is really encrypted with it and its policy is not enforced",
        PendingWindowInDays="acts at deletion only; described then, not before",
        BypassPolicyLockoutSafetyCheck=_SILENT,
    ),
    "AWS::Lambda::EventInvokeConfig": _stored(
        "kept and described; a call without a waiting caller is tried three times here, and its dead-letter queue gets "
        "a record of the failure with the event in it, on AWS the event itself"
    ),
    "AWS::Lambda::Function": _real(
        "the code is stored and runs on this machine's Python whatever the runtime says; of the custom resources only "
        "the tools image's invokes it here"
    ),
    "AWS::Lambda::LayerVersion": _stored("kept and described"),
    "AWS::Lambda::Permission": _stored("kept and described"),
    "AWS::Logs::LogGroup": _real("takes and returns events; retention is kept and deletes nothing"),
    "AWS::Logs::MetricFilter": _stored("kept and described; no event becomes a value here"),
    "AWS::S3::Bucket": _real(
        "objects, versions and conditional writes work; lifecycle, access logs and encryption are kept, not acted on",
        AccessControl="the endpoint drops a canned ACL",
    ),
    "AWS::S3::BucketPolicy": _stored("kept and described; not enforced here"),
    "AWS::SNS::Subscription": _real(
        "a queue, a function or a URL gets what is published; an e-mail address gets nothing, nobody has to confirm it"
    ),
    "AWS::SNS::Topic": _real("delivers what is published; its key encrypts nothing and is not asked"),
    "AWS::SNS::TopicPolicy": _stored("kept and described; not enforced here"),
    "AWS::SQS::Queue": _real("takes and gives messages; its key encrypts nothing"),
    "AWS::SQS::QueuePolicy": _stored("kept and described; not enforced here"),
    "AWS::SSM::Parameter": _real("takes and returns values", AllowedPattern="held by the service at a write"),
    "AWS::Scheduler::Schedule": _real(
        "fires within a tenth of a second, AWS within a minute; of universal targets those of EKS, as its role where "
        "policies bind, with retries and dead-letter queue; flexible windows and time zones are kept, not kept to"
    ),
    "AWS::Scheduler::ScheduleGroup": _real("holds schedules, and takes them along when it goes"),
    "Custom::TandemToolsImage": _real(
        "its Lambda runs, asks ECR, starts the build and answers CloudFormation, as on AWS; the build itself is played",
        ServiceTimeout="CloudFormation's own; no API returns it",
    ),
    "Custom::AWSCDK-EKS-HelmChart": _recorded(_KUBECTL),
    "Custom::AWSCDK-EKS-KubernetesResource": _recorded(_KUBECTL),
    "Custom::AWSCDK-EKS-KubernetesObjectValue": _recorded(_KUBECTL),
    "Custom::AWSCDK-EKS-KubernetesPatch": _recorded(_KUBECTL),
}

NOT_REHEARSED = (
    "IAM, bucket and key policies are kept, not enforced",
    "no node joins, no pod is scheduled, no manifest or chart is applied",
    "Capacity Blocks, reservations, instance offerings, quotas and prices do not exist here",
    "everything but instances is ready at once; AWS passes through minutes of creating and updating",
    "a deploy role is assumed without being checked; on AWS the bootstrap's policies and boundary decide",
)


class UnknownTypeError(LookupError):
    """A template has a type that this table does not know, so nothing can be said of its rehearsal."""


def fidelity(type_: str) -> Fidelity:
    """The row of a type.

    Raises:
        UnknownTypeError: there is none; no type is skipped in silence.
    """
    if type_ not in FIDELITY:
        raise UnknownTypeError(f"{type_} is not in the fidelity table of tandem/twin/aws")
    return FIDELITY[type_]
