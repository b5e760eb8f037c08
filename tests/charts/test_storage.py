"""The bucket as volumes: one per prefix, read only, each bound to its own claim."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chart_cases import (
    CATALOGUE,
    ENVIRONMENTS,
    EXPERIMENTS,
    HOSTED,
    experiments,
    objects,
    of_kind,
    stages,
    templates,
)

from tandem.declarations import names
from tandem.declarations.variant_key import compute_artifact_key

each_experiment = pytest.mark.parametrize(("environment", "experiment"), HOSTED)


def volumes(environment: str, experiment: str) -> dict[str, dict[str, Any]]:
    return of_kind(stages(environment, experiment)["storage"], "PersistentVolume")


def claims(environment: str, experiment: str) -> dict[str, dict[str, Any]]:
    return of_kind(stages(environment, experiment)["storage"], "PersistentVolumeClaim")


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_each_volume_has_a_handle_of_its_own(environment: str) -> None:
    found = [
        (name, volume["spec"]["csi"]["volumeHandle"])
        for experiment in experiments(ENVIRONMENTS[environment])
        for name, volume in volumes(environment, experiment.name).items()
    ]

    assert all(name == handle for name, handle in found)
    assert len(dict(found)) == len(found)


@each_experiment
def test_there_is_a_prefix_for_the_models_and_one_for_each_artifact(
    environment: str, experiment: str
) -> None:
    spec = EXPERIMENTS[experiment]
    keys = [compute_artifact_key(spec, variant, CATALOGUE) for variant in spec.all_variants()]
    mounted = [
        volume["spec"]["mountOptions"][-1] for volume in volumes(environment, experiment).values()
    ]
    assert mounted == ["prefix models/", *(f"prefix artifacts/{key.name}/" for key in keys)]


@each_experiment
def test_a_volume_is_read_by_root_and_by_the_tools_with_the_role_of_the_pod(
    environment: str, experiment: str
) -> None:
    """A mount belongs to its Mountpoint pod's user; allow-other lets other users in, and the region
    spares a question.

    What is deleted here deletes nothing in the bucket, and no storage class ever provisions.
    """
    place = ENVIRONMENTS[environment]
    for volume in volumes(environment, experiment).values():
        spec = volume["spec"]

        assert spec["accessModes"] == ["ReadOnlyMany"]
        assert {"read-only", "allow-other", f"region {place.region}"} <= set(spec["mountOptions"])
        assert spec["csi"]["volumeAttributes"] == {
            "bucketName": names.bucket_name(place),
            "authenticationSource": "pod",
        }
        assert (spec["persistentVolumeReclaimPolicy"], spec.get("storageClassName")) == (
            "Retain",
            None,
        )
    assert {
        claim["spec"]["storageClassName"] for claim in claims(environment, experiment).values()
    } == {""}


@pytest.mark.parametrize(
    ("environment", "gbps"), [("post-us-east-2", 200), ("dev-trn2-3xlarge", 50)]
)
def test_a_volume_names_the_nodes_throughput(environment: str, gbps: int) -> None:
    experiment, *_ = experiments(ENVIRONMENTS[environment])
    found = {
        tuple(volume["spec"]["mountOptions"][3:-1])
        for volume in volumes(environment, experiment.name).values()
    }
    assert found == {(f"maximum-throughput-gbps {gbps}",)}


@each_experiment
def test_a_volume_and_its_claim_name_each_other(environment: str, experiment: str) -> None:
    space = names.experiment_namespace(EXPERIMENTS[experiment])
    bound = {
        name: volume["spec"]["claimRef"]
        for name, volume in volumes(environment, experiment).items()
    }
    wanted = {
        claim["spec"]["volumeName"]: name for name, claim in claims(environment, experiment).items()
    }
    assert bound == {
        volume: {"namespace": space, "name": claim} for volume, claim in wanted.items()
    }


@each_experiment
def test_every_claim_is_mounted_and_every_mounted_claim_is_there(
    environment: str, experiment: str
) -> None:
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for template in templates(stages(environment, experiment)["serve"]).values()
        for volume in template["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }

    assert used == set(claims(environment, experiment))


@each_experiment
def test_each_artifacts_key_stands_once_and_never_changes(
    environment: str, experiment: str
) -> None:
    spec = EXPERIMENTS[experiment]
    keys = {compute_artifact_key(spec, each, CATALOGUE).digest for each in spec.all_variants()}
    bodies = objects(environment, experiment)
    maps = of_kind(bodies, "ConfigMap")

    assert {name.removeprefix("key-") for name in maps} == keys
    assert all(body["immutable"] for body in maps.values())
    assert "kv_cache_quantization" not in json.dumps(
        [body for body in bodies if body["kind"] != "ConfigMap"]
    )
