"""What AWS and Kubernetes offer, as dated data: instances, zones, versions, the Neuron DRA chart.

Invariant: offerings change, so each row carries its source and date and none is a hard-coded condition.
"""

from __future__ import annotations

from datetime import date

from pydantic import Field

from tandem.spec.figure import Figure, Source
from tandem.spec.record import Record


class Instance(Record):
    """One instance type; accelerator figures are null for the types of system nodes."""

    vcpu: Figure[int] = Field(description="vCPUs")
    memory_gib: Figure[int] = Field(description="memory, GiB")
    devices: Figure[int | None] = Field(description="Neuron devices (chips)")
    physical_cores_per_device: Figure[int | None] = Field(description="physical NeuronCores of a device")
    hbm_gib_per_device: Figure[int | None] = Field(description="high-bandwidth memory of a device, GiB")
    allocatable_cpu_m: Figure[int | None] = Field(description="CPU that Kubernetes can hand out, millicores")
    allocatable_memory_mib: Figure[int | None] = Field(description="memory that Kubernetes can hand out, MiB")
    pods: Figure[int | None] = Field(description="most pods")
    efa_cards: Figure[int | None] = Field(description="EFA network cards")
    network_card_gbps: Figure[int | None] = Field(description="most that its first network card carries, Gbit/s")
    nvme_gb: Figure[int | None] = Field(description="local NVMe, GB")
    device_groups: Figure[tuple[int, ...]] = Field(description="sizes of the groups the DRA driver publishes")
    device_counts: Figure[tuple[int, ...]] = Field(description="claim sizes that can be bound")
    capacity_kinds: Figure[tuple[str, ...]] = Field(description="ways to buy it")
    resource_slice: Figure[dict[str, tuple[str, ...]]] | None = Field(
        default=None, description="group attribute to the id of each group, in device order"
    )


class Instances(Record):
    """The table of instance types."""

    instances: dict[str, Instance]
    sources: dict[str, Source]


class Offerings(Record):
    """Where an instance type can be had: type -> region -> zone ids."""

    offerings: dict[str, dict[str, Figure[tuple[str, ...]]]]
    zones: dict[str, Figure[tuple[str, ...]]]
    billing_codes: dict[str, Figure[str]] = Field(description="region to what begins its usage types on a bill")
    sources: dict[str, Source]


class KubernetesMinor(Record):
    """One minor: support, the accelerator nodes' AMI and the add-on versions."""

    standard_support_ends: Figure[date | None]
    ami_release: Figure[str | None] = Field(description="AL2023_x86_64_NEURON release version; null: EKS's newest")
    neuron_driver: Figure[str | None] = Field(description="Neuron kernel driver in that AMI")
    addons: dict[str, Figure[str | None]] = Field(description="add-on to version; null: EKS's default")


class Kubernetes(Record):
    """The table of Kubernetes minors."""

    floor: Figure[str] = Field(description="oldest minor Tandem renders")
    default: Figure[str]
    kubectl: Figure[str] = Field(description="minor of the kubectl that the CDK delivers with")
    minors: dict[str, KubernetesMinor]
    sources: dict[str, Source]


class ChartImage(Record):
    """An image that a chart pulls, and the value that moves it to a mirror."""

    repository: str
    tag: str
    repository_value: str | None = Field(description="dotted chart value that sets the repository; null: none")


class DraChart(Record):
    """The Neuron Helm chart with its DRA driver."""

    repository: str = Field(description="oci:// URL of the chart")
    version: Figure[str]
    digest: Figure[str | None]
    namespace: Figure[str]
    device_class: Figure[str]
    driver: Figure[str]
    values: Figure[dict[str, dict[str, bool | str | int]]] = Field(description="values that must be set")
    images: Figure[tuple[ChartImage, ...]]
    sources: dict[str, Source]


class Digests(Record):
    """What `tandem images --resolve` read from the registries: `repository:tag` as published -> sha256."""

    digests: dict[str, Figure[str]] = Field(description="image reference to its digest")
    sources: dict[str, Source]

    def of(self, reference: str) -> str | None:
        """Return the digest of `repository:tag`, or None until it is resolved."""
        figure = self.digests.get(reference)
        return figure.value if figure else None


class PriceSource(Source):
    """Where a price was read, when, and whether in a text of whoever asks it."""

    verified: bool = Field(description="whether AWS's own text was read, not somebody else's record of it")


class RegionPrices(Record):
    """What stands in one region while the fleet is parked, in USD; null where no source was read."""

    cluster_hour: Figure[float | None] = Field(description="an EKS cluster of a minor in standard support, by the hour")
    nat_gateway_hour: Figure[float | None] = Field(description="a NAT gateway, by the hour")
    public_address_hour: Figure[float | None] = Field(description="a public IPv4 address, by the hour")
    endpoint_hour: Figure[float | None] = Field(description="an interface endpoint in one zone, by the hour")
    volume_gb_month: Figure[float | None] = Field(description="a GB of a gp3 volume, by the month")
    instance_hour: dict[str, Figure[float | None]] = Field(
        description="system nodes' type to an on-demand Linux instance, by the hour"
    )


class StandingPrices(Record):
    """Region to the prices of what stands while the fleet is parked."""

    regions: dict[str, RegionPrices]
    sources: dict[str, PriceSource]


class WatchPrices(Record):
    """What watching costs, in USD, in one region."""

    region: str
    metric_month: Figure[float] = Field(
        description="a custom metric for a month; charged for hours in which it is sent"
    )
    alarm_metric_month: Figure[float] = Field(description="each metric that an alarm of standard resolution reads")
    composite_alarm_month: Figure[float] = Field(description="a composite alarm for a month")
    dashboard_month: Figure[float] = Field(description="a dashboard for a month")
    free_dashboards: Figure[int] = Field(description="dashboards of an account that cost nothing")
    free_dashboard_metrics: Figure[int] = Field(description="most metrics of a dashboard that costs nothing")
    log_gb_ingested: Figure[float] = Field(description="a GB of logs taken in")
    log_gb_month_stored: Figure[float] = Field(description="a GB of logs kept for a month, as it is stored")
    key_month: Figure[float] = Field(description="a KMS key for a month")
    put_requests_thousand: Figure[float] = Field(description="a thousand PutMetricData requests")
    sources: dict[str, PriceSource]

    def unverified(self, name: str) -> bool:
        """Return whether the price of this field is not from a text of AWS itself."""
        return not self.sources[getattr(self, name).source].verified
