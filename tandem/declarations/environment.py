"""An environment: one account and region that operators own, and the experiments it hosts.

Invariant: everything here is known before a deploy; no value is looked up, and none is a CDK token.
"""

from __future__ import annotations

import re
from datetime import UTC, date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tandem.declarations.record import ADVICE, INTEGER_ONLY, SpecRecord


def match_text(pattern: str, allowed: str) -> Any:
    """Return the field of a text that matches `pattern`; `allowed` says in words what does."""
    return Field(pattern=pattern, json_schema_extra={"allowed": allowed})


def _refuse_session(arn: object) -> object:
    """Answer the ARN of a session, which GetCallerIdentity prints, with that of its role."""
    session = _SESSION.fullmatch(arn) if isinstance(arn, str) else None
    if session is None:
        return arn
    partition, account, name = session.groups()
    command = f"aws iam get-role --role-name {name} --query Role.Arn"
    advice = f"write the role of this session: arn:{partition}:iam::{account}:role/{name}"
    raise PydanticCustomError(
        ADVICE, "{advice}", {"advice": f"{advice}, with its path if it has one ({command})"}
    )


_CIDR = r"[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}"
_PRINCIPAL = (
    r"^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/([A-Za-z0-9_+=,.@-]+/)*[A-Za-z0-9_+=,.@-]+$"
)
_SESSION = re.compile(r"arn:(aws[a-z-]*):sts::([0-9]{12}):assumed-role/([A-Za-z0-9_+=,.@-]+)/.*")
_LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_REGISTRY = r"^[a-z0-9][a-z0-9.-]*\.[a-z0-9-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$"
_KEY = r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/(mrk-[0-9a-f]{32}|[0-9a-f-]{36})$"
_HUB = r"^https://[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*$"
_FOLDER = r"^\.?[A-Za-z0-9_][A-Za-z0-9._-]*(/\.?[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
_512_LETTERS = "the name of a secret, up to 512 letters, digits and / _ + = . @ -"
_CLIENT_WORDS = "an IPv4 range such as 10.42.0.0/16, or the id of a security group, sg-..."
_NAME_WORDS = "lower-case letters, digits and dashes, starting with a letter, at most 63"
_PURCHASE = r"^[a-z0-9.]+ (capacity-block|reservation|spot|on-demand)$"
_ADDRESS_WORDS = "an e-mail address, an https:// URL or an ARN, as the protocol has it"
_RUN_WORDS = "a run id: letters, digits and dashes, at most 128"

Account = Annotated[str, match_text(r"^[0-9]{12}$", "12 digits in quotes")]
Region = Annotated[str, match_text(r"^[a-z]{2}(-[a-z]+)+-[0-9]$", "a region name")]
ZoneId = Annotated[
    str, match_text(r"^[a-z0-9]+-az[0-9]$", "a zone id such as use2-az1, never a letter")
]
Cidr = Annotated[str, match_text(rf"^{_CIDR}$", "an IPv4 range such as 10.42.0.0/16")]
ApiClient = Annotated[str, match_text(rf"^(sg-[0-9a-f]{{8,17}}|{_CIDR})$", _CLIENT_WORDS)]
PrincipalArn = Annotated[
    str,
    BeforeValidator(_refuse_session),
    match_text(_PRINCIPAL, "the ARN of one IAM role or user, without wildcards"),
]
Label = Annotated[str, match_text(_LABEL, "lower-case letters, digits and dashes, at most 63")]
# of what we make: a Service and a CDK stage both need the letter first
Name = Annotated[str, match_text(r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$", _NAME_WORDS)]
SubnetId = Annotated[str, match_text(r"^subnet-[0-9a-f]{8,17}$", "a subnet id")]
VpcId = Annotated[str, match_text(r"^vpc-[0-9a-f]{8,17}$", "a VPC id")]
RegistryName = Annotated[str, match_text(_REGISTRY, "a registry host, with or without a path")]
BucketName = Annotated[str, match_text(r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", "a bucket name")]
KmsKeyArn = Annotated[str, match_text(_KEY, "the ARN of a KMS key by its id, no alias")]
HubUrl = Annotated[
    str, match_text(_HUB, "an https:// URL without credentials and without end slash")
]
SecretName = Annotated[str, match_text(r"^[A-Za-z0-9/_+=.@-]{1,512}$", _512_LETTERS)]
ReservationId = Annotated[str, match_text(r"^cr-[0-9a-f]{17}$", "cr- and 17 hexadecimal digits")]
PricedPurchase = Annotated[
    str, match_text(_PURCHASE, "instance type and kind, such as trn2.3xlarge spot")
]
IndexUrl = Annotated[str, match_text(r"^https://[^\s@]+$", "an https:// URL without a user name")]
BootstrapQualifier = Annotated[
    str, match_text(r"^[a-z0-9]{1,10}$", "1 to 10 lower-case letters and digits")
]
AmiRelease = Annotated[
    str,
    match_text(
        r"^1\.[0-9]{2}\.[0-9]+-20[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])$",
        "a release and its day, such as 1.36.2-20260714",
    ),
]
KubernetesVersion = Annotated[
    str, match_text(r"^1\.[0-9]{2}$", 'a minor in quotes, such as "1.36"')
]
RepositoryUrl = Annotated[str, match_text(r"^(https|ssh)://\S+$", "an https:// or ssh:// URL")]
GitRevision = Annotated[str, match_text(r"^[^\s-]\S*$", "a git revision, without blanks")]
RelativeFolder = Annotated[
    str, match_text(_FOLDER, "a relative folder, without `..`, blanks or end slash")
]
SubscriberAddress = Annotated[str, match_text(r"^[!-~]{3,1024}$", _ADDRESS_WORDS)]
PromptClass = Annotated[
    str, match_text(r"^[a-z0-9][a-z0-9-]{0,31}$", "a prompt class of its suites, or all")
]
RunId = Annotated[str, match_text(r"^[A-Za-z0-9][A-Za-z0-9-]{0,127}$", _RUN_WORDS)]
Date = date  # a field of this name hides the type
Price = Annotated[float | None, Field(ge=0, le=10_000)]
# of CloudWatch Logs
LogDays = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653]


UtcMoment = Annotated[
    AwareDatetime,
    AfterValidator(lambda moment: moment.astimezone(UTC)),
    Field(json_schema_extra={"allowed": "a moment with its offset, such as 2026-12-01T11:30:00Z"}),
]

RUNS_PER_MONTH = 7  # of guard.max_hours, which a budget that follows the price pays
PLACEHOLDER_RESERVATION_ID = "cr-00000000000000000"
BASE_ZONES = 2  # EKS wants two zones, and never lets a cluster move to other ones
# AWS documentation's own examples
EXAMPLE_ACCOUNTS = frozenset({"111122223333", "123456789012", "444455556666"})


class NewNetwork(SpecRecord):
    """A VPC made for this environment, with private subnets in the named zones."""

    kind: Literal["new"] = Field(description="`new`: Tandem makes the VPC")
    cidr: Cidr = Field(description="address range of the VPC")
    zones: tuple[ZoneId, ...] = Field(
        min_length=2,
        max_length=4,
        description=(
            "zone ids of the subnets, one of them capacity.zone; the control plane and all that is"
            " no accelerator stay in the first two"
        ),
    )
    nat: Literal["none", "single", "per-zone"] = Field(
        "single", description="NAT gateways; none closes the cluster"
    )
    nat_zone: ZoneId | None = Field(
        None, description="zone id of the one gateway of nat single; null: the first of zones"
    )
    interface_endpoints: bool | None = Field(
        None,
        description=(
            "interface endpoints for the AWS services that private nodes call, paid by the hour and"
            " zone; null: only with nat none, elsewhere these calls go through the NAT gateway"
        ),
    )

    @property
    def base_zones(self) -> tuple[str, ...]:
        """The zones of the control plane and of all that is no accelerator."""
        return self.zones[:BASE_ZONES]

    @property
    def nat_zones(self) -> tuple[str, ...]:
        """The zones that have a NAT gateway."""
        return {"none": (), "single": (self.nat_zone or self.zones[0],), "per-zone": self.zones}[
            self.nat
        ]

    @property
    def has_interface_endpoints(self) -> bool:
        """Whether the VPC gets interface endpoints: as declared, else if it has no NAT gateway."""
        return self.nat == "none" if self.interface_endpoints is None else self.interface_endpoints


class ExistingSubnet(SpecRecord):
    """One existing private subnet."""

    id: SubnetId = Field(description="the subnet")
    zone: ZoneId = Field(description="the zone id it lies in")


class ExistingNetwork(SpecRecord):
    """A VPC that somebody else owns, named by ids; nothing is looked up."""

    kind: Literal["existing"] = Field(
        description="`existing`: the VPC is named by ids and left as it is"
    )
    vpc_id: VpcId = Field(description="the VPC")
    cidr: Cidr = Field(description="its address range")
    secondary_cidrs: tuple[Cidr, ...] = Field(
        (), max_length=16, description="further ranges, or of its endpoints"
    )
    subnets: tuple[ExistingSubnet, ...] = Field(
        min_length=2,
        description=(
            "private subnets, in at least two zones; all that is no accelerator stays in the first"
            " two zones"
        ),
    )
    control_plane_subnets: tuple[ExistingSubnet, ...] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description=(
            "the control plane's two subnets, in two zones; null: the first subnet of each of the"
            " first two zones of subnets"
        ),
    )

    @property
    def base_zones(self) -> tuple[str, ...]:
        """The zones of all that is no accelerator."""
        return tuple(dict.fromkeys(subnet.zone for subnet in self.subnets))[:BASE_ZONES]

    @property
    def cluster_subnets(self) -> tuple[ExistingSubnet, ...]:
        """The subnets of the control plane, as declared or by default."""
        if self.control_plane_subnets is not None:
            return self.control_plane_subnets
        return tuple(
            next(subnet for subnet in self.subnets if subnet.zone == zone)
            for zone in self.base_zones
        )

    @property
    def cidrs(self) -> tuple[str, ...]:
        """Every range of the VPC, the first one first."""
        return (self.cidr, *self.secondary_cidrs)


class CdkBootstrap(SpecRecord):
    """How the CDK was bootstrapped in this account and region."""

    qualifier: BootstrapQualifier = Field(
        "tandem", description="qualifier given to `cdk bootstrap`"
    )
    permissions_boundary: str | None = Field(
        None,
        description=(
            "a managed policy's name, behind its path if it has one, as boundary on every role"
        ),
    )


class ApiEndpoint(SpecRecord):
    """Who reaches the Kubernetes API."""

    access: Literal["private", "public"] = Field(
        description="private: from the VPC only; public: also from cidrs"
    )
    cidrs: tuple[Cidr, ...] = Field(
        (), description="ranges admitted to a public endpoint; 0.0.0.0/0 is refused"
    )
    clients: tuple[ApiClient, ...] = Field(
        (),
        max_length=32,
        description=(
            "who reaches the API's private address, besides nodes and pods: private ranges, or"
            " security groups of the VPC; none: nobody outside the cluster does"
        ),
    )


class ClusterAccess(SpecRecord):
    """IAM principals of the four kinds of people; each gets an EKS access entry."""

    admin: tuple[PrincipalArn, ...] = Field((), description="full rights in the cluster")
    operator: tuple[PrincipalArn, ...] = Field(
        (), description="as an engineer, and reads logs everywhere"
    )
    engineer: tuple[PrincipalArn, ...] = Field(
        (),
        description=(
            "reads state everywhere; starts Jobs and servers in the experiments' namespaces"
        ),
    )
    viewer: tuple[PrincipalArn, ...] = Field(
        (), description="reads state everywhere, neither logs nor secrets"
    )


class SystemNodeSettings(SpecRecord):
    """The small node group that runs add-ons."""

    instance_type: Literal["m7i.large", "m7i.xlarge", "m7i.2xlarge"] = Field(
        "m7i.xlarge",
        description="instance type; staging, llmperf and the add-ons share these nodes",
    )
    count: int = Field(2, ge=2, le=6, description="nodes; two survive the loss of one")


class ClusterSettings(SpecRecord):
    """The EKS cluster."""

    kubernetes: KubernetesVersion = Field("1.36", description="Kubernetes minor version")
    ami_release: AmiRelease | None = Field(
        None,
        description=(
            "AMI release of the accelerator nodes, as 1.36.2-20260714; "
            "null: the newest whose Neuron driver Tandem knows"
        ),
    )
    endpoint: ApiEndpoint = Field(description="who reaches the Kubernetes API")
    access: ClusterAccess = Field(description="who may do what in the cluster")
    system_nodes: SystemNodeSettings = Field(
        default_factory=SystemNodeSettings, description="nodes for add-ons"
    )
    deletion_protection: bool = Field(
        True, description="EKS refuses to delete the cluster; false before a teardown"
    )


class BucketSettings(SpecRecord):
    """The bucket that holds models and compiled artifacts."""

    existing_bucket: BucketName | None = Field(
        None, description="a bucket of yours; null makes one, which is kept"
    )
    kms_key_arn: KmsKeyArn | None = Field(
        None,
        description=(
            "key of yours that encrypts the bucket; its policy must admit this account's IAM; "
            "null: S3's own keys"
        ),
    )
    noncurrent_days: int = Field(
        30, ge=1, le=3650, description="days that old versions of an object are kept"
    )
    usd_per_gb_month: float | None = Field(
        None, ge=0, le=10, description="your price of a GiB-month; null shows no cost"
    )
    usd_per_gb_month_date: date | None = Field(None, description="day on which that price was read")


class HubSettings(SpecRecord):
    """Where models are staged from."""

    endpoint: HubUrl | None = Field(
        None, description="a hub with Hugging Face's protocol; null: the public one"
    )
    token_secret: SecretName | None = Field(
        None,
        description=(
            "name of the Secrets Manager secret, in this account and region, that holds the hub's"
            " token; only staging may read it"
        ),
    )


class CapacityBlock(SpecRecord):
    """When a Capacity Block may be used; EC2 ends its instances by itself."""

    starts: UtcMoment = Field(description="start of the block, as the offer says")
    ends: UtcMoment = Field(description="end of the block, as the offer says")


class CapacitySettings(SpecRecord):
    """The accelerator nodes, and what an hour of one costs."""

    instance_type: Literal["trn2.48xlarge", "trn2.3xlarge", "trn2u.48xlarge"] = Field(
        description="instance type"
    )
    kind: Literal["capacity-block", "reservation", "spot", "on-demand"] = Field(
        description="how it is bought"
    )
    reservation_id: ReservationId | None = Field(
        None,
        description=(
            f"the Capacity Block or reservation; null or {PLACEHOLDER_RESERVATION_ID}: no Fleet"
            " stack yet"
        ),
    )
    zone: ZoneId = Field(description="zone id of the nodes, for a reservation the one it lies in")
    nodes: int = Field(1, ge=1, le=64, description="most nodes the fleet may ever have")
    usd_per_hour: float = Field(
        ge=0, le=10000, description="price of a node-hour in your own offer: Tandem knows none"
    )
    usd_per_hour_date: date = Field(description="day on which that price was read")
    usd_per_hour_of: PricedPurchase | None = Field(
        None,
        description="of what that price is; null: not said, so a price of another type may pass",
    )
    efa: bool = Field(False, description="EFA network cards; not needed within one node")
    block: CapacityBlock | None = Field(
        None,
        description=(
            "plan of the Capacity Block's hours, before which EC2's word goes; null: not said"
        ),
    )

    @property
    def needs_reservation(self) -> bool:
        """Whether its kind names what was bought beforehand."""
        return self.kind in {"capacity-block", "reservation"}

    @property
    def eks_type(self) -> str:
        """How EKS calls the kind; a reservation is on-demand capacity that somebody holds."""
        return {"capacity-block": "CAPACITY_BLOCK", "spot": "SPOT"}.get(self.kind, "ON_DEMAND")

    @property
    def awaits_reservation(self) -> bool:
        """Whether the nodes wait for a reservation id: then there is no Fleet stack."""
        return self.needs_reservation and self.reservation_id in {None, PLACEHOLDER_RESERVATION_ID}


class CdkDelivery(SpecRecord):
    """`cdk deploy` applies the manifests."""

    kind: Literal["cdk"] = Field(description="`cdk`: the Workloads stack applies the manifests")


class GitopsDelivery(SpecRecord):
    """Argo CD or Flux syncs the rendered manifests; no template has a kubectl provider."""

    kind: Literal["gitops"] = Field(
        description="`gitops`: a controller in the cluster syncs manifests/"
    )
    repo_url: RepositoryUrl = Field(description="git repository that holds manifests/")
    revision: GitRevision = Field(
        description=(
            "branch, tag, commit or full ref to sync; Flux takes 1.2 or v1.2 for a tag, so write "
            "refs/heads/1.2 for a branch of such a name"
        )
    )
    path: RelativeFolder = Field(
        description="folder of this environment's manifests in that repository"
    )
    tool: Literal["argocd", "flux"] = Field(description="the controller")
    namespace: Label = Field(description="namespace the controller runs in")


class GuardLimits(SpecRecord):
    """The limits of the independent stops."""

    max_hours: int = Field(ge=1, le=720, description="most hours an accelerator node may live")
    idle_minutes: int = Field(
        ge=5, le=1440, description="minutes without a run's heartbeat before a stop"
    )
    budget_usd: float | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description=(
            "monthly budget whose alarm stops the fleet; null:"
            f" that of {RUNS_PER_MONTH} runs of max_hours"
        ),
    )
    people_policies: bool = Field(
        False, description="IAM policies for people and the pipeline, to be attached by hand"
    )


class OwnPrices(SpecRecord):
    """What units cost this account, in USD; a missing price is Tandem's dated one, or unknown."""

    date: Date = Field(description="day on which these prices were read")
    cluster_hour: Price = Field(None, description="an hour of the EKS control plane")
    system_node_hour: Price = Field(
        None, description="an hour of one system node, of the declared type"
    )
    volume_gb_month: Price = Field(None, description="a GB of a gp3 volume for a month")
    nat_gateway_hour: Price = Field(None, description="an hour of a NAT gateway")
    nat_gb: Price = Field(None, description="a GB through a NAT gateway")
    public_address_hour: Price = Field(None, description="an hour of a public IPv4 address")
    endpoint_hour: Price = Field(None, description="an hour of an interface endpoint in one zone")
    image_gb_month: Price = Field(None, description="a GB in ECR for a month")
    build_minute: Price = Field(None, description="a minute of a build on general1.small, Linux")
    metric_month: Price = Field(None, description="a custom metric for a month")
    alarm_metric_month: Price = Field(None, description="a metric that an alarm reads, for a month")
    composite_alarm_month: Price = Field(None, description="a composite alarm for a month")
    dashboard_month: Price = Field(None, description="a dashboard for a month")
    log_gb_ingested: Price = Field(None, description="a GB of logs taken in")
    log_gb_month_stored: Price = Field(None, description="a GB of logs kept for a month")
    key_month: Price = Field(None, description="a KMS key for a month")
    put_requests_thousand: Price = Field(None, description="a thousand PutMetricData requests")


class ServingAccess(SpecRecord):
    """Who may talk to the servers, and what their containers may do."""

    allowed_namespaces: tuple[Label, ...] = Field(
        (), description="namespaces admitted to port 8000, besides our own"
    )
    capabilities: Literal["none", "runtime-default", "neuron"] = Field(
        "none",
        description=(
            "Linux capabilities of servers and compilers; neuron: the default, SYS_ADMIN, IPC_LOCK"
        ),
    )


class AlarmSubscription(SpecRecord):
    """One subscriber of the alarms' topic."""

    protocol: Literal["email", "https", "sqs", "lambda"] = Field(description="how SNS delivers")
    endpoint: SubscriberAddress = Field(
        description="who gets alarms; an e-mail address or URL must confirm once before"
    )


class ReferenceValue(SpecRecord):
    """What one variant reached in the reference run, in one class at one concurrency."""

    experiment: Name = Field(description="one of this environment's experiments")
    variant: Name = Field(description="one of its variants")
    prompt_class: PromptClass = Field(
        description="prompt class as in the run's summary; `all` pools the classes"
    )
    concurrency: int = Field(
        ge=1, le=1024, description="streams kept open at once, as in the run's summary"
    )
    ttft_ms: float | None = Field(
        None, gt=0, le=3_600_000, description="median time to first token; null: no alarm"
    )
    tpot_ms: float | None = Field(
        None, gt=0, le=3_600_000, description="median time per output token; null: no alarm"
    )
    acceptance_length: float | None = Field(
        None, ge=1, le=65, description="median tokens of one step; null: no alarm"
    )


class ReferenceRun(SpecRecord):
    """A run that later ones are compared with."""

    run: RunId = Field(description="id of the run, as its folder in the bucket is named")
    values: tuple[ReferenceValue, ...] = Field(
        min_length=1, description="medians of that run's summary"
    )


class ObservabilitySettings(SpecRecord):
    """What is watched, who gets alarms, and what that may cost."""

    container_insights: bool = Field(
        True, description="Container Insights: nodes, pods, the servers' own metrics"
    )
    alarm_subscriptions: tuple[AlarmSubscription, ...] = Field(
        (), description="who the alarms tell"
    )
    reference: ReferenceRun | None = Field(
        None, description="the run whose medians regression alarms use; or null"
    )
    regression_percent: float = Field(
        20, gt=0, le=1000, description="percent worse than the reference that alarms"
    )
    failed_percent: float = Field(
        5, gt=0, le=100, description="percent of a run's requests failed that fires an alarm"
    )
    not_ready_minutes: int = Field(
        30, ge=1, le=720, description="minutes of live nodes without a ready server"
    )
    monthly_limit_usd: float = Field(
        150, ge=0, le=1_000_000, description="USD of watching in a month; more is refused"
    )


class Environment(SpecRecord):
    """One account and region, and the experiments it hosts; the file's name is its name."""

    name: Name = Field(description="the file's name")
    account: Account = Field(description="AWS account")
    region: Region = Field(description="AWS region")
    termination_protection: bool = Field(
        True, description="no stack can be deleted; write false before a teardown"
    )
    network: NewNetwork | ExistingNetwork = Field(discriminator="kind", description="the VPC")
    bootstrap: CdkBootstrap = Field(default_factory=CdkBootstrap, description="the CDK's bootstrap")
    cluster: ClusterSettings = Field(description="the EKS cluster")
    artifacts: BucketSettings = Field(default_factory=BucketSettings, description="the bucket")
    hub: HubSettings = Field(
        default_factory=HubSettings, description="where models are staged from"
    )
    capacity: CapacitySettings = Field(description="the accelerator nodes")
    registry_mirrors: dict[RegistryName, RegistryName] = Field(
        default_factory=dict,
        json_schema_extra={
            "allowed": (
                "a mapping of registry host, or host/path, to the mirror's host, or host/path; no"
                " https://, no end slash"
            )
        },
        description="registry host (or host/path) to the mirror that replaces it, charts included",
    )
    package_index: IndexUrl | None = Field(
        None, description="Python package index of builds; null: the public one"
    )
    builds_in_vpc: bool = Field(
        False, description="CodeBuild runs in the private subnets; false: in AWS's network"
    )
    tags: dict[str, str] = Field(
        default_factory=dict, description="tags on every taggable resource"
    )
    log_retention_days: Annotated[LogDays, INTEGER_ONLY] = Field(
        90, description="days that CloudWatch keeps logs"
    )
    log_kms_key_arn: KmsKeyArn | None = Field(
        None,
        description=(
            "key of yours that encrypts the logs of control plane, builds and connections; its"
            " policy must admit CloudWatch Logs; null: CloudWatch's own keys"
        ),
    )
    delivery: CdkDelivery | GitopsDelivery = Field(
        discriminator="kind", description="who applies the manifests"
    )
    guard: GuardLimits = Field(description="the limits of the stops")
    prices: OwnPrices | None = Field(
        None, description="what units cost this account, such as a discounted price"
    )
    serving: ServingAccess = Field(
        default_factory=ServingAccess, description="who may talk to the servers"
    )
    observability: ObservabilitySettings = Field(
        default_factory=ObservabilitySettings,
        description="what is watched, who gets alarms, and what that may cost",
    )
    experiments: tuple[Name, ...] = Field(
        min_length=1, description="experiments this environment hosts"
    )
