"""The servers: what they run, on what, and how they are asked whether they live."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from chart_cases import (
    CATALOGUE,
    ENVIRONMENTS,
    EXPERIMENTS,
    HOSTED,
    MIRROR,
    MIRRORS,
    container,
    flag,
    objects,
    of_kind,
    stages,
    templates,
)

from charts import render_workloads
from charts.serve import GRACE_S, probe_program
from tandem.spec.project_image import LLMPERF, TOOLS

SERVERS = [
    pytest.param(environment, experiment, variant.name, id=f"{experiment}-{variant.name}")
    for environment, experiment in HOSTED
    for variant in EXPERIMENTS[experiment].all_variants()
]
POST = stages("post-us-east-2", "post")["serve"]
each_server = pytest.mark.parametrize(("environment", "experiment", "variant"), SERVERS)


def pod(environment: str, experiment: str, variant: str) -> dict[str, Any]:
    return templates(stages(environment, experiment)["serve"])[variant]["spec"]


def containers(environment: str, experiment: str, variant: str) -> list[dict[str, Any]]:
    spec = pod(environment, experiment, variant)
    return spec.get("initContainers", []) + spec["containers"]


def test_the_post_serves_under_the_names_of_the_post() -> None:
    assert list(of_kind(POST, "Deployment")) == ["qwen-vllm", "qwen-sd-vllm"]


def test_fused_speculation_stands_in_the_manifest_of_the_post() -> None:
    settings = json.loads(flag(container(POST, "qwen-sd-vllm")["args"], "--override-neuron-config"))

    assert settings["enable_fused_speculation"] is True


def test_seven_tokens_stand_in_the_manifest_of_the_post() -> None:
    settings = json.loads(flag(container(POST, "qwen-sd-vllm")["args"], "--speculative-config"))

    assert settings["num_speculative_tokens"] == 7


def test_the_draft_of_the_post_stands_in_its_manifest() -> None:
    settings = json.loads(flag(container(POST, "qwen-sd-vllm")["args"], "--speculative-config"))

    assert settings["model"].startswith("/models/Qwen/Qwen3-1.7B/")


def test_the_baseline_of_the_post_says_nothing_of_speculation() -> None:
    assert "specul" not in json.dumps(container(POST, "qwen-vllm")["args"])


def test_a_person_reads_mode_draft_and_window_off_the_labels() -> None:
    shown = {
        name: [body["metadata"]["labels"][f"tandem/{key}"] for key in ("mode", "draft", "num-speculative-tokens")]
        for name, body in of_kind(POST, "Deployment").items()
    }

    assert shown == {"qwen-vllm": ["none", "none", "0"], "qwen-sd-vllm": ["fused", "Qwen3-1.7B", "7"]}


@each_server
def test_every_label_is_one_that_kubernetes_takes(environment: str, experiment: str, variant: str) -> None:
    body = of_kind(stages(environment, experiment)["serve"], "Deployment")[variant]

    values = [*body["metadata"]["labels"].values(), *pod(environment, experiment, variant)["nodeSelector"].values()]

    assert [
        value for value in values if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", value)
    ] == []


@each_server
def test_a_server_is_replaced_only_after_it_let_go_of_its_devices(
    environment: str, experiment: str, variant: str
) -> None:
    assert of_kind(stages(environment, experiment)["serve"], "Deployment")[variant]["spec"]["strategy"] == {
        "type": "Recreate"
    }


@each_server
def test_a_service_finds_exactly_its_variants_pods(environment: str, experiment: str, variant: str) -> None:
    selector = of_kind(stages(environment, experiment)["serve"], "Service")[variant]["spec"]["selector"].items()

    found = [
        name
        for name, template in templates(stages(environment, experiment)["serve"]).items()
        if selector <= template["metadata"]["labels"].items()
    ]

    assert found == [variant]


@each_server
def test_a_deployment_selects_exactly_its_own_pods(environment: str, experiment: str, variant: str) -> None:
    body = of_kind(stages(environment, experiment)["serve"], "Deployment")[variant]
    selector = body["spec"]["selector"]["matchLabels"].items()

    found = [
        name
        for name, template in templates(stages(environment, experiment)["serve"]).items()
        if selector <= template["metadata"]["labels"].items()
    ]

    assert found == [variant]


@each_server
def test_a_service_is_inside_the_cluster_on_port_8000(environment: str, experiment: str, variant: str) -> None:
    spec = of_kind(stages(environment, experiment)["serve"], "Service")[variant]["spec"]

    assert (spec["type"], [port["port"] for port in spec["ports"]]) == ("ClusterIP", [8000])


@each_server
def test_an_image_is_pulled_by_repository_and_tag(environment: str, experiment: str, variant: str) -> None:
    image = CATALOGUE.runtimes[EXPERIMENTS[experiment].runtime].image
    digest = CATALOGUE.digests.find_digest(image.reference)
    pinned = f"{image.repository}:{image.tag}" + (f"@{digest}" if digest else "")

    assert pod(environment, experiment, variant)["containers"][0]["image"] == pinned


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_no_pod_asks_for_an_efa_device(environment: str, experiment: str) -> None:
    assert "vpc.amazonaws.com/efa" not in json.dumps(objects(environment, experiment))


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_with_a_mirror_no_image_has_another_host(environment: str, experiment: str) -> None:
    mirrored = ENVIRONMENTS[environment].model_copy(update={"registry_mirrors": MIRRORS})
    made = render_workloads(mirrored, EXPERIMENTS[experiment], CATALOGUE)

    ours = {image.reference(mirrored) for image in (TOOLS, LLMPERF)}
    images = set(re.findall(r'"image": "([^"]+)"', json.dumps(made))) - ours

    assert [image for image in images if not image.startswith(f"{MIRROR}/neuron/")] == []


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_a_mirror_moves_no_artifact(environment: str, experiment: str) -> None:
    mirrored = ENVIRONMENTS[environment].model_copy(update={"registry_mirrors": MIRRORS})

    assert (
        render_workloads(mirrored, EXPERIMENTS[experiment], CATALOGUE)["storage"]
        == stages(environment, experiment)["storage"]
    )


@each_server
def test_every_mount_has_its_volume(environment: str, experiment: str, variant: str) -> None:
    volumes = {volume["name"] for volume in pod(environment, experiment, variant)["volumes"]}
    mounts = {mount["name"] for each in containers(environment, experiment, variant) for mount in each["volumeMounts"]}

    assert mounts == volumes


@each_server
def test_shared_memory_is_bounded_within_the_pods_memory(environment: str, experiment: str, variant: str) -> None:
    spec = pod(environment, experiment, variant)
    (shared,) = [volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"] if volume["name"] == "shm"]
    memory = spec["containers"][0]["resources"]["limits"]["memory"]

    assert int(shared.removesuffix("Gi")) < int(memory.removesuffix("Gi"))


@each_server
def test_a_server_may_use_the_memory_it_asked_for_and_no_more(environment: str, experiment: str, variant: str) -> None:
    resources = pod(environment, experiment, variant)["containers"][0]["resources"]

    assert resources["limits"] == {"memory": resources["requests"]["memory"]}


@each_server
def test_a_pod_runs_as_the_reader_without_a_kubernetes_token(environment: str, experiment: str, variant: str) -> None:
    spec = pod(environment, experiment, variant)

    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("tandem-serve", False)


@each_server
def test_no_container_of_a_server_is_given_the_readers_role(environment: str, experiment: str, variant: str) -> None:
    """The role is there for Mountpoint, whose token goes from the kubelet to its driver."""
    template = templates(stages(environment, experiment)["serve"])[variant]
    skipped = template["metadata"]["annotations"]["eks.amazonaws.com/skip-containers"].split(",")

    assert sorted(skipped) == sorted(each["name"] for each in containers(environment, experiment, variant))


@each_server
def test_service_variables_do_not_reach_vllm(environment: str, experiment: str, variant: str) -> None:
    assert pod(environment, experiment, variant)["enableServiceLinks"] is False


def test_a_server_is_gone_before_its_mount_is() -> None:
    assert GRACE_S < 600


@each_server
def test_a_server_has_an_hour_to_start_and_starts_once_it_completed(
    environment: str, experiment: str, variant: str
) -> None:
    probe = pod(environment, experiment, variant)["containers"][0]["startupProbe"]

    assert probe["failureThreshold"] * probe["periodSeconds"] == 3600
    assert probe["exec"]["command"] == ["python", "-c", probe_program(EXPERIMENTS[experiment].target)]


@each_server
def test_later_probes_cost_a_measurement_no_token(environment: str, experiment: str, variant: str) -> None:
    server = pod(environment, experiment, variant)["containers"][0]

    assert {server[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")} == {"/health"}


class Answer(BaseHTTPRequestHandler):
    """A server that answers every completion with one status, and remembers what it was asked."""

    status = 200
    asked: list[tuple[str, dict[str, Any]]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append((self.path, body))
        self.send_response(type(self).status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def probed(status: int) -> tuple[int, list[tuple[str, dict[str, Any]]]]:
    """Run the startup probe against a server that answers with `status`; return its exit code and questions."""
    handler = type("Handler", (Answer,), {"status": status, "asked": []})
    with HTTPServer(("127.0.0.1", 0), handler) as listener:
        threading.Thread(target=listener.handle_request, daemon=True).start()
        text = probe_program("Qwen/Qwen3-32B").replace(":8000/", f":{listener.server_port}/")
        done = subprocess.run(["python3", "-c", text], capture_output=True, check=False)
    return done.returncode, handler.asked


def test_the_startup_probe_passes_when_a_token_came() -> None:
    assert probed(200)[0] == 0


def test_the_startup_probe_fails_while_the_server_fails() -> None:
    assert probed(500)[0] == 1


def test_the_startup_probe_asks_the_served_model_for_one_greedy_token() -> None:
    ((path, body),) = probed(200)[1]

    assert (path, body) == (
        "/v1/completions",
        {"model": "Qwen/Qwen3-32B", "prompt": "1", "max_tokens": 1, "temperature": 0},
    )
