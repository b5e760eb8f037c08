"""The dashboard of the machine: nodes, whether each arm's server is ready, and what each server says of itself.

Invariant: what has no recorded sample, or is switched off, is said in words and not drawn.
"""

from __future__ import annotations

from dataclasses import replace

from tandem.metrics import CONTAINER_INSIGHTS, NEURON, PUBLISHERS, VLLM_SCRAPE, namespace
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.watch.compared import PERIOD_S, Arms
from tandem.watch.figure import Figure
from tandem.watch.layout import text
from tandem.watch.scope import Scope
from tandem.watch.servers import servers
from tandem.watch.source import Cell
from tandem.watch.widget import Dashboard, Expression, Graph, Text, found

_OF_EACH_NODE = (
    Figure(
        metric="node_cpu_utilization",
        publisher=CONTAINER_INSIGHTS,
        title="CPU of each node",
        says="Share of a node's processors in use. High on an accelerator node in a run: the host slows both arms, and "
        "TPOT is not the chip's alone. Says nothing of NeuronCores.",
        statistic="Average",
    ),
    Figure(
        metric="node_memory_utilization",
        publisher=CONTAINER_INSIGHTS,
        title="Memory of each node",
        says="Working set, of a node's memory. Loading weights raises it for a while. The accelerators' own memory is "
        "not in it.",
        statistic="Maximum",
    ),
    Figure(
        metric="node_filesystem_utilization",
        publisher=CONTAINER_INSIGHTS,
        title="Disk of each node",
        says="Fullest filesystem of a node; its local disks are one. A compile fails when it is full. Local disks are "
        "empty again on a new node.",
        statistic="Maximum",
    ),
    Figure(
        metric="node_network_total_bytes",
        publisher=CONTAINER_INSIGHTS,
        title="Network of each node",
        says="Bytes per second in and out. High in a run: a load of weights or an upload beside the measurement. EFA "
        "is not in it.",
        statistic="Average",
    ),
)
_OF_THE_CLUSTER = (
    Figure(
        metric="cluster_node_count",
        publisher=CONTAINER_INSIGHTS,
        title="Nodes known",
        says="Nodes that Kubernetes knows, system nodes included; a dead one stays known for minutes. What costs money "
        "is on the dashboard of money.",
        statistic="Maximum",
    ),
    Figure(
        metric="cluster_failed_node_count",
        publisher=CONTAINER_INSIGHTS,
        title="Nodes under pressure",
        says="Nodes short of memory, disk or processes, or without network. A node that is merely not Ready is not "
        "counted.",
        statistic="Maximum",
    ),
)


def dashboard(scope: Scope) -> Dashboard:
    """Return the dashboard of an environment's machine."""
    environment = scope.environment
    drawn: tuple[Graph | Text, ...] = (_off(),)
    if environment.observability.container_insights:
        of_experiments = (servers(environment, Arms(environment, watching)) for watching in scope.experiments)
        drawn = (*_nodes(environment), *(widget for one in of_experiments for widget in one))
    return Dashboard(
        name=names.dashboard(environment, "machine"),
        title=f"{environment.name}: the machine",
        widgets=(_head(environment), *drawn, _cores(scope)),
    )


def _head(environment: Environment) -> Text:
    return text(
        f"## The machine under {environment.name}\n"
        f"EKS cluster `{names.cluster(environment)}`, {environment.capacity.instance_type} in "
        f"{environment.capacity.zone}. Nodes and readiness come from `{CONTAINER_INSIGHTS}`, the servers' own figures "
        f"from `{VLLM_SCRAPE}`, each once a minute: a node's line ends with the node, a server's with its pod. One "
        "color is one arm, as on the experiments' dashboards. What to do when something is wrong: docs/runbook.md."
    )


def _off() -> Text:
    return text(
        "**Nothing of nodes and servers is drawn**: `observability.container_insights` is false in this environment, "
        "so no agent runs that would send it."
    )


def _nodes(environment: Environment) -> tuple[Graph, ...]:
    """Return every node that exists, system nodes included, and how many there are."""
    cluster = names.cluster(environment)
    whole = Cell(environment, CONTAINER_INSIGHTS, {"ClusterName": cluster})
    space = namespace(CONTAINER_INSIGHTS, environment.name, cluster)
    return (
        *(
            figure.graph((Expression(text=_search(figure, space, cluster), label=found("NodeName"), id="nodes"),))
            for figure in _OF_EACH_NODE
        ),
        *(
            figure.graph(
                (replace(whole.line(figure.metric, figure.statistic, id_="count", shown=True), label=figure.title),)
            )
            for figure in _OF_THE_CLUSTER
        ),
    )


def _search(figure: Figure, space: str, cluster: str) -> str:
    """Return the SEARCH that finds a figure of every node of a cluster."""
    return (
        f'SEARCH(\'{{"{space}",NodeName,InstanceId,ClusterName}} MetricName="{figure.metric}" '
        f"ClusterName=\"{cluster}\"', '{figure.statistic}', {PERIOD_S})"
    )


def _cores(scope: Scope) -> Text:
    spaces = ", ".join(f"`{names.namespace(watching.experiment)}`" for watching in scope.experiments)
    return text(
        "### NeuronCores by devices 0-7 and 8-15\n"
        f"Not drawn: nobody sends it here. {PUBLISHERS[NEURON].source}. Which server holds which devices is the "
        f"claims' to say: `kubectl get resourceclaims -o yaml` in {spaces}."
    )
