"""The local endpoint's fidelity, type by type: a table that a rehearsal prints by its result.

real      the endpoint acts on the resource as AWS's API would
stored    the endpoint keeps and returns every field, with nothing behind them
recorded  the endpoint keeps only the template's own properties
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class FidelityLevel(StrEnum):
    """How far a type is rehearsed."""

    REAL = "real"
    STORED = "stored"
    RECORDED = "recorded"


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeFidelity:
    """The fidelity of one type in a rehearsal.

    Args:
        sentence: what happens here, and what would be different on AWS.
        hidden_properties: properties that no describe call returns, with the reason; they are not
            checked.
    """

    level: FidelityLevel
    sentence: str
    hidden_properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def _real_type(sentence: str, **hidden_properties: str) -> TypeFidelity:
    return TypeFidelity(
        level=FidelityLevel.REAL, sentence=sentence, hidden_properties=hidden_properties
    )


def _storage_type(sentence: str, **hidden_properties: str) -> TypeFidelity:
    return TypeFidelity(
        level=FidelityLevel.STORED, sentence=sentence, hidden_properties=hidden_properties
    )


def _listing_type(sentence: str) -> TypeFidelity:
    return TypeFidelity(level=FidelityLevel.RECORDED, sentence=sentence)


_NO_PACKETS_SENTENCE = "kept and described; no packet flows"
_NO_API_REASON = "acts at create, update or delete only; no API returns it"
_KUBECTL_SENTENCE = (
    "its properties are recorded; there is no Kubernetes API, the provider Lambda is deployed and"
    " never invoked"
)

FIDELITY: Mapping[str, TypeFidelity] = {
    "AWS::Budgets::Budget": _storage_type(
        "kept and described with whom it tells; nothing is spent here, so it never tells anybody"
    ),
    "AWS::CloudWatch::Alarm": _storage_type(
        "kept and described; one of a single metric looks at the newest values alone, metric math,"
        " missing data and the number of periods are not evaluated"
    ),
    "AWS::CloudWatch::CompositeAlarm": _real_type(
        "evaluates its rule, tells its topic, and is silent while its suppressor is in alarm; the"
        " waits before and after that are kept, not kept to"
    ),
    "AWS::CloudWatch::Dashboard": _storage_type(
        "its body is kept byte by byte; whether CloudWatch draws it is not seen"
    ),
    "AWS::CodeBuild::Project": _storage_type(
        "kept and described; a build is played: it takes the real source and the project's own"
        " commands, and pushes a manifest without layers; no container runs, nothing is downloaded,"
        " the role is not needed"
    ),
    "AWS::EC2::EIP": _storage_type("an address is made up; quotas do not exist here"),
    "AWS::EC2::FlowLog": _storage_type(
        "kept and described; no flow is ever logged, since no packet flows"
    ),
    "AWS::EC2::InternetGateway": _storage_type(_NO_PACKETS_SENTENCE),
    "AWS::EC2::LaunchTemplate": _storage_type(
        "versions are kept, instances of a node group take type and tags from them;"
        " whether the reservation exists, the AMI boots or the interfaces fit the instance type is"
        " not seen"
    ),
    "AWS::EC2::NatGateway": _storage_type(
        "available at once; AWS takes minutes, and no packet flows here"
    ),
    "AWS::EC2::PlacementGroup": _storage_type("kept and described; nothing is placed"),
    "AWS::EC2::Route": _storage_type(_NO_PACKETS_SENTENCE),
    "AWS::EC2::RouteTable": _storage_type(_NO_PACKETS_SENTENCE),
    "AWS::EC2::SecurityGroup": _storage_type("rules are kept and described; nothing is filtered"),
    "AWS::EC2::SecurityGroupEgress": _storage_type(
        "rules are kept and described; nothing is filtered"
    ),
    "AWS::EC2::SecurityGroupIngress": _storage_type(
        "rules are kept and described; nothing is filtered"
    ),
    "AWS::EC2::Subnet": _storage_type(
        "kept and described; zone ids map to names by the alphabet, in an account of AWS by its own"
        " shuffle, and whether a zone offers the instance type is not seen"
    ),
    "AWS::EC2::SubnetRouteTableAssociation": _storage_type(_NO_PACKETS_SENTENCE),
    "AWS::EC2::VPC": _storage_type(
        "kept and described; no packet flows, overlapping ranges and quotas are not seen"
    ),
    "AWS::EC2::VPCEndpoint": _storage_type(
        "kept and described; whether the region offers the service is not seen"
    ),
    "AWS::EC2::VPCGatewayAttachment": _storage_type(_NO_PACKETS_SENTENCE),
    "AWS::ECR::Repository": _real_type(
        "takes images, refuses a tag that is there, goes with what it holds; nothing is scanned,"
        " lifecycle rules are kept, not acted on",
        EmptyOnDelete=_NO_API_REASON,
    ),
    "AWS::EKS::AccessEntry": _storage_type("kept and described; no API server reads it"),
    "AWS::EKS::Addon": _storage_type(
        "ACTIVE at once; whether the version exists for the cluster's minor and its pods run is not"
        " seen",
        ResolveConflicts=_NO_API_REASON,
        PreserveOnDelete=_NO_API_REASON,
    ),
    "AWS::EKS::Cluster": _storage_type(
        "ACTIVE at once (AWS: about ten minutes), no API server; deletion protection refuses as"
        " on AWS",
        BootstrapSelfManagedAddons=_NO_API_REASON,
        Force=_NO_API_REASON,
    ),
    "AWS::EKS::Nodegroup": _real_type(
        "its Auto Scaling group starts, stops and replaces EC2 instances in tenths of seconds, AWS"
        " takes minutes; an instance has no machine, network interface or node in it, and capacity"
        " is what the endpoint is told",
        ForceUpdateEnabled=_NO_API_REASON,
    ),
    "AWS::EKS::PodIdentityAssociation": _storage_type(
        "kept and described; no pod asks for its credentials"
    ),
    "AWS::Events::Rule": _real_type(
        "fires by pattern and by rate; a target that fails is not tried again or sent on"
    ),
    "AWS::IAM::ManagedPolicy": _storage_type(
        "kept and described; whether it suffices is not enforced here"
    ),
    "AWS::IAM::Policy": _storage_type(
        "kept and described; whether it suffices is not enforced here"
    ),
    "AWS::IAM::Role": _storage_type("kept and described; every caller here may do everything"),
    "AWS::KMS::Alias": _real_type("names its key"),
    "AWS::KMS::Key": _storage_type(
        "kept and described; nothing is really encrypted with it and its policy is not enforced",
        PendingWindowInDays="acts at deletion only; described then, not before",
        BypassPolicyLockoutSafetyCheck=_NO_API_REASON,
    ),
    "AWS::Lambda::EventInvokeConfig": _storage_type(
        "kept and described; a call without a waiting caller is tried three times here, and its"
        " dead-letter queue gets a record of the failure with the event in it, on AWS the event"
        " itself"
    ),
    "AWS::Lambda::Function": _real_type(
        "the code is stored and runs on this machine's Python whatever the runtime says; of the"
        " custom resources only the tools image's invokes it here"
    ),
    "AWS::Lambda::LayerVersion": _storage_type("kept and described"),
    "AWS::Lambda::Permission": _storage_type("kept and described"),
    "AWS::Logs::LogGroup": _real_type(
        "takes and returns events; retention is kept and deletes nothing"
    ),
    "AWS::Logs::MetricFilter": _storage_type("kept and described; no event becomes a value here"),
    "AWS::S3::Bucket": _real_type(
        "objects, versions and conditional writes work; lifecycle, access logs and encryption are"
        " kept, not acted on",
        AccessControl="the endpoint drops a canned ACL",
    ),
    "AWS::S3::BucketPolicy": _storage_type("kept and described; not enforced here"),
    "AWS::SNS::Subscription": _real_type(
        "a queue, a function or a URL gets what is published; an e-mail address gets nothing,"
        " nobody has to confirm it"
    ),
    "AWS::SNS::Topic": _real_type(
        "delivers what is published; its key encrypts nothing and is not asked"
    ),
    "AWS::SNS::TopicPolicy": _storage_type("kept and described; not enforced here"),
    "AWS::SQS::Queue": _real_type("takes and gives messages; its key encrypts nothing"),
    "AWS::SQS::QueuePolicy": _storage_type("kept and described; not enforced here"),
    "AWS::Scheduler::ScheduleGroup": _real_type(
        "holds schedules, and takes them along when it goes; they fire within a tenth of a second,"
        " AWS's within a minute; flexible windows and time zones are kept, not kept to"
    ),
    "Custom::TandemImage": _real_type(
        "its Lambda runs, asks ECR, starts the build and answers CloudFormation, as on AWS; the"
        " build itself is played",
        ServiceTimeout="CloudFormation's own; no API returns it",
    ),
    "Custom::AWSCDK-EKS-HelmChart": _listing_type(_KUBECTL_SENTENCE),
    "Custom::AWSCDK-EKS-KubernetesResource": _listing_type(_KUBECTL_SENTENCE),
}

REHEARSAL_LIMITS = (
    "IAM, bucket and key policies are kept, not enforced",
    "no node joins, no pod is scheduled, no manifest or chart is applied",
    (
        "instance offerings, quotas and prices do not exist here; Capacity Blocks are as a caller"
        " sets them"
    ),
    (
        "everything but instances is ready at once; AWS passes through minutes of creating and"
        " updating"
    ),
    (
        "a deploy role is assumed without being checked; on AWS the bootstrap's policies and"
        " boundary decide"
    ),
)


class UnknownTypeError(LookupError):
    """A template has a type that this table does not know, so its rehearsal proves nothing."""


def find_fidelity(type_: str) -> TypeFidelity:
    """Return the row of a type.

    Raises:
        UnknownTypeError: there is no such row; no type is skipped in silence.
    """
    if type_ not in FIDELITY:
        raise UnknownTypeError(f"{type_} is not in the fidelity table of rehearsal/aws")
    return FIDELITY[type_]
