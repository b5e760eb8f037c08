"""The runner: one pod that takes requests from the bucket and runs experiments.

Invariant: the Deployment starts no second pod while the first lives (Recreate). If one still lives,
e.g. on a node that Kubernetes lost, `runner.json` decides. Its specs are in a ConfigMap, not in its
image; another digest of them is another pod.

Its token of the Kubernetes API is the only one in our pods.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from cdk8s_plus_36 import k8s
from constructs import Construct

from charts import pod
from charts.chart import COMPONENT, NAME, PART_OF, TandemChart
from charts.network import RUNNER
from tandem.declarations.environment import Environment
from tandem.declarations.project_image import RUN
from tandem.declarations.quantity import spell_gib, spell_mib, spell_thousandths
from tandem.declarations.system_jobs import RUNNER_CPU_M, RUNNER_MEMORY_MIB
from tandem.ops.people.cluster_rights import RUNNER_ACCOUNT, RUNNER_NAMESPACE

WAVE = 1
SPECS = "specs"
SPECS_MOUNT = "/specs"
DIGEST_CHARACTERS = 16
TERMINATION_S = 60  # after SIGTERM it finishes the current write
DISK_GIB = 1


class RunnerPodChart(TandemChart):
    """The Deployment of the runner.

    Args:
        specs: the declared files by the keys of their ConfigMap; that of the environment is the
            first.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, specs: Mapping[str, str]
    ) -> None:
        super().__init__(scope, id_, namespace=RUNNER_NAMESPACE, wave=WAVE)
        digest = hashlib.sha256(json.dumps(specs, sort_keys=True).encode()).hexdigest()[
            :DIGEST_CHARACTERS
        ]
        memory = spell_mib(RUNNER_MEMORY_MIB)
        disk = spell_gib(DISK_GIB)
        requests = {
            "memory": memory,
            "cpu": spell_thousandths(RUNNER_CPU_M),
            "ephemeral-storage": disk,
        }

        k8s.KubeDeployment(
            self,
            "runner",
            metadata=self.build_metadata(RUNNER, RUNNER),
            spec=k8s.DeploymentSpec(
                replicas=1,
                # never two at once, not even during a replacement
                strategy=k8s.DeploymentStrategy(type="Recreate"),
                selector=k8s.LabelSelector(match_labels={NAME: RUNNER}),
                template=k8s.PodTemplateSpec(
                    metadata=k8s.ObjectMeta(
                        annotations={"tandem/specs": digest},
                        labels={NAME: RUNNER, COMPONENT: RUNNER, **PART_OF},
                    ),
                    spec=k8s.PodSpec(
                        service_account_name=RUNNER_ACCOUNT,
                        automount_service_account_token=True,
                        enable_service_links=False,
                        termination_grace_period_seconds=TERMINATION_S,
                        security_context=pod.POD_SECURITY,
                        node_selector=pod.SYSTEM_NODES,
                        containers=[
                            k8s.Container(
                                name=RUNNER,
                                image=RUN.reference(environment),
                                args=[
                                    "serve",
                                    "--environment",
                                    environment.name,
                                    "--specs",
                                    SPECS_MOUNT,
                                ],
                                env=[
                                    k8s.EnvVar(name="AWS_REGION", value=environment.region),
                                    pod.field_variable("POD_UID", "metadata.uid"),
                                ],
                                resources=k8s.ResourceRequirements(
                                    requests=pod.parse_quantities(requests),
                                    limits=pod.parse_quantities({"memory": memory}),
                                ),
                                security_context=pod.RESTRICTED_SECURITY,
                                termination_message_policy=pod.LAST_WORDS,
                                volume_mounts=[
                                    k8s.VolumeMount(
                                        name=SPECS, mount_path=SPECS_MOUNT, read_only=True
                                    ),
                                    pod.WORK,
                                ],
                            )
                        ],
                        volumes=[
                            k8s.Volume(
                                name=SPECS,
                                config_map=k8s.ConfigMapVolumeSource(
                                    name=SPECS, items=_list_paths(environment, specs)
                                ),
                            ),
                            pod.local_disk_volume("work", DISK_GIB),
                        ],
                    ),
                ),
            ),
        )


def _list_paths(environment: Environment, keys: Iterable[str]) -> list[k8s.KeyToPath]:
    """Return the place of each declared file in the pod, as in a checkout."""
    environment_key, *experiment_keys = keys
    return [
        k8s.KeyToPath(key=environment_key, path=f"environments/{environment.name}.yaml"),
        *(k8s.KeyToPath(key=key, path=key.replace(".", "s/", 1)) for key in experiment_keys),
    ]
