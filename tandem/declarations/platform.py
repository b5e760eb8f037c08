"""What AWS and Kubernetes offer, as dated data: instances, zones, versions, the Neuron DRA chart.

Invariant: offerings change, so each row carries its source and date and none is a hard-coded
condition.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from pydantic import Field

from tandem.declarations.figure import DataFigure, DataFile
from tandem.declarations.record import SpecRecord


class InstanceType(SpecRecord):
    """One instance type; accelerator figures are null for the types of system nodes."""

    vcpu: DataFigure[int] = Field(description="vCPUs")
    memory_gib: DataFigure[int] = Field(description="memory, GiB")
    devices: DataFigure[int | None] = Field(description="Neuron devices (chips)")
    physical_cores_per_device: DataFigure[int | None] = Field(
        description="physical NeuronCores of a device"
    )
    hbm_gib_per_device: DataFigure[int | None] = Field(
        description="high-bandwidth memory of a device, GiB"
    )
    allocatable_cpu_m: DataFigure[int | None] = Field(
        description="CPU that Kubernetes can hand out, millicores"
    )
    allocatable_memory_mib: DataFigure[int | None] = Field(
        description="memory that Kubernetes can hand out, MiB"
    )
    pods: DataFigure[int | None] = Field(description="most pods")
    efa_cards: DataFigure[int | None] = Field(description="EFA network cards")
    network_card_gbps: DataFigure[int | None] = Field(
        description="most that its first network card carries, Gbit/s"
    )
    nvme_gb: DataFigure[int | None] = Field(description="local NVMe, GB")
    device_groups: DataFigure[tuple[int, ...]] = Field(
        description="sizes of the groups the DRA driver publishes"
    )
    device_counts: DataFigure[tuple[int, ...]] = Field(description="claim sizes that can be bound")
    capacity_kinds: DataFigure[tuple[str, ...]] = Field(description="ways to buy it")
    # group attribute to the id of each group, in device order
    resource_slice: DataFigure[dict[str, tuple[str, ...]]] | None = None


class InstanceTable(DataFile):
    """The table of instance types."""

    instances: dict[str, InstanceType]


class OfferingTable(DataFile):
    """Where an instance type can be had: type -> region -> zone ids."""

    offerings: dict[str, dict[str, DataFigure[tuple[str, ...]]]]
    zones: dict[str, DataFigure[tuple[str, ...]]]
    billing_codes: dict[str, DataFigure[str]] = Field(
        description="region to what begins its usage types on a bill"
    )


class KubernetesMinor(SpecRecord):
    """One minor: support, the accelerator nodes' AMI and the add-on versions."""

    standard_support_ends: DataFigure[date | None]
    ami_releases: dict[str, DataFigure[str | None]] = Field(
        description=(
            "AL2023_x86_64_NEURON release version to its Neuron kernel driver;"
            " null: no source states it"
        )
    )
    addons: dict[str, DataFigure[str | None]] = Field(
        description="add-on to version; null: EKS's default"
    )

    @property
    def newest_release(self) -> str | None:
        """The newest AMI release that is known; None if none is."""
        return max(self.ami_releases, key=read_release_day, default=None)

    @property
    def default_release(self) -> str | None:
        """The newest AMI release with a known driver, else the newest; None if none known."""
        return next(iter(self.list_releases(())), self.newest_release)

    def list_releases(self, refusing_drivers: Collection[str]) -> list[str]:
        """Return AMI releases with known drivers of none of these minors, newest first."""
        stated = [
            release
            for release, driver in self.ami_releases.items()
            if driver.value and cut_driver(driver.value) not in refusing_drivers
        ]
        return sorted(stated, key=read_release_day, reverse=True)

    def find_driver(self, release: str | None) -> str | None:
        """Return the Neuron driver of an AMI release; None where no source states it."""
        figure = self.ami_releases.get(release or "")
        return figure.value if figure else None


def cut_driver(version: str) -> str:
    """Return the minor of a Neuron driver: 2.29 of 2.29.0.0."""
    return ".".join(version.split(".")[:2])


def read_release_day(release: str) -> str:
    """Return the day of an AMI release: 20260714 of 1.36.2-20260714."""
    return release.rpartition("-")[2]


class KubernetesTable(DataFile):
    """The table of Kubernetes minors."""

    floor: DataFigure[str] = Field(description="oldest minor Tandem renders")
    default: DataFigure[str]
    kubectl: DataFigure[str] = Field(description="minor of the kubectl that the CDK delivers with")
    minors: dict[str, KubernetesMinor]


class ChartImage(SpecRecord):
    """An image that a chart pulls, and the value that moves it to a mirror."""

    repository: str
    tag: str
    repository_value: str | None = Field(
        description="dotted chart value that sets the repository; null: none"
    )


class DraChart(DataFile):
    """The Neuron Helm chart with its DRA driver."""

    repository: str = Field(description="oci:// URL of the chart")
    version: DataFigure[str]
    digest: DataFigure[str | None]
    namespace: DataFigure[str]
    device_class: DataFigure[str]
    driver: DataFigure[str]
    values: DataFigure[dict[str, dict[str, bool | str | int]]] = Field(
        description="values that must be set"
    )
    images: DataFigure[tuple[ChartImage, ...]]


class DigestTable(DataFile):
    """What `tandem images --resolve` read from registries: published `repository:tag` -> sha256."""

    digests: dict[str, DataFigure[str]] = Field(description="image reference to its digest")

    def find_digest(self, reference: str) -> str | None:
        """Return the digest of `repository:tag`, or None until it is resolved."""
        figure = self.digests.get(reference)
        return figure.value if figure else None


class RegionPrices(SpecRecord):
    """What stands in a region while the fleet is parked, in USD; null where no source was read."""

    cluster_hour: DataFigure[float | None] = Field(
        description="a cluster of a minor in standard support, by the hour"
    )
    nat_gateway_hour: DataFigure[float | None] = Field(description="a NAT gateway, by the hour")
    nat_gb: DataFigure[float | None] = Field(description="a GB through a NAT gateway, either way")
    public_address_hour: DataFigure[float | None] = Field(
        description="a public IPv4 address, by the hour"
    )
    endpoint_hour: DataFigure[float | None] = Field(
        description="an interface endpoint in one zone, by the hour"
    )
    volume_gb_month: DataFigure[float | None] = Field(
        description="a GB of a gp3 volume, by the month"
    )
    instance_hour: dict[str, DataFigure[float | None]] = Field(
        description="type to an on-demand Linux instance's hour"
    )


class StandingPrices(DataFile):
    """Region to the prices of what stands while the fleet is parked."""

    regions: dict[str, RegionPrices]


class WatchPrices(DataFile):
    """What watching, our images and their builds cost, in USD, in one region."""

    region: str
    metric_month: DataFigure[float] = Field(
        description="a custom metric for a month; charged for hours that send it"
    )
    alarm_metric_month: DataFigure[float] = Field(
        description="each metric that an alarm of standard resolution reads"
    )
    composite_alarm_month: DataFigure[float] = Field(description="a composite alarm for a month")
    dashboard_month: DataFigure[float] = Field(description="a dashboard for a month")
    free_dashboards: DataFigure[int] = Field(
        description="dashboards of an account that cost nothing"
    )
    free_dashboard_metrics: DataFigure[int] = Field(
        description="most metrics of a dashboard that costs nothing"
    )
    log_gb_ingested: DataFigure[float] = Field(description="a GB of logs taken in")
    log_gb_month_stored: DataFigure[float] = Field(
        description="a GB of logs kept for a month, as it is stored"
    )
    key_month: DataFigure[float] = Field(description="a KMS key for a month")
    put_requests_thousand: DataFigure[float] = Field(
        description="a thousand PutMetricData requests"
    )
    image_gb_month: DataFigure[float] = Field(
        description="a GB in a private ECR repository, by the month"
    )
    build_minute: DataFigure[float] = Field(
        description="a minute of a CodeBuild build on general1.small, Linux"
    )
