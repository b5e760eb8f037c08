"""The bucket as volumes: one per prefix, read only, each bound to its own claim."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chart_cases import CATALOGUE, ENVIRONMENTS, EXPERIMENTS, HOSTED, experiments, objects, of_kind, stages, templates

from tandem.spec import names
from tandem.spec.variant_key import compute_artifact_key


def volumes(environment: str, experiment: str) -> dict[str, dict[str, Any]]:
    return of_kind(stages(environment, experiment)["storage"], "PersistentVolume")


def claims(environment: str, experiment: str) -> dict[str, dict[str, Any]]:
    return of_kind(stages(environment, experiment)["storage"], "PersistentVolumeClaim")


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_two_volumes_of_an_environment_share_a_handle(environment: str) -> None:
    handles = [
        volume["spec"]["csi"]["volumeHandle"]
        for experiment in experiments(ENVIRONMENTS[environment])
        for volume in volumes(environment, experiment.name).values()
    ]

    assert len(handles) == len(set(handles))


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_a_handle_is_its_volumes_name(environment: str, experiment: str) -> None:
    found = volumes(environment, experiment)

    assert {name: volume["spec"]["csi"]["volumeHandle"] for name, volume in found.items()} == {n: n for n in found}


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_there_is_a_prefix_for_the_models_and_one_for_each_artifact(environment: str, experiment: str) -> None:
    spec = EXPERIMENTS[experiment]
    keys = [compute_artifact_key(spec, variant, CATALOGUE) for variant in spec.all_variants()]
    mounted = [volume["spec"]["mountOptions"][-1] for volume in volumes(environment, experiment).values()]

    assert mounted == ["prefix models/", *(f"prefix artifacts/{key.name}/" for key in keys)]


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_a_volume_can_only_be_read(environment: str, experiment: str) -> None:
    said = {
        (tuple(volume["spec"]["accessModes"]), "read-only" in volume["spec"]["mountOptions"])
        for volume in volumes(environment, experiment).values()
    }

    assert said == {(("ReadOnlyMany",), True)}


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_a_volume_is_read_by_the_runtime_as_root_and_by_the_tools_as_nobody(environment: str, experiment: str) -> None:
    """A mount belongs to its Mountpoint pod's user; other users are let in by this option alone."""
    assert all("allow-other" in volume["spec"]["mountOptions"] for volume in volumes(environment, experiment).values())


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_a_volume_is_mounted_by_the_role_of_the_pod(environment: str, experiment: str) -> None:
    attributes = [volume["spec"]["csi"]["volumeAttributes"] for volume in volumes(environment, experiment).values()]

    expected = {"bucketName": names.bucket_name(ENVIRONMENTS[environment]), "authenticationSource": "pod"}
    assert all(found == expected for found in attributes)


@pytest.mark.parametrize(("environment", "gbps"), [("post-us-east-2", 200), ("dev-trn2-3xlarge", 50)])
def test_a_volume_names_the_nodes_throughput(environment: str, gbps: int) -> None:
    (experiment, *_) = experiments(ENVIRONMENTS[environment])

    found = {tuple(volume["spec"]["mountOptions"][3:-1]) for volume in volumes(environment, experiment.name).values()}

    assert found == {(f"maximum-throughput-gbps {gbps}",)}


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_a_volume_names_its_region_so_that_nobody_asks_the_node(environment: str, experiment: str) -> None:
    region = f"region {ENVIRONMENTS[environment].region}"

    assert all(region in volume["spec"]["mountOptions"] for volume in volumes(environment, experiment).values())


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_a_volume_and_its_claim_name_each_other(environment: str, experiment: str) -> None:
    space = names.experiment_namespace(EXPERIMENTS[experiment])
    bound = {name: volume["spec"]["claimRef"] for name, volume in volumes(environment, experiment).items()}
    wanted = {claim["spec"]["volumeName"]: name for name, claim in claims(environment, experiment).items()}

    assert bound == {volume: {"namespace": space, "name": claim} for volume, claim in wanted.items()}


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_no_storage_class_ever_provisions(environment: str, experiment: str) -> None:
    classes = [
        {body["spec"].get("storageClassName") for body in found(environment, experiment).values()}
        for found in (volumes, claims)
    ]

    assert classes == [{None}, {""}]


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_deleting_a_volume_deletes_nothing_in_the_bucket(environment: str, experiment: str) -> None:
    policies = {each["spec"]["persistentVolumeReclaimPolicy"] for each in volumes(environment, experiment).values()}

    assert policies == {"Retain"}


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_every_claim_is_mounted_and_every_mounted_claim_is_there(environment: str, experiment: str) -> None:
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for template in templates(stages(environment, experiment)["serve"]).values()
        for volume in template["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }

    assert used == set(claims(environment, experiment))


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_each_artifacts_key_stands_once_and_never_changes(environment: str, experiment: str) -> None:
    keys = {
        compute_artifact_key(EXPERIMENTS[experiment], each, CATALOGUE).digest
        for each in EXPERIMENTS[experiment].all_variants()
    }
    maps = of_kind(objects(environment, experiment), "ConfigMap")

    assert {name.removeprefix("key-") for name in maps} == keys
    assert all(body["immutable"] for body in maps.values())


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_no_container_carries_the_fields_of_a_key_itself(environment: str, experiment: str) -> None:
    running = [body for body in objects(environment, experiment) if body["kind"] != "ConfigMap"]

    assert "kv_cache_quantization" not in json.dumps(running)
