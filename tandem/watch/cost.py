"""What watching an environment costs in a month, computed from what is published, drawn, alarmed on and logged.

Invariant: an upper bound. CloudWatch charges a metric for the hours in which it is sent; figures of a run are sent
while accelerator nodes live, and those live no longer than the guard's monthly budget buys. Every variant counts as
measured in each of these hours, though variants take turns. What is not known is estimated high, and named here.

Not in it: storage and requests of the bucket, notifications, queries of logs, the load of the system nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tandem.metrics import ALL_LOADS, GUARD, LOG_FILTER, VLLM_SCRAPE, WATCHED, published
from tandem.spec.catalogue import catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Variant
from tandem.spec.platform import WatchPrices
from tandem.watch.alarm import Alarm
from tandem.watch.alarms import alarms
from tandem.watch.dashboards import dashboards
from tandem.watch.filters import filters
from tandem.watch.guard_alarms import guard_alarms
from tandem.watch.scope import Scope, Traffic, Watching
from tandem.watch.widget import Dashboard, Expression, Graph, Line

HOURS_OF_A_MONTH = 730.0  # as AWS's own price examples count
DAYS_OF_A_MONTH = 30.0
GB = 1e9

# Series that Container Insights makes, from what tests/watch/samples/container-insights.json declares:
PER_NODE = 8  # by NodeName and InstanceId
PER_CLUSTER = 24  # by ClusterName alone
PER_NAMESPACE = 7
PER_SERVICE = 7
PER_WORKLOAD = 9  # by PodName, the name of the Deployment or DaemonSet
# What runs beside the servers: kube-system, amazon-cloudwatch, the DRA driver's; DNS, the add-on's own; the add-ons'
# Deployments and DaemonSets, four of them the watch's.
NAMESPACES, SERVICES, WORKLOADS = 3, 5, 12

# Estimates, high: the agent writes some 60 events of about 1 kB a minute for a node, Fluent Bit less for its logs;
# a server logs a line or two a second under load, and its scraped page is a few events a minute.
NODE_LOG_BYTES_PER_HOUR = 6e6
SERVER_LOG_BYTES_PER_HOUR = 4e6
DATA_PER_REQUEST = 100  # of 1,000 that PutMetricData takes: many values make large data


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One row of the cost.

    Args:
        name: what is paid for.
        says: how its amount comes about.
        price: field of WatchPrices.
        amount: in the unit of the price.
        usd: amount at that price.
    """

    name: str
    says: str
    price: str
    amount: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What watching costs in a month, at most.

    Args:
        parts: every row, none of them negative.
        hours: of a month in which the fleet may live.
        whole_month_usd: the total if it lived the whole month.
        parked_usd: the total if it lived no hour of it.
        region: whose prices these are.
        unverified: names of the parts whose price is not from a text of AWS itself.
    """

    parts: tuple[Part, ...]
    hours: float
    whole_month_usd: float
    parked_usd: float
    region: str
    unverified: tuple[str, ...]

    @property
    def usd(self) -> float:
        """The total."""
        return sum(part.usd for part in self.parts)


def cost(scope: Scope, prices: WatchPrices | None = None) -> Cost:
    """Return what watching costs in a month.

    Args:
        scope: environment, experiments and their traffic.
        prices: None takes the dated data of tandem/spec/data/platform/watch-prices.yaml.
    """
    asked = prices or catalogue().watch_prices
    hours = fleet_hours(scope.environment)
    pictures = tuple(_pictures(scope, asked))  # whatever the hours; they are dear to draw
    parts = tuple(_parts(scope, asked, hours, pictures))
    return Cost(
        parts=parts,
        hours=hours,
        whole_month_usd=sum(part.usd for part in _parts(scope, asked, HOURS_OF_A_MONTH, pictures)),
        parked_usd=sum(part.usd for part in _parts(scope, asked, 0.0, pictures)),
        region=asked.region,
        unverified=tuple(part.name for part in parts if asked.unverified(part.price)),
    )


def fleet_hours(environment: Environment) -> float:
    """Return the hours of a month that the guard's budget buys of all nodes, at least one, at most all."""
    hourly = environment.capacity.nodes * environment.capacity.usd_per_hour
    bought = environment.guard.budget_usd / hourly if hourly else HOURS_OF_A_MONTH
    return min(max(bought, 1.0), HOURS_OF_A_MONTH)


def bench_series(watching: Watching) -> int:
    """Return how many series the bench publishes of an experiment, when every class ran at every concurrency."""
    return sum(_series_of(variant, watching.traffic) for variant in watching.experiment.all_variants())


def _series_of(variant: Variant, traffic: Traffic) -> int:
    """Count one variant's: each figure by class (and all of them) and concurrency, then those of all loads."""
    names = {metric.name for metric in published()}
    if variant.mode == "none":
        names -= {"acceptance_length"}
    in_cells = names - {"unpublished_rounds"}
    cells = (len(traffic.classes) + 1) * len(traffic.concurrencies)
    return len(in_cells) * cells + len(names & set(ALL_LOADS))


def _parts(scope: Scope, prices: WatchPrices, hours: float, pictures: Iterable[Part]) -> Iterator[Part]:
    yield from (*_metrics(scope, prices, hours), *pictures, *_logs(scope, prices, hours))
    series = sum(bench_series(watching) for watching in scope.experiments)
    yield _part(
        prices, "requests of the publisher", "put_requests_thousand", series * 60 * hours / DATA_PER_REQUEST / 1000,
        f"at most a datum a minute of each series, {DATA_PER_REQUEST} a request",
    )  # fmt: skip
    keys = 1 + scope.environment.observability.container_insights
    yield _part(
        prices, "keys of logs and alarms", "key_month", keys,
        f"{keys}; as much again after each of the first two rotations",
    )  # fmt: skip


def _metrics(scope: Scope, prices: WatchPrices, hours: float) -> Iterator[Part]:
    share = hours / HOURS_OF_A_MONTH
    series = sum(bench_series(watching) for watching in scope.experiments)
    variants = sum(len(watching.experiment.all_variants()) for watching in scope.experiments)
    yield _part(
        prices, "metrics of the bench", "metric_month", series * share,
        f"{series} series of {variants} variants, for {hours:.1f} of {HOURS_OF_A_MONTH:.0f} hours",
    )  # fmt: skip
    looked = sum(publisher == GUARD for publisher, _ in WATCHED)
    yield _part(prices, f"metrics of the {GUARD}", "metric_month", looked, f"{looked} series always")
    if not scope.environment.observability.container_insights:
        return
    always, with_fleet = _insights_series(scope)
    yield _part(
        prices, "metrics of Container Insights", "metric_month", always + with_fleet * share,
        f"{always} series always, {with_fleet} more while the fleet lives",
    )  # fmt: skip
    scraped = variants * sum(publisher == VLLM_SCRAPE for publisher, _ in WATCHED)
    yield _part(
        prices, "metrics of the servers", "metric_month", scraped * share, f"{scraped} series while the fleet lives"
    )
    counted = len(filters(scope.environment))
    yield _part(prices, f"metrics of the {LOG_FILTER}", "metric_month", counted, f"{counted} series always")


def _insights_series(scope: Scope) -> tuple[int, int]:
    """Return (series that are always sent, series more while the fleet lives)."""
    environment = scope.environment
    variants = sum(len(watching.experiment.all_variants()) for watching in scope.experiments)
    always = (
        PER_CLUSTER
        + PER_NODE * environment.cluster.system_nodes.count
        + PER_NAMESPACE * NAMESPACES
        + PER_SERVICE * SERVICES
        + PER_WORKLOAD * WORKLOADS
    )
    with_fleet = (
        PER_NODE * environment.capacity.nodes
        + PER_NAMESPACE * len(scope.experiments)
        + (PER_SERVICE + PER_WORKLOAD) * variants
    )
    return always, with_fleet


def _pictures(scope: Scope, prices: WatchPrices) -> Iterator[Part]:
    drawn = dashboards(scope)
    small = sum(_metrics_of(each) <= prices.free_dashboard_metrics.value for each in drawn)
    free = min(small, prices.free_dashboards.value)
    yield _part(
        prices, "dashboards", "dashboard_month", len(drawn) - free,
        f"{len(drawn)}, {free} of them free (an account has {prices.free_dashboards.value} of up to "
        f"{prices.free_dashboard_metrics.value} metrics)",
    )  # fmt: skip
    found, guarding = alarms(scope), guard_alarms(scope.environment)
    watched: list[Alarm] = [*found.alarms, *([found.parked] if found.parked else []), *guarding.alarms]
    read = sum(len(_lines(alarm.lines)) for alarm in watched)
    yield _part(prices, "alarms", "alarm_metric_month", read, f"{len(watched)}, which read {read} metrics")
    composites = len(found.composites) + len(guarding.composites)
    yield _part(prices, "composite alarms", "composite_alarm_month", composites, str(composites))


def _metrics_of(dashboard: Dashboard) -> int:
    """Count the metrics that a dashboard names; a SEARCH counts as one, whatever it finds."""
    lines = [line for widget in dashboard.widgets if isinstance(widget, Graph) for line in widget.lines]
    searched = {line.text for line in lines if isinstance(line, Expression) and "SEARCH(" in line.text}
    return len(_lines(lines)) + len(searched)


def _lines(lines: Iterable[Line | Expression]) -> set[tuple[object, ...]]:
    return {(line.namespace, line.metric, line.dimensions) for line in lines if isinstance(line, Line)}


def _logs(scope: Scope, prices: WatchPrices, hours: float) -> Iterator[Part]:
    environment = scope.environment
    if not environment.observability.container_insights:
        return
    variants = sum(len(watching.experiment.all_variants()) for watching in scope.experiments)
    node_hours = environment.cluster.system_nodes.count * HOURS_OF_A_MONTH + environment.capacity.nodes * hours
    taken = (node_hours * NODE_LOG_BYTES_PER_HOUR + variants * hours * SERVER_LOG_BYTES_PER_HOUR) / GB
    kept = taken * environment.log_retention_days / DAYS_OF_A_MONTH
    yield _part(
        prices, "logs taken in", "log_gb_ingested", taken,
        f"{taken:.1f} GB, estimated: {NODE_LOG_BYTES_PER_HOUR / 1e6:.0f} MB an hour of a node, "
        f"{SERVER_LOG_BYTES_PER_HOUR / 1e6:.0f} of a server",
    )  # fmt: skip
    yield _part(
        prices, "logs kept", "log_gb_month_stored", kept,
        f"{kept:.1f} GB, those of {environment.log_retention_days} days, as if stored uncompressed",
    )  # fmt: skip


def _part(prices: WatchPrices, name: str, price: str, amount: float, says: str) -> Part:
    each: float = getattr(prices, price).value
    return Part(name=name, says=says, price=price, amount=amount, usd=amount * each)
