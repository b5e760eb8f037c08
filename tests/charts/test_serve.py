"""The servers: what they run, on what, and how they are asked whether they live."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from chart_cases import (
    ENVIRONMENTS,
    EXPERIMENTS,
    HOSTED,
    MIRROR,
    MIRRORS,
    build_stages,
    objects,
    of_kind,
    stages,
)
from doubles.loopback import Question, answer_requests

from charts.serve import probe_program
from tandem.declarations.project_image import PROJECT_IMAGES

SERVERS = [
    pytest.param(environment, experiment, variant.name, id=f"{experiment}-{variant.name}")
    for environment, experiment in HOSTED
    for variant in EXPERIMENTS[experiment].all_variants()
]
each_server = pytest.mark.parametrize(("environment", "experiment", "variant"), SERVERS)


def deployment(environment: str, experiment: str, variant: str) -> dict[str, Any]:
    return of_kind(stages(environment, experiment)["serve"], "Deployment")[variant]


@each_server
def test_a_deployment_and_its_service_find_their_own_pods_alone(environment, experiment, variant):
    bodies = stages(environment, experiment)["serve"]
    service = of_kind(bodies, "Service")[variant]["spec"]
    own = deployment(environment, experiment, variant)["spec"]
    labels = {
        name: body["spec"]["template"]["metadata"]["labels"].items()
        for name, body in of_kind(bodies, "Deployment").items()
    }

    for selector in (service["selector"], own["selector"]["matchLabels"]):
        assert [name for name, label in labels.items() if selector.items() <= label] == [variant]
    assert (service["type"], [port["port"] for port in service["ports"]]) == ("ClusterIP", [8000])


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_with_a_mirror_no_image_has_another_host_and_no_artifact_moves(environment, experiment):
    place = ENVIRONMENTS[environment].model_copy(update={"registry_mirrors": MIRRORS})
    charts = build_stages(place, EXPERIMENTS[experiment])

    ours = {image.reference(place) for image in PROJECT_IMAGES}
    images = set(re.findall(r'"image": "([^"]+)"', json.dumps(charts))) - ours
    assert [image for image in images if not image.startswith(f"{MIRROR}/neuron/")] == []
    assert charts["storage"] == stages(environment, experiment)["storage"]
    assert "vpc.amazonaws.com/efa" not in json.dumps(objects(environment, experiment))


def probed(status: int) -> tuple[int, list[tuple[str, dict[str, Any]]]]:
    """Run the startup probe against a server that answers with `status`; return its exit code and
    questions."""
    questions: list[tuple[str, dict[str, Any]]] = []

    def answer(question: Question) -> tuple[int, dict[str, str], bytes]:
        questions.append((question.path, json.loads(question.body)))
        return status, {}, b""

    with answer_requests(answer) as url:
        text = probe_program("Qwen/Qwen3-32B").replace(":8000/", f":{url.rpartition(':')[2]}/")
        done = subprocess.run(["python3", "-c", text], capture_output=True, check=False)
    return done.returncode, questions


def test_the_startup_probe_asks_the_served_model_for_one_greedy_token():
    code, ((path, body),) = probed(200)
    assert (code, path) == (0, "/v1/completions")
    assert body == {"model": "Qwen/Qwen3-32B", "prompt": "1", "max_tokens": 1, "temperature": 0}


def test_the_startup_probe_fails_while_the_server_fails():
    assert probed(500)[0] == 1
