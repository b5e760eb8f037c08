from __future__ import annotations

import functools
import json
import subprocess
from typing import Any

import pytest
from chart_cases import DECLARED, controller, node_program, objects, people, runner
from committed import ROOT
from kubernetes_validate import utils


def gitops_errors(bodies: list[dict[str, Any]]) -> list[list[str]]:
    program = [
        node_program(),
        str(ROOT / "tests/charts/gitops_schemas.mjs"),
        str(ROOT / "node_modules"),
    ]
    done = subprocess.run(
        program, input=json.dumps(bodies), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("environment", DECLARED)
def test_core_objects_pass_the_strict_schemas_of_their_minor(environment, monkeypatch):
    # once, not once an object: the definitions of a minor are megabytes
    monkeypatch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))
    hosted_experiments = DECLARED[environment].experiments
    bodies = [
        body for experiment in hosted_experiments for body in objects(environment, experiment)
    ]
    for body in [*bodies, *people(), *runner(environment)]:
        utils.validate(body, DECLARED[environment].cluster.kubernetes, strict=True)


@pytest.mark.parametrize(
    "environment", [name for name in DECLARED if DECLARED[name].delivery.kind == "gitops"]
)
def test_the_objects_of_the_gitops_tool_pass_its_strict_schema(environment):
    bodies = controller(environment)
    assert gitops_errors(bodies) == [[] for _ in bodies]
