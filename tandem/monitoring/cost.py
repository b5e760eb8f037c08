"""Monthly cost of watching an environment, computed from its metrics, dashboards, alarms and logs.

Invariant: an upper bound. CloudWatch charges a metric for the hours in which it is sent. Figures of
a run are sent while accelerator nodes live, and those live no longer than the guard's monthly
budget buys. Every variant counts as measured in each of these hours, although variants take turns.
Unknown amounts are estimated high, and named here.

Not included: storage and requests of the bucket, notifications, queries of logs, the load of the
system nodes, and the classes of a suite that states none. Logs of the control plane are part of the
parked cost (standing_cost).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tandem.cloudwatch_metrics import ALL_LOADS, CLOUDWATCH_METRICS, GUARD, LOG_FILTER, VLLM_SCRAPE
from tandem.declarations.budgets import compute_budget_usd
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.platform import WatchPrices
from tandem.declarations.prices import find_price
from tandem.metrics import list_published_metrics
from tandem.monitoring.alarm import MetricAlarm
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.dashboards import build_dashboards
from tandem.monitoring.guard_alarms import build_guard_alarms
from tandem.monitoring.scope import ExperimentScope, MonitoringScope
from tandem.monitoring.widget import Dashboard, GraphWidget, MathExpression, MetricLine

HOURS_PER_MONTH = 730.0  # as in AWS's price examples
DAYS_PER_MONTH = 30.0
BYTES_PER_GB = 1e9

# Series that Container Insights makes, by the declarations of
# tests/monitoring/samples/container-insights.json:
SERIES_PER_NODE = 8  # by NodeName and InstanceId
SERIES_PER_CLUSTER = 24  # by ClusterName alone
SERIES_PER_NAMESPACE = 7
SERIES_PER_SERVICE = 7
SERIES_PER_WORKLOAD = 9  # by PodName, the name of the Deployment or DaemonSet
# Pods next to the servers: kube-system, amazon-cloudwatch, the DRA driver's; DNS, the add-on's own;
# the add-ons' Deployments and DaemonSets, four of them for monitoring.
NAMESPACES = 3
SERVICES = 5
WORKLOADS = 12

# Estimates, high: the agent writes some 60 events of about 1 kB a minute for a node, Fluent Bit
# less for its logs. A server logs a line or two a second under load, and its scraped page is a few
# events a minute.
NODE_LOG_BYTES_PER_HOUR = 6e6
SERVER_LOG_BYTES_PER_HOUR = 4e6
DATA_PER_REQUEST = 100  # of 1,000 that PutMetricData accepts: many values make large data


CostRow = tuple[str, str, float, float, str]
"""What is paid for, the field of WatchPrices, the amount of a month while parked, its increase if
the fleet lives the whole month, both in the unit of the price, and how the amount is computed."""


@dataclass(frozen=True)
class CostPart:
    """One row of the cost.

    Args:
        name: of the paid item.
        explanation: how its amount is computed.
        price: field of WatchPrices.
        is_verified: whether the price is from AWS's own text, or the operator's own.
        amount: in the unit of the price.
        usd: at that price.
    """

    name: str
    explanation: str
    price: str
    is_verified: bool
    amount: float
    usd: float


@dataclass(frozen=True, kw_only=True)
class MonitoringCost:
    """Monthly cost of watching, at most.

    Args:
        scope: of the watching.
        parts: every row, none of them negative.
        hours: of the fleet in a month, at most.
        region: of the prices.
        usd, parked_usd, whole_month_usd: the total; with no hour of the fleet; with the fleet alive
            all month.
    """

    scope: MonitoringScope
    parts: tuple[CostPart, ...]
    hours: float
    region: str
    usd: float
    parked_usd: float
    whole_month_usd: float


def compute_monitoring_cost(scope: MonitoringScope) -> MonitoringCost:
    """Return the monthly cost of watching, by the dated watch-prices.yaml."""
    catalogue = load_catalogue()
    hours = compute_fleet_hours(scope.environment)
    prices = catalogue.watch_prices
    parts = []
    parked_usd = 0.0
    fleet_usd = 0.0
    for name, price, parked_amount, fleet_amount, explanation in _list_rows(
        scope, prices, hours / HOURS_PER_MONTH
    ):
        unit = find_price(scope.environment, catalogue, price)
        assert unit.usd is not None, "the data has every price of watching"
        amount = parked_amount + fleet_amount * hours / HOURS_PER_MONTH
        parts.append(
            CostPart(name, explanation, price, unit.is_verified, amount, unit.usd * amount)
        )
        parked_usd += unit.usd * parked_amount
        fleet_usd += unit.usd * fleet_amount
    return MonitoringCost(
        scope=scope,
        parts=tuple(parts),
        hours=hours,
        region=prices.region,
        usd=sum(part.usd for part in parts),
        parked_usd=parked_usd,
        whole_month_usd=parked_usd + fleet_usd,
    )


def compute_fleet_hours(environment: Environment) -> float:
    """Return the node hours that the guard's budget buys in a month, at least one, at most all."""
    hourly = environment.capacity.nodes * environment.capacity.usd_per_hour
    budget_hours = compute_budget_usd(environment) / hourly if hourly else HOURS_PER_MONTH
    return min(max(budget_hours, 1.0), HOURS_PER_MONTH)


def count_bench_series(experiment_scope: ExperimentScope) -> int:
    """Return how many series the bench publishes of an experiment, all classes at all loads.

    Each figure by class (and all of them) and concurrency, then the figures over all loads.
    """
    cells = (len(experiment_scope.classes) + 1) * len(experiment_scope.concurrencies)
    count = 0
    for variant in experiment_scope.experiment.all_variants():
        names = {
            metric.name
            for metric in list_published_metrics()
            if variant.mode != "none" or not metric.needs_speculation
        }
        count += len(names - {"unpublished_rounds"}) * cells + len(names & set(ALL_LOADS))
    return count


def _list_rows(scope: MonitoringScope, prices: WatchPrices, share: float) -> Iterator[CostRow]:
    """Yield the cost of watching while the fleet lives a share of a month."""
    series = sum(count_bench_series(member) for member in scope.experiments)
    variants = sum(len(member.experiment.all_variants()) for member in scope.experiments)
    has_insights = scope.environment.observability.container_insights
    publishers = [publisher for publisher, _ in CLOUDWATCH_METRICS]
    guard_series = publishers.count(GUARD)
    hours_text = f"for {share * HOURS_PER_MONTH:.1f} of {HOURS_PER_MONTH:.0f} hours"
    bench_text = f"{series} series of {variants} variants, {hours_text}"
    unstated = [name for member in scope.experiments for name in member.unstated_suites]
    if unstated:
        bench_text += (
            f"; more for each class of {', '.join(unstated)}, whose classes are not stated"
        )
    yield "metrics of the bench", "metric_month", 0, series, bench_text
    yield (
        f"metrics of the {GUARD}",
        "metric_month",
        guard_series,
        0,
        f"{guard_series} series always",
    )
    if has_insights:
        constant_series, fleet_series = _count_insights_series(scope, variants)
        insights_text = (
            f"{constant_series} series always, {fleet_series} more while the fleet lives"
        )
        yield (
            "metrics of Container Insights",
            "metric_month",
            constant_series,
            fleet_series,
            insights_text,
        )
        server_series = publishers.count(VLLM_SCRAPE) * variants
        server_text = f"{server_series} series while the fleet lives"
        yield "metrics of the servers", "metric_month", 0, server_series, server_text
        yield f"metrics of the {LOG_FILTER}", "metric_month", 1, 0, "1 series always"
    yield from _list_display_rows(scope, prices)
    if has_insights:
        yield from _list_log_rows(scope.environment, share, variants)
    request_text = f"at most a datum a minute of each series, {DATA_PER_REQUEST} a request"
    requests = series * 60 * HOURS_PER_MONTH / DATA_PER_REQUEST / 1000
    yield "requests of the publisher", "put_requests_thousand", 0, requests, request_text
    key_text = f"{1 + has_insights}; as much again after each of the first two rotations"
    yield "keys of logs and alarms", "key_month", 1 + has_insights, 0, key_text


def _list_log_rows(environment: Environment, share: float, variants: int) -> Iterator[CostRow]:
    """Yield the cost of logs: system nodes' always, accelerators' and servers' while they live."""
    node_gb, server_gb = (
        HOURS_PER_MONTH * byte_count / BYTES_PER_GB
        for byte_count in (NODE_LOG_BYTES_PER_HOUR, SERVER_LOG_BYTES_PER_HOUR)
    )
    parked_gb = environment.cluster.system_nodes.count * node_gb
    fleet_gb = environment.capacity.nodes * node_gb + variants * server_gb
    ingest_gb = parked_gb + fleet_gb * share
    retention_months = environment.log_retention_days / DAYS_PER_MONTH
    ingest_text = (
        f"{ingest_gb:.1f} GB, estimated: {NODE_LOG_BYTES_PER_HOUR / 1e6:.0f} MB an hour of a node, "
        f"{SERVER_LOG_BYTES_PER_HOUR / 1e6:.0f} of a server"
    )
    days_text = f"those of {environment.log_retention_days} days, as if stored uncompressed"
    storage_text = f"{ingest_gb * retention_months:.1f} GB, {days_text}"
    yield "logs taken in", "log_gb_ingested", parked_gb, fleet_gb, ingest_text
    yield (
        "logs kept",
        "log_gb_month_stored",
        parked_gb * retention_months,
        fleet_gb * retention_months,
        storage_text,
    )


def _count_insights_series(scope: MonitoringScope, variants: int) -> tuple[int, int]:
    """Return (series that are always sent, further series while the fleet lives)."""
    environment = scope.environment
    constant_counts = (
        (SERIES_PER_CLUSTER, 1),
        (SERIES_PER_NODE, environment.cluster.system_nodes.count),
        (SERIES_PER_NAMESPACE, NAMESPACES),
        (SERIES_PER_SERVICE, SERVICES),
        (SERIES_PER_WORKLOAD, WORKLOADS),
    )
    fleet_series = SERIES_PER_NODE * environment.capacity.nodes + SERIES_PER_NAMESPACE * len(
        scope.experiments
    )
    server_series = (SERIES_PER_SERVICE + SERIES_PER_WORKLOAD) * variants
    return sum(series * count for series, count in constant_counts), fleet_series + server_series


def _list_display_rows(scope: MonitoringScope, prices: WatchPrices) -> Iterator[CostRow]:
    """Yield the cost of dashboards and alarms."""
    dashboards = build_dashboards(scope)
    free_metrics = prices.free_dashboard_metrics.value
    small_count = sum(
        _count_dashboard_metrics(dashboard) <= free_metrics for dashboard in dashboards
    )
    free_count = min(small_count, prices.free_dashboards.value)
    dashboard_text = (
        f"{len(dashboards)}, {free_count} of them free (an account has"
        f" {prices.free_dashboards.value} of up to {free_metrics} metrics)"
    )
    yield "dashboards", "dashboard_month", len(dashboards) - free_count, 0, dashboard_text
    sets = (build_alarms(scope), build_guard_alarms(scope.environment))
    alarms: list[MetricAlarm] = []
    for alarm_set in sets:
        alarms += alarm_set.alarms
        alarms += [alarm_set.suppressor] if alarm_set.suppressor else []
    metric_count = sum(len(_collect_metrics(alarm.lines)) for alarm in alarms)
    yield (
        "alarms",
        "alarm_metric_month",
        metric_count,
        0,
        f"{len(alarms)}, which read {metric_count} metrics",
    )
    composite_count = sum(len(alarm_set.composites) for alarm_set in sets)
    yield "composite alarms", "composite_alarm_month", composite_count, 0, str(composite_count)


def _count_dashboard_metrics(dashboard: Dashboard) -> int:
    """Return how many metrics a dashboard names; a SEARCH counts as one, however many it finds."""
    lines: list[MetricLine | MathExpression] = []
    for widget in dashboard.widgets:
        lines += widget.lines if isinstance(widget, GraphWidget) else ()
    search_texts = {
        line.text for line in lines if isinstance(line, MathExpression) and "SEARCH(" in line.text
    }
    return len(_collect_metrics(lines)) + len(search_texts)


def _collect_metrics(lines: Iterable[MetricLine | MathExpression]) -> set[tuple[object, ...]]:
    return {
        (line.namespace, line.metric, line.dimensions)
        for line in lines
        if isinstance(line, MetricLine)
    }
