"""The bucket's prefixes as read-only volumes, one of models, one per compiled artifact; and each artifact's key.

Invariant: a server can read the files that it must serve and write nothing. So a stale artifact fails at once, and no
server compiles it again for hours.

The models volume is all of `models/` because a variant with a draft reads two snapshots and the baseline one: with a
volume per snapshot their pods would differ in more than speculation. Three containers need the key of an artifact, of
1,300 characters. It is stored once, in a ConfigMap that is named by its digest and can never be changed.
"""

from __future__ import annotations

import json
from functools import partial

from charts.manifest import Object, build_object, object_labels
from tandem.spec import names
from tandem.spec.artifact_key import KEY_ENTRY
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.variant_key import compute_artifact_key

WAVE = 2
DRIVER = "s3.csi.aws.com"  # Mountpoint for Amazon S3 CSI driver v2, docs/CONFIGURATION.md, 2026-08
CAPACITY = "1Gi"  # Kubernetes requires a size; the driver ignores it


def build_storage(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the volumes and claims of one experiment, then the keys of its artifacts."""
    namespace = names.experiment_namespace(experiment)
    keys = [compute_artifact_key(experiment, variant, catalogue) for variant in experiment.all_variants()]
    prefixes = {
        names.models_volume_name(environment, experiment): "models/",
        **{names.artifact_volume_name(environment, experiment, key): f"{key.prefix}/" for key in keys},
    }
    build = partial(build_object, labels=object_labels(experiment.name, "storage"), wave=WAVE)
    objects = []
    for name, prefix in prefixes.items():
        volume = _build_volume_spec(name, namespace, prefix, environment, catalogue)
        claim = {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",  # static: without it the cluster's default class would apply
            "volumeName": name,
            "resources": {"requests": {"storage": CAPACITY}},
        }
        objects += [
            build("v1", "PersistentVolume", name, {"spec": volume}),
            build("v1", "PersistentVolumeClaim", name, {"spec": claim}, namespace=namespace),
        ]
    for key in {key.digest: key for key in keys}.values():
        data = {"immutable": True, "data": {KEY_ENTRY: json.dumps(key.as_fields(), sort_keys=True)}}
        name, annotations = names.key_config_map_name(key), {"tandem/artifact": key.name}
        objects.append(build("v1", "ConfigMap", name, data, namespace=namespace, annotations=annotations))
    return objects


def _build_volume_spec(
    name: str, namespace: str, prefix: str, environment: Environment, catalogue: Catalogue
) -> Object:
    """Return a volume of one prefix.

    Mountpoint sizes its requests for 10 Gbit/s if it cannot read the node's type, and with a pod's credentials the
    driver blocks its access to the metadata service (awslabs/mountpoint-s3-csi-driver issue 561). So its throughput,
    the maximum of the first network card of the accelerator nodes, is set here if known.
    """
    gbps = catalogue.instances.instances[environment.capacity.instance_type].network_card_gbps.value
    return {
        "capacity": {"storage": CAPACITY},
        "accessModes": ["ReadOnlyMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": namespace, "name": name},
        # allow-other: files belong to the Mountpoint pod, 0644 and 0755, and two other users read them, the runtime as
        # root and the tools; without it the driver admits only root (its pkg/driver/node)
        "mountOptions": [
            "read-only",
            "allow-other",
            f"region {environment.region}",
            *([f"maximum-throughput-gbps {gbps}"] if gbps else []),
            f"prefix {prefix}",
        ],
        "csi": {
            "driver": DRIVER,
            "volumeHandle": name,  # with two volumes of one handle, pods hang in ContainerCreating
            "volumeAttributes": {
                "bucketName": names.bucket_name(environment),
                # the role of the pod's service account, which reads; never the driver's own role
                "authenticationSource": "pod",
            },
        },
    }
