"""What the add-on is told is what its chart knows, finds every server in the cluster, and nothing
else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import committed
import pytest
import yaml
from committed import ENVIRONMENTS, ROOT
from recorded import SAMPLES, events, pages, types

from tandem.cloudwatch_metrics import (
    CLOUDWATCH_METRICS,
    CONTAINER_INSIGHTS,
    PUBLISHERS,
    VLLM_SCRAPE,
)
from tandem.monitoring.agent import (
    SCRAPER,
    build_addon_configuration,
    build_node_pattern,
)

TERM = re.compile(r'\(\$\.(\w+) = "([^"]*)"\)')
KNOWN = (SAMPLES / "addon-values.txt").read_text().split()
# any content is taken
FREE = ("agent/config", "agent/prometheus/config", "tolerations", "agent/tolerations")
WATCHED_OF_VLLM = {name for publisher, name in CLOUDWATCH_METRICS if publisher == VLLM_SCRAPE}


def bodies(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a rendered file; the committed ones are many, and libyaml reads them in
    a tenth."""
    return list(yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader))


@pytest.fixture(scope="module", params=ENVIRONMENTS)
def environment(request):
    return committed.environment(request.param)


@pytest.fixture(scope="module")
def values(environment):
    return build_addon_configuration(environment)


@pytest.fixture(scope="module")
def scraper(values):
    return next(agent for agent in values["agents"] if agent["name"] == SCRAPER)


@pytest.fixture(scope="module")
def job(scraper):
    (scrape_config,) = scraper["prometheus"]["config"]["scrape_configs"]
    return dict(scrape_config)


def keys(values: Any, path: str) -> Iterator[str]:
    """Yield every key path that is written, where the chart says what stands there."""
    if isinstance(values, dict) and path not in FREE:
        for key, value in values.items():
            yield from keys(value, f"{path}/{key}" if path else key)
    else:
        yield path


def test_every_key_is_one_of_the_charts(values):
    plain = {key: value for key, value in values.items() if key != "agents"}
    written_values = {
        *keys(plain, ""),
        *(key for agent in values["agents"] for key in keys(agent, "agent")),
    }
    # a comment of the chart names that one: "override root"
    assert written_values - {"agent/tolerations"} <= set(KNOWN)


@pytest.mark.parametrize("page", pages().values(), ids=list(pages()))
def test_of_a_recorded_page_exactly_the_watched_metrics_are_kept(page, job):
    (rule,) = job["metric_relabel_configs"]
    there = set(types(page))

    kept_names = {name for name in there if re.fullmatch(rule["regex"], name)}

    assert kept_names == WATCHED_OF_VLLM & there
    assert kept_names


def test_everything_kept_becomes_a_metric_with_the_publishers_dimensions(scraper):
    processor = scraper["config"]["logs"]["metrics_collected"]["prometheus"]["emf_processor"]
    (declaration,) = processor["metric_declaration"]

    selected_names = {
        name
        for name in WATCHED_OF_VLLM
        if any(
            re.search(metric_selector, name) for metric_selector in declaration["metric_selectors"]
        )
    }

    assert selected_names == WATCHED_OF_VLLM
    assert tuple(map(tuple, declaration["dimensions"])) == PUBLISHERS[VLLM_SCRAPE].dimensions
    assert processor["metric_namespace"] == PUBLISHERS[VLLM_SCRAPE].namespace


@cache
def servers() -> dict[str, dict[str, Any]]:
    """Return every committed pod template: file and name to namespace, labels and ports, of servers
    and of all else."""
    result = {}
    for file in (
        path for name in ENVIRONMENTS for path in (ROOT / "manifests" / name).rglob("*.yaml")
    ):
        for body in bodies(file):
            if body["kind"] in {"Deployment", "CronJob"}:
                spec = (
                    body["spec"]["template"]
                    if body["kind"] == "Deployment"
                    else _job_template(body)
                )
                result[f"{file.parent.parent.name}/{body['kind']}/{body['metadata']['name']}"] = {
                    "namespace": body["metadata"]["namespace"],
                    "labels": spec["metadata"]["labels"],
                    "ports": [
                        port
                        for container in spec["spec"]["containers"]
                        for port in container.get("ports", ())
                    ],
                }
    return result


def _job_template(body: dict[str, Any]) -> dict[str, Any]:
    template: dict[str, Any] = body["spec"]["jobTemplate"]["spec"]["template"]
    return template


def scraped(pod: dict[str, Any], job: dict[str, Any]) -> dict[str, str] | None:
    """Return the labels that a pod's lines get, as Prometheus relabels them; None for one that is
    not read."""
    (discovery,) = job["kubernetes_sd_configs"]
    selector = dict(pair.split("=") for pair in discovery["selectors"][0]["label"].split(","))
    if not pod["ports"] or not selector.items() <= pod["labels"].items():
        return None
    labels = {
        "__meta_kubernetes_namespace": pod["namespace"],
        "__meta_kubernetes_pod_phase": "Running",
        "__meta_kubernetes_pod_container_port_number": str(pod["ports"][0]["containerPort"]),
        **{
            f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', key)}": value
            for key, value in pod["labels"].items()
        },
    }
    for rule in job["relabel_configs"]:
        value = labels.get(rule["source_labels"][0], "")
        if rule["action"] == "keep" and not re.fullmatch(rule["regex"], value):
            return None
        if rule["action"] == "replace":
            labels[rule["target_label"]] = value
    return {key: value for key, value in labels.items() if not key.startswith("__")}


@pytest.mark.parametrize(("name", "pod"), list(servers().items()), ids=list(servers()))
def test_every_committed_server_is_read_as_its_experiment_and_variant_and_no_other_pod(
    name, pod, job
):
    is_server = pod["labels"].get("app.kubernetes.io/component") == "server"
    result = scraped(pod, job)
    assert result == (
        {"Namespace": pod["namespace"], "Service": name.rpartition("/")[2]} if is_server else None
    )


def matches(pattern: str, event: dict[str, Any]) -> bool:
    """Evaluate `{ ($.A = "x") && ($.B = "y") }`, all that the filters say, against an event."""
    terms = TERM.findall(pattern)
    assert " && ".join(f'($.{key} = "{value}")' for key, value in terms) == pattern.strip("{} ")
    return all(event.get(key) == value for key, value in terms)


@pytest.mark.parametrize(
    "kind", ["Node", "NodeFS", "NodeNet", "Pod", "Cluster", "ClusterService", "ClusterNamespace"]
)
def test_it_counts_one_of_the_events_that_an_accelerator_node_writes(kind, environment):
    (event,) = events(CONTAINER_INSIGHTS, kind)
    node_event = {**event, "InstanceType": environment.capacity.instance_type}
    assert matches(build_node_pattern(environment), node_event) is (kind == "Node")
