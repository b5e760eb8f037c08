"""What stands in for no image, what a container does not get, and faults; the rest is what a whole
life shows."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rehearsal.cluster.pod_commands import ContainerCommand
from rehearsal.cluster.tokens import BoundTokens
from rehearsal.run.manifests import account_token, apply_manifests, read_manifests
from rehearsal.run.pod_programs import KNOBS, PodPrograms
from rehearsal.run.settings import RunFaults

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests/post-us-east-2"
NAMESPACE = "tandem-post"


class Host:
    """The programs of the committed manifests' pods."""

    def __init__(self, small, folder) -> None:
        self.small = small
        self.store = small.store
        self.folder = folder
        apply_manifests(small.store, read_manifests(MANIFESTS))
        (folder / KNOBS).mkdir()
        (folder / KNOBS / "qwen-vllm.yaml").write_text("")
        accounts = ("tandem-compile", "tandem-stage", "tandem-bench", "tandem-serve")
        identities = {("runner-system", "runner"), *((NAMESPACE, account) for account in accounts)}
        self.tokens = BoundTokens(small.store, 60)
        self.programs = PodPrograms(
            store=small.store,
            identities=frozenset(identities),
            aws_variables={"AWS_ENDPOINT_URL": "http://aws"},
            hub_variables={"HF_ENDPOINT": "http://hub"},
            folder=folder,
            poll_s=0.5,
            s3=None,
            build_kubeconfig=lambda token, _: {"users": [{"user": {"token": token}}]},
            read_faults=lambda: small.faults,
            tokens=self.tokens,
        )

    def pod(self, plural, name, namespace=NAMESPACE):
        body = self.store.get_object(plural, namespace, name)
        template = body["spec"].get("template") or body["spec"]["jobTemplate"]["spec"]["template"]
        return {
            "metadata": {"namespace": namespace, "name": name, **template["metadata"]},
            "spec": template["spec"],
        }

    def choose(self, pod, container) -> ContainerCommand:
        boxes = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        box = next(box for box in boxes if box["name"] == container)
        words = (*box.get("command", []), *box.get("args", []))
        command = ContainerCommand(
            words=words, variables={"OWN": "1"}, folders={"/work": self.folder / "work"}
        )
        return self.programs.choose_program(pod, box, command)

    def compile_job(self):
        names = [row["metadata"]["name"] for row in self.store.list_objects("cronjobs", NAMESPACE)]
        return self.pod("cronjobs", next(name for name in names if name.startswith("compile-")))


@pytest.fixture
def host(small, tmp_path):
    return Host(small, tmp_path)


def test_a_server_of_another_experiment_says_that_it_is_none(host):
    words = host.choose(host.pod("deployments", "qwen-sd-vllm"), "vllm").words
    assert "no arm of the experiment" in words[-1]


def test_an_image_without_a_stand_in_says_so(host):
    names = [row["metadata"]["name"] for row in host.store.list_objects("cronjobs", NAMESPACE)]
    pod = host.pod("cronjobs", next(name for name in names if "llmperf" in name))
    assert "is not rehearsed" in host.choose(pod, "measure").words[-1]


def test_a_container_that_the_webhook_skips_gets_none(host):
    variables = host.choose(host.compile_job(), "compile").variables
    assert "AWS_ENDPOINT_URL" not in variables


def test_the_runner_alone_gets_a_token(host):
    pod = host.pod("deployments", "runner", "runner-system")
    pod = {**host.small.store.create_object("pods", "runner-system", pod)}
    runner = host.choose(pod, "runner").variables
    (row,) = yaml.safe_load(Path(runner["KUBECONFIG"]).read_text())["users"]
    token = Path(row["user"]["tokenFile"]).read_text()
    assert host.tokens.find_account(token) == account_token("runner-system", "runner")
    assert (
        "KUBECONFIG" not in host.choose(host.pod("cronjobs", "tandem-measure"), "measure").variables
    )


def test_fault_a_server_crashes(host):
    host.small.faults = RunFaults(crashing_server="qwen-vllm")
    assert "SystemExit" in host.choose(host.pod("deployments", "qwen-vllm"), "vllm").words[-1]


def test_nothing_fills_the_volume_of_a_projected_token(host, tmp_path):
    pod = host.pod("deployments", "runner", "runner-system")
    assert (
        host.programs.list_fillers(
            pod, {"name": "kube-api-access", "projected": {"sources": []}}, tmp_path
        )
        == []
    )
