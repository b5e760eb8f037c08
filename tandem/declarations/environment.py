"""An environment: one account and region that operators own, and the experiments it hosts.

Invariant: everything here is known before a deploy; no value is looked up, and none is a CDK token.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from tandem.declarations.field_type import (
    Account,
    AmiRelease,
    ApiClient,
    BootstrapQualifier,
    BucketName,
    Cidr,
    Date,
    GitRevision,
    HubUrl,
    IndexUrl,
    KmsKeyArn,
    KubernetesVersion,
    Label,
    LogDays,
    Name,
    Price,
    PricedPurchase,
    PrincipalArn,
    PromptClass,
    Region,
    RegistryName,
    RelativeFolder,
    RepositoryUrl,
    ReservationId,
    RunId,
    SecretName,
    SubscriberAddress,
    UtcMoment,
    ZoneId,
)
from tandem.declarations.network_settings import ExistingNetwork, NewNetwork
from tandem.declarations.record import INTEGER_ONLY, SpecRecord

RUNS_PER_MONTH = 7  # of guard.max_hours, which a budget that follows the price pays
PLACEHOLDER_RESERVATION_ID = "cr-00000000000000000"
# AWS documentation's own examples
EXAMPLE_ACCOUNTS = frozenset({"111122223333", "123456789012", "444455556666"})


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
            "key of yours that encrypts the bucket;"
            " its policy must admit this account's IAM; null: S3's own keys"
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
            "the Capacity Block or reservation;"
            f" null or {PLACEHOLDER_RESERVATION_ID}: no Fleet stack yet"
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
