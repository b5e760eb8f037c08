"""The bucket's prefixes as read-only volumes (models, each compiled artifact); each artifact's key.

Invariant: a server can read the files that it must serve and write nothing. So a stale artifact
fails at once, and no server compiles it again for hours.

The models volume is all of `models/`. A variant with a draft reads two snapshots and the baseline
one: with a volume per snapshot their pods would differ in more than speculation. Three containers
need the key of an artifact, of 1,300 characters. It is stored once, in a ConfigMap that is named by
its digest and can never be changed.
"""

from __future__ import annotations

import json

from cdk8s_plus_36 import k8s

from charts.experiment import ExperimentChart
from tandem.declarations import names
from tandem.declarations.artifact_key import KEY_ENTRY
from tandem.declarations.variant_key import compute_artifact_key

DRIVER = "s3.csi.aws.com"  # Mountpoint for Amazon S3 CSI driver v2, docs/CONFIGURATION.md, 2026-08
CAPACITY = "1Gi"  # Kubernetes requires a size; the driver ignores it


class StorageChart(ExperimentChart):
    """The volumes and claims of one experiment, then the keys of its artifacts."""

    sync_wave = 2

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        keys = [
            compute_artifact_key(self.experiment, variant, self.catalogue)
            for variant in self.experiment.all_variants()
        ]
        prefixes = {
            names.models_volume_name(self.environment, self.experiment): "models/",
            **{
                names.artifact_volume_name(self.environment, self.experiment, key): f"{key.prefix}/"
                for key in keys
            },
        }
        for name, prefix in prefixes.items():
            self._add_volume(name, prefix)

        for key in {key.digest: key for key in keys}.values():
            name = names.key_config_map_name(key)
            k8s.KubeConfigMap(
                self,
                f"key-{name}",
                metadata=self.build_metadata(
                    name,
                    "storage",
                    application=self.experiment.name,
                    annotations={"tandem/artifact": key.name},
                ),
                immutable=True,
                data={KEY_ENTRY: json.dumps(key.as_fields(), sort_keys=True)},
            )

    def _add_volume(self, name: str, prefix: str) -> None:
        """Add a volume of one prefix, and its claim.

        Mountpoint sizes its requests for 10 Gbit/s if it cannot read the node's type. With a pod's
        credentials the driver blocks its access to the metadata service
        (awslabs/mountpoint-s3-csi-driver issue 561). So its throughput, the maximum of the first
        network card of the accelerator nodes, is set here if known.
        """
        instance = self.catalogue.instances.instances[self.environment.capacity.instance_type]
        gbps = instance.network_card_gbps.value
        capacity = k8s.Quantity.from_string(CAPACITY)

        k8s.KubePersistentVolume(
            self,
            f"volume-{name}",
            metadata=self.build_metadata(
                name, "storage", application=self.experiment.name, is_clusterwide=True
            ),
            spec=k8s.PersistentVolumeSpec(
                capacity={"storage": capacity},
                access_modes=["ReadOnlyMany"],
                persistent_volume_reclaim_policy="Retain",
                claim_ref=k8s.ObjectReference(namespace=self.object_namespace, name=name),
                # allow-other: files belong to the Mountpoint pod, 0644 and 0755. Two other users
                # read them, the runtime as root and the tools. Without it the driver admits only
                # root (its pkg/driver/node).
                mount_options=[
                    "read-only",
                    "allow-other",
                    f"region {self.environment.region}",
                    *([f"maximum-throughput-gbps {gbps}"] if gbps else []),
                    f"prefix {prefix}",
                ],
                csi=k8s.CsiPersistentVolumeSource(
                    driver=DRIVER,
                    # with two volumes of one handle, pods hang in ContainerCreating
                    volume_handle=name,
                    volume_attributes={
                        "bucketName": names.bucket_name(self.environment),
                        # the role of the pod's service account, which reads; never the driver's own
                        # role
                        "authenticationSource": "pod",
                    },
                ),
            ),
        )

        k8s.KubePersistentVolumeClaim(
            self,
            f"claim-{name}",
            metadata=self.build_metadata(name, "storage", application=self.experiment.name),
            spec=k8s.PersistentVolumeClaimSpec(
                access_modes=["ReadOnlyMany"],
                storage_class_name="",  # static: without it the cluster's default class would apply
                volume_name=name,
                resources=k8s.VolumeResourceRequirements(requests={"storage": capacity}),
            ),
        )
