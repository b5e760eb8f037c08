"""What watching an environment costs in a month, computed from what is published, drawn, alarmed on and logged.

Invariant: an upper bound. CloudWatch charges a metric for the hours in which it is sent; figures of a run are sent
while accelerator nodes live, and those live no longer than the guard's monthly budget buys. Every variant counts as
measured in each of these hours, though variants take turns. What is not known is estimated high, and named here.

Not in it: storage and requests of the bucket, notifications, queries of logs, the load of the system nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tandem.metrics import ALL_LOADS, CLOUDWATCH_METRICS, GUARD, LOG_FILTER, VLLM_SCRAPE, list_published_metrics
from tandem.monitoring.agent import build_log_filters
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.dashboards import build_dashboards
from tandem.monitoring.guard_alarms import build_guard_alarms
from tandem.monitoring.scope import ExperimentScope, MonitoringScope
from tandem.monitoring.widget import Dashboard, GraphWidget, MathExpression, MetricLine
from tandem.spec.catalogue import load_catalogue
from tandem.spec.environment import Environment
from tandem.spec.platform import WatchPrices

HOURS_PER_MONTH = 730.0  # as AWS's own price examples count
DAYS_PER_MONTH = 30.0
BYTES_PER_GB = 1e9

# Series that Container Insights makes, from what tests/monitoring/samples/container-insights.json declares:
SERIES_PER_NODE = 8  # by NodeName and InstanceId
SERIES_PER_CLUSTER = 24  # by ClusterName alone
SERIES_PER_NAMESPACE = 7
SERIES_PER_SERVICE = 7
SERIES_PER_WORKLOAD = 9  # by PodName, the name of the Deployment or DaemonSet
# What runs beside the servers: kube-system, amazon-cloudwatch, the DRA driver's; DNS, the add-on's own; the add-ons'
# Deployments and DaemonSets, four of them the watch's.
NAMESPACES, SERVICES, WORKLOADS = 3, 5, 12

# Estimates, high: the agent writes some 60 events of about 1 kB a minute for a node, Fluent Bit less for its logs;
# a server logs a line or two a second under load, and its scraped page is a few events a minute.
NODE_LOG_BYTES_PER_HOUR = 6e6
SERVER_LOG_BYTES_PER_HOUR = 4e6
DATA_PER_REQUEST = 100  # of 1,000 that PutMetricData takes: many values make large data


CostRow = tuple[str, str, float, str]
"""What is paid for, the field of WatchPrices, the amount in the unit of the price, and how it comes about."""


@dataclass(frozen=True, slots=True)
class CostPart:
    """One row of the cost.

    Args:
        name: what is paid for.
        explanation: how its amount comes about.
        price: field of WatchPrices.
        amount: in the unit of the price.
        usd: amount at that price.
    """

    name: str
    explanation: str
    price: str
    amount: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringCost:
    """What watching costs in a month, at most.

    Args:
        parts: every row, none of them negative.
        hours: of a month in which the fleet may live.
        whole_month_usd: the total if it lived the whole month.
        parked_usd: the total if it lived no hour of it.
        region: whose prices these are.
        unverified_parts: names of the parts whose price is not from a text of AWS itself.
    """

    parts: tuple[CostPart, ...]
    hours: float
    whole_month_usd: float
    parked_usd: float
    region: str
    unverified_parts: tuple[str, ...]

    @property
    def usd(self) -> float:
        """The total."""
        return sum(part.usd for part in self.parts)


def compute_monitoring_cost(scope: MonitoringScope, prices: WatchPrices | None = None) -> MonitoringCost:
    """Return what watching costs in a month.

    Args:
        scope: environment, experiments and their traffic.
        prices: None takes the dated data of tandem/spec/data/platform/watch-prices.yaml.
    """
    watch_prices = prices or load_catalogue().watch_prices
    hours = compute_fleet_hours(scope.environment)
    display_rows = list(_list_display_rows(scope, watch_prices))  # whatever the hours; they are dear to draw

    def price_parts(fleet_hours: float) -> tuple[CostPart, ...]:
        return tuple(
            CostPart(name, explanation, price, amount, amount * getattr(watch_prices, price).value)
            for name, price, amount, explanation in _list_rows(scope, fleet_hours, display_rows)
        )

    parts = price_parts(hours)
    return MonitoringCost(
        parts=parts,
        hours=hours,
        whole_month_usd=sum(part.usd for part in price_parts(HOURS_PER_MONTH)),
        parked_usd=sum(part.usd for part in price_parts(0.0)),
        region=watch_prices.region,
        unverified_parts=tuple(part.name for part in parts if watch_prices.is_unverified(part.price)),
    )


def compute_fleet_hours(environment: Environment) -> float:
    """Return the hours of a month that the guard's budget buys of all nodes, at least one, at most all."""
    hourly = environment.capacity.nodes * environment.capacity.usd_per_hour
    budget_hours = environment.guard.budget_usd / hourly if hourly else HOURS_PER_MONTH
    return min(max(budget_hours, 1.0), HOURS_PER_MONTH)


def count_bench_series(experiment_scope: ExperimentScope) -> int:
    """Return how many series the bench publishes of an experiment, when every class ran at every concurrency.

    Each figure by class (and all of them) and concurrency, then those of all loads.
    """
    cells = (len(experiment_scope.traffic.classes) + 1) * len(experiment_scope.traffic.concurrencies)
    count = 0
    for variant in experiment_scope.experiment.all_variants():
        names = {metric.name for metric in list_published_metrics()}
        if variant.mode == "none":
            names -= {"acceptance_length"}
        count += len(names - {"unpublished_rounds"}) * cells + len(names & set(ALL_LOADS))
    return count


def _list_rows(scope: MonitoringScope, hours: float, display_rows: Iterable[CostRow]) -> Iterator[CostRow]:
    """Yield what watching costs while the fleet lives so many hours of a month."""
    series = sum(count_bench_series(member) for member in scope.experiments)
    variants = sum(len(member.experiment.all_variants()) for member in scope.experiments)
    has_insights, share = scope.environment.observability.container_insights, hours / HOURS_PER_MONTH
    guard_series, server_series = (
        sum(publisher == sender for publisher, _ in CLOUDWATCH_METRICS) for sender in (GUARD, VLLM_SCRAPE)
    )
    bench_text = f"{series} series of {variants} variants, for {hours:.1f} of {HOURS_PER_MONTH:.0f} hours"
    yield "metrics of the bench", "metric_month", series * share, bench_text
    yield f"metrics of the {GUARD}", "metric_month", guard_series, f"{guard_series} series always"
    if has_insights:
        constant_series, fleet_series = _count_insights_series(scope, variants)
        insights_text = f"{constant_series} series always, {fleet_series} more while the fleet lives"
        yield "metrics of Container Insights", "metric_month", constant_series + fleet_series * share, insights_text
        server_series *= variants
        server_text = f"{server_series} series while the fleet lives"
        yield "metrics of the servers", "metric_month", server_series * share, server_text
        filter_series = len(build_log_filters(scope.environment))
        yield f"metrics of the {LOG_FILTER}", "metric_month", filter_series, f"{filter_series} series always"
    yield from display_rows
    if has_insights:
        yield from _list_log_rows(scope.environment, hours, variants)
    request_text = f"at most a datum a minute of each series, {DATA_PER_REQUEST} a request"
    requests = series * 60 * hours / DATA_PER_REQUEST / 1000
    yield "requests of the publisher", "put_requests_thousand", requests, request_text
    key_text = f"{1 + has_insights}; as much again after each of the first two rotations"
    yield "keys of logs and alarms", "key_month", 1 + has_insights, key_text


def _list_log_rows(environment: Environment, hours: float, variants: int) -> Iterator[CostRow]:
    node_hours = environment.cluster.system_nodes.count * HOURS_PER_MONTH + environment.capacity.nodes * hours
    ingest_gb = (node_hours * NODE_LOG_BYTES_PER_HOUR + variants * hours * SERVER_LOG_BYTES_PER_HOUR) / BYTES_PER_GB
    retention_days = environment.log_retention_days
    storage_gb = ingest_gb * retention_days / DAYS_PER_MONTH
    ingest_text = (
        f"{ingest_gb:.1f} GB, estimated: {NODE_LOG_BYTES_PER_HOUR / 1e6:.0f} MB an hour of a node, "
        f"{SERVER_LOG_BYTES_PER_HOUR / 1e6:.0f} of a server"
    )
    storage_text = f"{storage_gb:.1f} GB, those of {retention_days} days, as if stored uncompressed"
    yield "logs taken in", "log_gb_ingested", ingest_gb, ingest_text
    yield "logs kept", "log_gb_month_stored", storage_gb, storage_text


def _count_insights_series(scope: MonitoringScope, variants: int) -> tuple[int, int]:
    """Return (series that are always sent, series more while the fleet lives)."""
    environment = scope.environment
    constant_counts = (
        (SERIES_PER_CLUSTER, 1),
        (SERIES_PER_NODE, environment.cluster.system_nodes.count),
        (SERIES_PER_NAMESPACE, NAMESPACES),
        (SERIES_PER_SERVICE, SERVICES),
        (SERIES_PER_WORKLOAD, WORKLOADS),
    )
    fleet_series = SERIES_PER_NODE * environment.capacity.nodes + SERIES_PER_NAMESPACE * len(scope.experiments)
    server_series = (SERIES_PER_SERVICE + SERIES_PER_WORKLOAD) * variants
    return sum(series * count for series, count in constant_counts), fleet_series + server_series


def _list_display_rows(scope: MonitoringScope, prices: WatchPrices) -> Iterator[CostRow]:
    """Yield what dashboards and alarms cost."""
    dashboards, free_metrics = build_dashboards(scope), prices.free_dashboard_metrics.value
    small_count = sum(_count_dashboard_metrics(dashboard) <= free_metrics for dashboard in dashboards)
    free_count = min(small_count, prices.free_dashboards.value)
    dashboard_text = (
        f"{len(dashboards)}, {free_count} of them free (an account has {prices.free_dashboards.value} of up to "
        f"{free_metrics} metrics)"
    )
    yield "dashboards", "dashboard_month", len(dashboards) - free_count, dashboard_text
    sets = (build_alarms(scope), build_guard_alarms(scope.environment))
    alarms = [alarm for alarm_set in sets for alarm in (*alarm_set.alarms, alarm_set.suppressor) if alarm]
    metric_count = sum(len(_collect_metrics(alarm.lines)) for alarm in alarms)
    yield "alarms", "alarm_metric_month", metric_count, f"{len(alarms)}, which read {metric_count} metrics"
    composite_count = sum(len(alarm_set.composites) for alarm_set in sets)
    yield "composite alarms", "composite_alarm_month", composite_count, str(composite_count)


def _count_dashboard_metrics(dashboard: Dashboard) -> int:
    """Count the metrics that a dashboard names; a SEARCH counts as one, whatever it finds."""
    lines = [line for widget in dashboard.widgets if isinstance(widget, GraphWidget) for line in widget.lines]
    search_texts = {line.text for line in lines if isinstance(line, MathExpression) and "SEARCH(" in line.text}
    return len(_collect_metrics(lines)) + len(search_texts)


def _collect_metrics(lines: Iterable[MetricLine | MathExpression]) -> set[tuple[object, ...]]:
    return {(line.namespace, line.metric, line.dimensions) for line in lines if isinstance(line, MetricLine)}
