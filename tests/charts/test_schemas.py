from __future__ import annotations

import functools
import json
import subprocess
from typing import Any

import kubernetes_validate
import pytest
from chart_cases import DECLARED, controller, node_program, objects, people, runner
from committed import ROOT


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


@pytest.fixture(scope="module")
def quick_schemas():
    """Let each schema be read once, not once an object: its definitions are megabytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            kubernetes_validate.utils,
            "schema_contents",
            functools.cache(kubernetes_validate.utils.schema_contents),
        )
        yield


@pytest.mark.parametrize("environment", DECLARED)
@pytest.mark.usefixtures("quick_schemas")
def test_core_objects_pass_the_strict_schemas_of_their_minor(environment):
    hosted_experiments = DECLARED[environment].experiments
    bodies = [
        body for experiment in hosted_experiments for body in objects(environment, experiment)
    ]
    for body in [*bodies, *people(), *runner(environment)]:
        kubernetes_validate.validate(body, DECLARED[environment].cluster.kubernetes, strict=True)


@pytest.mark.parametrize(
    "environment", [name for name in DECLARED if DECLARED[name].delivery.kind == "gitops"]
)
def test_the_objects_of_the_gitops_tool_pass_its_strict_schema(environment):
    bodies = controller(environment)
    assert gitops_errors(bodies) == [[] for _ in bodies]
