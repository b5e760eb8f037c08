"""What the chart tests share: the committed specs, rendered once per process."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from committed import workspace
from declared_environments import read_environments

from charts import render_workloads
from charts.gitops import render_gitops
from charts.people import render_people
from charts.runner import render_runner
from charts.tree import render_files
from tandem.spec.artifact_key import KEY_VARIABLE
from tandem.spec.catalogue import load_catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant

CATALOGUE = load_catalogue()
ENVIRONMENTS = {name: found.record for name, found in workspace().environments.items()}
EXPERIMENTS = {name: found.record for name, found in workspace().experiments.items()}
HOSTED = [(name, hosted) for name, environment in ENVIRONMENTS.items() for hosted in environment.experiments]
DECLARED = {**ENVIRONMENTS, **read_environments()}  # and those of tests/environments, whose manifests nobody commits
GITOPS = [name for name, environment in ENVIRONMENTS.items() if environment.delivery.kind == "gitops"]

MIRROR = "111122223333.dkr.ecr.us-east-2.amazonaws.com/public"
MIRRORS = {"public.ecr.aws": MIRROR}


def experiments(environment: Environment) -> list[Experiment]:
    return [EXPERIMENTS[name] for name in environment.experiments]


@cache
def stages(environment: str, experiment: str) -> dict[str, list[dict[str, Any]]]:
    return render_workloads(DECLARED[environment], EXPERIMENTS[experiment], CATALOGUE)


@cache
def controller(environment: str) -> list[dict[str, Any]]:
    """The GitOps objects of an environment."""
    made = render_gitops(DECLARED[environment], experiments(DECLARED[environment]), CATALOGUE)
    return [body for bodies in made.values() for body in bodies]


@cache
def people() -> list[dict[str, Any]]:
    """The objects of people's rights in the whole cluster, the same in each environment."""
    return [body for bodies in render_people().values() for body in bodies]


@cache
def everything(environment: str) -> list[dict[str, Any]]:
    """Every object in an environment's folder."""
    hosted = [body for name in DECLARED[environment].experiments for body in objects(environment, name)]
    return [*hosted, *people(), *runner(environment), *controller(environment)]


@cache
def runner(environment: str) -> list[dict[str, Any]]:
    """The objects of an environment's runner."""
    made = render_runner(DECLARED[environment], experiments(DECLARED[environment]))
    return [body for bodies in made.values() for body in bodies]


@cache
def render_tree(environment: str) -> dict[Path, str]:
    """The files of an environment's folder."""
    return render_files(DECLARED[environment], experiments(DECLARED[environment]), CATALOGUE)


def objects(environment: str, experiment: str) -> list[dict[str, Any]]:
    return [body for bodies in stages(environment, experiment).values() for body in bodies]


def of_kind(bodies: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Name to object."""
    return {body["metadata"]["name"]: body for body in bodies if body["kind"] == kind}


def templates(bodies: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Variant to pod template."""
    return {name: body["spec"]["template"] for name, body in of_kind(bodies, "Deployment").items()}


def container(bodies: list[dict[str, Any]], variant: str) -> dict[str, Any]:
    (found,) = templates(bodies)[variant]["spec"]["containers"]
    return found


def key_reference(container: dict[str, Any]) -> dict[str, str]:
    """Where a container's artifact key comes from."""
    (carried,) = (each for each in container["env"] if each["name"] == KEY_VARIABLE)
    return carried["valueFrom"]["configMapKeyRef"]


def carried_key(environment: str, experiment: str, container: dict[str, Any]) -> dict[str, Any]:
    """The artifact key that a container of an experiment carries, read through its ConfigMap."""
    reference = key_reference(container)
    maps = of_kind(objects(environment, experiment), "ConfigMap")
    return json.loads(maps[reference["name"]]["data"][reference["key"]])


def flag(arguments: list[str], name: str) -> str:
    """The value that follows a flag."""
    return arguments[arguments.index(name) + 1]


def variant(experiment: Experiment, name: str) -> Variant:
    return next(found for found in experiment.all_variants() if found.name == name)


def node_program() -> str:
    return os.environ["JSII_NODE"]
