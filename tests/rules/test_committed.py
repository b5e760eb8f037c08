"""What the committed files break, and that they use no more than there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from known import EXPERIMENT

from tandem.rules import check_workspace
from tandem.spec.catalogue import load_catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.workspace import load_workspace

ROOT = Path(__file__).parent.parent.parent
EXPECTED = {
    "environments/dev-trn2-3xlarge.yaml": {
        "account-real", "alarms-heard", "budget-by-hand", "images-pinned", "repository-real",
    },
    "environments/native-us-east-2.yaml": {
        "account-real", "alarms-heard", "images-pinned", "repository-real", "reservation-given",
    },
    "environments/post-us-east-2.yaml": {"account-real", "alarms-heard", "images-pinned", "reservation-given"},
    "experiments/dev.yaml": {"compile-memory", "image-vulnerable"},
    "experiments/llama-eagle3.yaml": {"model-gated", "cores-idle"},
    "experiments/post-drafts-windows.yaml": {"compile-memory", "image-vulnerable"},
    "experiments/post.yaml": {"compile-memory", "image-vulnerable"},
    "experiments/qwen3-native.yaml": {"batch-shown", "compile-memory", "mode-unproven-accepted", "cores-idle"},
}  # fmt: skip
COMMITTED = load_workspace(ROOT / "environments", ROOT / "experiments")
FAULTS = check_workspace(COMMITTED, load_catalogue())


@pytest.mark.parametrize("file", EXPECTED)
def test_a_committed_file_breaks_only_the_expected_warnings(file: str) -> None:
    assert {fault.rule for fault in FAULTS if fault.file == str(ROOT / file)} == EXPECTED[file]


def test_no_committed_file_is_refused() -> None:
    assert [str(fault) for fault in FAULTS if fault.severity == "refusal"] == []


def test_every_committed_file_is_expected_to_break_something_known() -> None:
    assert {fault.file for fault in FAULTS} == {str(ROOT / file) for file in EXPECTED}


HOSTED = [
    (declared.environment, COMMITTED.experiments[name].experiment)
    for declared in COMMITTED.environments.values()
    if declared.environment
    for name in declared.environment.experiments
]


@pytest.mark.parametrize(("environment", "experiment"), HOSTED, ids=lambda each: each.name)
def test_a_committed_hosting_uses_no_more_than_is_present(environment: Environment, experiment: Experiment) -> None:
    instance = load_catalogue().instances.instances[environment.capacity.instance_type]
    serving = experiment.serving
    cores = serving.devices * (instance.physical_cores_per_device.value or 0) // serving.logical_neuron_core

    assert serving.tensor_parallel_size <= cores
    assert serving.devices <= (instance.devices.value or 0)
    assert serving.cpu * 1000 < (instance.allocatable_cpu_m.value or 0)
    assert serving.memory_gib * 1024 < (instance.allocatable_memory_mib.value or 0)


def test_the_clean_experiment_is_a_copy_of_the_posts() -> None:
    post = COMMITTED.experiments["post"].document.data

    assert {**EXPERIMENT["serving"]} == post["serving"]
