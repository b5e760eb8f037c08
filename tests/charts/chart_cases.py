"""What the chart tests share: the declared environments, whose charts are built once a session, and
read as files."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from declared_environments import read_environments
from shipped import load_shipped

from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment, Variant

if TYPE_CHECKING:  # it starts Node
    from cdk8s import Chart

CATALOGUE = load_catalogue()
SHIPPED = load_shipped()
ENVIRONMENTS = {name: item.record for name, item in SHIPPED.environments.items()}
EXPERIMENTS = {name: item.record for name, item in SHIPPED.experiments.items()}
HOSTED = [
    (name, hosted_experiment)
    for name, environment in ENVIRONMENTS.items()
    for hosted_experiment in environment.experiments
]
# and those of tests/environments, whose manifests nobody commits
DECLARED = {**ENVIRONMENTS, **read_environments()}
GITOPS = [
    name for name, environment in ENVIRONMENTS.items() if environment.delivery.kind == "gitops"
]

SERVER = "vllm"
STAGES = ("base", "claims", "storage", "stage", "compile", "serve", "llmperf", "measure", "quality")
SESSION_FOLDER = "TANDEM_TEST_FOLDER"  # variable that tests/conftest.py sets
MIRROR = "111122223333.dkr.ecr.us-east-2.amazonaws.com/public"
MIRRORS = {"public.ecr.aws": MIRROR}


def experiments(environment: Environment) -> list[Experiment]:
    return [EXPERIMENTS[name] for name in environment.experiments]


@cache
def read_files() -> dict[str, dict[str, str]]:
    """Return the files of each of DECLARED by their paths; the first process of a session that asks
    makes them."""
    folder = os.environ.get(SESSION_FOLDER)
    if folder is None:
        return render_declared()
    path = Path(folder) / "charts.json"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_text(json.dumps(render_declared()))
    return json.loads(path.read_text())


def render_declared() -> dict[str, dict[str, str]]:
    from charts.tree import render_files  # noqa: PLC0415 - starts Node, which only one process of a session needs

    return {
        name: {
            str(path): text
            for path, text in render_files(spec, experiments(spec), CATALOGUE).items()
        }
        for name, spec in DECLARED.items()
    }


def render_charts(charts: Mapping[str, Chart]) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of charts by the charts' ids; of what no environment declares, which
    `stages` has not."""
    return {chart_id: chart.to_json() for chart_id, chart in charts.items()}


def build_stages(
    environment: Environment, experiment: Experiment = EXPERIMENTS["post"]
) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of an experiment by stage, of what no environment declares."""
    from charts import build_charts  # noqa: PLC0415 - as above

    return render_charts(build_charts(environment, experiment, CATALOGUE))


def find_pod(body: dict[str, Any]) -> dict[str, Any]:
    """Return the pods that an object makes; an empty one where it makes none."""
    spec = body.get("spec", {})
    job = spec.get("jobTemplate", {}).get("spec", spec)
    return job.get("template", {}).get("spec", {})


@cache
def read_objects(environment: str, path: str) -> list[dict[str, Any]]:
    """Return the objects of a file below an environment's folder; none where there is no such
    file."""
    return parse_objects(read_files()[environment].get(f"{environment}/{path}", ""))


def parse_objects(text: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


@cache
def stages(environment: str, experiment: str) -> dict[str, list[dict[str, Any]]]:
    return {
        stage: read_objects(environment, f"{experiment}/{stage}/{stage}.yaml")
        for stage in STAGES
        if f"{environment}/{experiment}/{stage}/{stage}.yaml" in read_files()[environment]
    }


def controller(environment: str) -> list[dict[str, Any]]:
    """The GitOps objects of an environment."""
    return [
        body
        for tool in ("argocd", "flux")
        for body in read_objects(environment, f"gitops/{tool}.yaml")
    ]


def people() -> list[dict[str, Any]]:
    """The objects of people's rights in the whole cluster, the same in each environment."""
    return read_objects("post-us-east-2", "people/people.yaml")


def runner(environment: str) -> list[dict[str, Any]]:
    """The objects of an environment's runner."""
    return read_objects(environment, "runner/runner.yaml")


@cache
def everything(environment: str) -> list[dict[str, Any]]:
    """Every object in an environment's folder."""
    hosted_bodies = [
        body for name in DECLARED[environment].experiments for body in objects(environment, name)
    ]
    return [*hosted_bodies, *people(), *runner(environment), *controller(environment)]


def render_tree(environment: str) -> dict[Path, str]:
    """The files of an environment's folder."""
    return {Path(path): text for path, text in read_files()[environment].items()}


def objects(environment: str, experiment: str) -> list[dict[str, Any]]:
    return [body for bodies in stages(environment, experiment).values() for body in bodies]


def of_kind(bodies: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Name to object."""
    return {body["metadata"]["name"]: body for body in bodies if body["kind"] == kind}


def templates(bodies: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Variant to pod template."""
    return {name: body["spec"]["template"] for name, body in of_kind(bodies, "Deployment").items()}


def server_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The server in its pod, whatever runs beside it."""
    (server,) = (item for item in pod["containers"] if item["name"] == SERVER)
    return server


def flag(arguments: list[str], name: str) -> str:
    """The value that follows a flag."""
    return arguments[arguments.index(name) + 1]


def variant(experiment: Experiment, name: str) -> Variant:
    return next(item for item in experiment.all_variants() if item.name == name)


def node_program() -> str:
    return os.environ["JSII_NODE"]
