"""Configuration of the add-on amazon-cloudwatch-observability: what its agents watch.

Invariant: a function of the environment's names alone. Another experiment changes nothing here: the
agent finds servers in the cluster by their labels.

Read in aws-observability/helm-charts@71a298ff, chart 6.4.0, the values and templates of the
add-on's v6.4.0. Rendered with Helm 4.2.3 the chart makes both agents as they are here, no
neuron-monitor and no DCGM exporter. They fit its CRD and the agent's own schema (2026-11-21).
Unproven: that the managed add-on's schema admits every key of the chart (`aws eks
describe-addon-configuration` shows it), and all of it in a cluster.
"""

from __future__ import annotations

import re
from typing import Any

from tandem.cloudwatch_metrics import (
    CLOUDWATCH_METRICS,
    PUBLISHERS,
    VLLM_SCRAPE,
    cloudwatch_unit,
    format_namespace,
)
from tandem.declarations import names
from tandem.declarations.environment import Environment

AddonValues = dict[str, Any]

ADDON = "amazon-cloudwatch-observability"
NAMESPACE = "amazon-cloudwatch"
SERVICE_ACCOUNT = "cloudwatch-agent"  # of every agent and of Fluent Bit
NODE_AGENT = "cloudwatch-agent"  # the chart's name of its agent: one pod a node
SCRAPER = "cloudwatch-agent-vllm"
SCRAPE_JOB = "vllm"
# where the add-on's operator puts the content of `prometheus.config` (its collector/configmap.go)
SCRAPE_FILE = "/etc/prometheusconfig/prometheus.yaml"
SERVER_SELECTOR = (
    # charts/serve.py sets these labels
    "app.kubernetes.io/part-of=tandem,app.kubernetes.io/component=server"
)
SCRAPE_INTERVAL_S = 60
FLUSH_INTERVAL_S = 5
NO_UNIT = "None"
ACCELERATOR_NODES = "accelerator_nodes"
_SCRAPED_METRICS = {
    name: metric
    for (publisher, name), metric in CLOUDWATCH_METRICS.items()
    if publisher == VLLM_SCRAPE
}


def build_addon_configuration(environment: Environment) -> AddonValues:
    """Return the add-on's values, for an environment with `observability.container_insights`.

    Parts are off if they cost money and show nothing here, or are unsupported:

    - Application Signals: it puts itself into pods, and the servers are no web applications of its
      kind;
    - OTel Container Insights, with what only it reads (node exporter, kube-state-metrics): a second
      pipeline;
    - enhanced observability: charged by the observation, and no recording of its additions was
      found;
    - the DCGM exporter, as there is no GPU; neuron-monitor, unsupported next to the Neuron DRA
      driver.
    """
    switch_off = {"enabled": False}
    return {
        "containerInsights": {"enabled": True, "targetAgent": NODE_AGENT},
        "containerLogs": {"enabled": True},
        "applicationSignals": switch_off,
        "otelContainerInsights": {"enabled": False, "logs": switch_off},
        "dcgmExporter": switch_off,
        "neuronMonitor": switch_off,
        "kubeStateMetrics": switch_off,
        "nodeExporter": switch_off,
        # the chart's default, repeated here: tainted nodes must be watched
        "tolerations": [{"operator": "Exists"}],
        "agents": _list_agents(environment),
    }


def _list_agents(environment: Environment) -> list[AddonValues]:
    """Return the agent of each node, and one that reads all servers.

    If the agent of each node read the servers, each would read them all and every figure would
    count twice. The reader is not on its node's network, because a network policy that admits a
    namespace does not admit such a pod. It tolerates no taint, so it stays on the system nodes and
    outlives the fleet.
    """
    kubernetes = {"enhanced_container_insights": False, "accelerated_compute_metrics": False}
    return [
        {"name": NODE_AGENT, "config": {"logs": {"metrics_collected": {"kubernetes": kubernetes}}}},
        {
            "name": SCRAPER,
            "mode": "deployment",
            "replicas": 1,
            "hostNetwork": False,
            "tolerations": [],
            "config": _emf_configuration(environment),
            "prometheus": {"config": _scrape_configuration()},
        },
    ]


def _scrape_configuration() -> AddonValues:
    """Return a Prometheus configuration: the servers of every experiment, and the kept figures.

    Every line that it reads and does not drop is written to the log group and costs money there.
    """
    name_pattern = "|".join(re.escape(name.removeprefix("vllm:")) for name in _SCRAPED_METRICS)
    keep_rules = [
        {"action": "keep", "source_labels": [label], "regex": regex}
        for label, regex in (
            ("__meta_kubernetes_namespace", "tandem-.+"),
            ("__meta_kubernetes_pod_container_port_number", str(names.SERVER_PORT)),
            ("__meta_kubernetes_pod_phase", "Running"),
            ("__name__", f"vllm:({name_pattern})"),
        )
    ]
    copy_rules = [
        {"action": "replace", "source_labels": [label], "target_label": target_label}
        for label, target_label in (
            ("__meta_kubernetes_namespace", "Namespace"),
            ("__meta_kubernetes_pod_label_app_kubernetes_io_name", "Service"),
        )
    ]
    scrape = {
        "job_name": SCRAPE_JOB,
        "metrics_path": "/metrics",
        "sample_limit": 10000,
        "kubernetes_sd_configs": [
            {"role": "pod", "selectors": [{"role": "pod", "label": SERVER_SELECTOR}]}
        ],
        "relabel_configs": [*keep_rules[:-1], *copy_rules],
        "metric_relabel_configs": keep_rules[-1:],
    }
    return {
        "global": {"scrape_interval": f"{SCRAPE_INTERVAL_S}s", "scrape_timeout": "10s"},
        "scrape_configs": [scrape],
    }


def _emf_configuration(environment: Environment) -> AddonValues:
    """Return the rules that turn scraped lines into CloudWatch metrics."""
    units = {name: cloudwatch_unit(metric) for name, metric in _SCRAPED_METRICS.items()}
    cluster = names.cluster_name(environment)
    declaration = {
        "source_labels": ["job"],
        "label_matcher": f"^{SCRAPE_JOB}$",
        "dimensions": [list(dimensions) for dimensions in PUBLISHERS[VLLM_SCRAPE].dimensions],
        "metric_selectors": [f"^{re.escape(name)}$" for name in _SCRAPED_METRICS],
    }
    prometheus = {
        "cluster_name": cluster,
        "log_group_name": names.container_log_group_name(environment, "prometheus"),
        "prometheus_config_path": SCRAPE_FILE,
        "emf_processor": {
            "metric_namespace": format_namespace(VLLM_SCRAPE, environment.name, cluster),
            "metric_unit": {name: unit for name, unit in units.items() if unit != NO_UNIT},
            "metric_declaration": [declaration],
        },
    }
    return {
        # the chart adds this only to its own configurations
        "agent": {"region": environment.region},
        "logs": {
            "metrics_collected": {"prometheus": prometheus},
            "force_flush_interval": FLUSH_INTERVAL_S,
        },
    }


def build_node_pattern(environment: Environment) -> str:
    """Return the metric filter of `accelerator_nodes`: the agent's events of type Node.

    Events of the system nodes keep the log group active, so that 0 is reported while no accelerator
    node lives. The filter misses nodes whose agent is dead, and nodes that have not joined the
    cluster; EC2 bills both.
    """
    return f'{{ ($.Type = "Node") && ($.InstanceType = "{environment.capacity.instance_type}") }}'
