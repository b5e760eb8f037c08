"""The servers: one Deployment and one Service per variant.

Invariant: the pods of two variants differ only in their names, their raise label, their speculation
fields and their artifact. No server starts before its artifact was compared with its settings. The
runner of an experiment owns the number of pods, so no manifest states `replicas`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from cdk8s_plus_36 import k8s

from charts import pod
from charts.chart import COMPONENT, IGNORE_HEALTH, NAME, PART_OF
from charts.experiment import ExperimentChart
from charts.network import SERVER
from tandem.declarations import names
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.disk import artifact_gib, largest_pair
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment, Variant
from tandem.declarations.quantity import spell_count, spell_gib
from tandem.declarations.server_command import build_server_command
from tandem.declarations.variant_key import compute_artifact_key

# The maximum, which Kubernetes reads as no deadline (k8s.io/kubernetes deployment util,
# HasProgressDeadline). A pod of a parked environment may wait for a node for weeks, and that is no
# failed rollout.
NO_DEADLINE_S = 2_147_483_647
# below the 600 s that a Mountpoint pod lives on after SIGTERM (mountpoint-s3-csi-driver, 2026-08)
GRACE_S = 120
LABEL_CHARACTERS = 63
CONTAINER = "vllm"
ADMIT = "admit"
BUCKET_VOLUME_MOUNT = k8s.VolumeMount(
    name="stored", mount_path=names.BUCKET_ARTIFACT_MOUNT, read_only=True
)
ARTIFACT_READ_ONLY = k8s.VolumeMount(
    name="artifact", mount_path=names.ARTIFACT_MOUNT, read_only=True
)
LINK_GIB = 1  # an artifact on the mount is a link on local disk
# A warm start reads the weights from S3 and loads a compiled artifact: minutes. An hour leaves room
# for the largest model and still ends a start that never succeeds.
STARTUP_PERIOD_S = 10
STARTUP_FAILURES = 360
COMPLETION_TIMEOUT_S = 60
PROGRAM = """\
from urllib.request import Request, urlopen
body = b'{body}'
kind = {{"Content-Type": "application/json"}}
urlopen(Request("http://127.0.0.1:{port}/v1/completions", body, kind), timeout={timeout}).read()
"""


class ServeChart(ExperimentChart):
    """The Deployments and Services of one experiment."""

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        for variant in self.experiment.all_variants():
            selector = {NAME: variant.name, COMPONENT: SERVER}
            k8s.KubeDeployment(
                self,
                variant.name,
                metadata=self.build_metadata(
                    variant.name,
                    SERVER,
                    labels=speculation_labels(variant),
                    annotations=IGNORE_HEALTH,
                ),
                spec=k8s.DeploymentSpec(
                    # a rolling update deadlocks: the new pod waits for the old one's devices
                    strategy=k8s.DeploymentStrategy(type="Recreate"),
                    revision_history_limit=3,
                    progress_deadline_seconds=NO_DEADLINE_S,
                    selector=k8s.LabelSelector(match_labels=selector),
                    template=k8s.PodTemplateSpec(
                        metadata=k8s.ObjectMeta(
                            labels={**selector, **PART_OF},
                            # the reader's role is for Mountpoint, whose token the kubelet gives to
                            # the CSI driver; no container needs one
                            annotations={pod.SKIP_CREDENTIALS: f"{ADMIT},{CONTAINER}"},
                        ),
                        spec=build_server_pod(
                            self.environment, self.experiment, variant, self.catalogue
                        ),
                    ),
                ),
            )

            k8s.KubeService(
                self,
                f"service-{variant.name}",
                metadata=self.build_metadata(variant.name, SERVER),
                spec=k8s.ServiceSpec(
                    type="ClusterIP",
                    selector=selector,
                    ports=[
                        k8s.ServicePort(
                            name="http",
                            port=names.SERVER_PORT,
                            target_port=k8s.IntOrString.from_string("http"),
                            protocol="TCP",
                        )
                    ],
                ),
            )


def speculation_labels(variant: Variant) -> dict[str, str]:
    """Return labels for `kubectl get deploy -L`: mode, draft, window, as a label can spell them."""
    draft = (variant.draft or "none").rpartition("/")[2][:LABEL_CHARACTERS].strip("-_.")
    return {
        "tandem/mode": variant.mode,
        "tandem/draft": draft,
        "tandem/num-speculative-tokens": str(variant.num_speculative_tokens or 0),
    }


def build_server_pod(
    environment: Environment, experiment: Experiment, variant: Variant, catalogue: Catalogue
) -> k8s.PodSpec:
    """Return the pod's spec."""
    runtime = catalogue.runtimes[experiment.runtime]
    assert runtime.spelling is not None  # a rule refuses runtimes that are not rendered
    key = compute_artifact_key(experiment, variant, catalogue)
    is_cache = runtime.spelling.artifact_is_cache
    has_local_copy = is_cache or experiment.serving.copy_artifact
    local_gib = artifact_gib(largest_pair(experiment, catalogue)) if has_local_copy else LINK_GIB
    # a cache keeps locks; everything else is read only, so that a server that would compile ends at
    # once
    artifact_mounts = [pod.ARTIFACT if is_cache else ARTIFACT_READ_ONLY]
    if not has_local_copy:
        artifact_mounts.append(BUCKET_VOLUME_MOUNT)

    return k8s.PodSpec(
        service_account_name=names.SERVE_ACCOUNT,
        automount_service_account_token=False,
        enable_service_links=False,  # a Service named vllm would set VLLM_PORT, which vLLM reads
        termination_grace_period_seconds=GRACE_S,
        security_context=pod.POD_SECURITY,
        node_selector={
            pod.INSTANCE_TYPE: environment.capacity.instance_type,
            # the raise sets it on a node for this variant: a waiting pod takes nobody else's node
            names.raise_label(variant): experiment.name,
        },
        affinity=_single_pod_affinity(variant),
        tolerations=[pod.TOLERATION],
        resource_claims=[pod.device_claim(environment, experiment)],
        init_containers=[
            _build_admit_container(
                environment, experiment, variant, catalogue, has_local_copy=has_local_copy
            )
        ],
        containers=[
            _build_server_container(
                environment,
                experiment,
                variant,
                catalogue,
                disk_gib=local_gib,
                artifact_mounts=artifact_mounts,
            ),
        ],
        volumes=[
            _build_bucket_volume("models", names.models_volume_name(environment, experiment)),
            _build_bucket_volume(
                "stored", names.artifact_volume_name(environment, experiment, key)
            ),
            pod.local_disk_volume("artifact", local_gib),
            pod.local_disk_volume("work", LINK_GIB),
            pod.shared_memory(experiment.serving.shm_gib * 1024),
        ],
    )


def _build_server_container(
    environment: Environment,
    experiment: Experiment,
    variant: Variant,
    catalogue: Catalogue,
    *,
    disk_gib: int,
    artifact_mounts: Sequence[k8s.VolumeMount],
) -> k8s.Container:
    """Return the container of the runtime's image, which serves.

    Args:
        disk_gib: local disk of the artifact.
        artifact_mounts: of the artifact, and of its folder in the bucket if it is read from there.
    """
    command = build_server_command(experiment, variant, catalogue)
    memory = spell_gib(experiment.serving.memory_gib)
    requests = {
        "cpu": spell_count(experiment.serving.cpu),
        "memory": memory,
        "ephemeral-storage": spell_gib(disk_gib),
    }
    later_probe = k8s.HttpGetAction(path="/health", port=k8s.IntOrString.from_string("http"))

    return k8s.Container(
        name=CONTAINER,
        image=pod.runtime_image(environment, experiment, catalogue),
        command=list(command.command),
        args=list(command.arguments),
        env=[
            *(k8s.EnvVar(name=name, value=value) for name, value in command.environment.items()),
        ],
        ports=[k8s.ContainerPort(name="http", container_port=names.SERVER_PORT, protocol="TCP")],
        # Started means that the device answered once. On Neuron `/health` proves the process, not
        # the device (the plugin's own check does nothing, vllm-neuron 0.2.0 neuron_worker.py), so
        # the first probe requests one token. The later ones must cost a measurement nothing and
        # request `/health`.
        startup_probe=k8s.Probe(
            exec=k8s.ExecAction(command=["python", "-c", probe_program(experiment.target)]),
            period_seconds=STARTUP_PERIOD_S,
            timeout_seconds=COMPLETION_TIMEOUT_S,
            failure_threshold=STARTUP_FAILURES,
        ),
        readiness_probe=k8s.Probe(
            http_get=later_probe, period_seconds=5, timeout_seconds=10, failure_threshold=3
        ),
        # two minutes of silence: a restart during a run costs more than a late one
        liveness_probe=k8s.Probe(
            http_get=later_probe, period_seconds=15, timeout_seconds=10, failure_threshold=8
        ),
        resources=k8s.ResourceRequirements(
            requests=pod.parse_quantities(requests),
            # no CPU limit: throttling would be measured as the model's latency
            limits=pod.parse_quantities({"memory": memory}),
            claims=[k8s.ResourceClaim(name=pod.CLAIM)],
        ),
        security_context=pod.RUNTIME_SECURITY[environment.serving.capabilities],
        volume_mounts=[
            pod.MODELS_READ_ONLY,
            *artifact_mounts,
            pod.SHM_MOUNT,
        ],
    )


def _single_pod_affinity(variant: Variant) -> k8s.Affinity:
    """Return the affinity that leaves no node for a second pod of a variant, wherever one runs.

    A Service would send half of a measurement to the second pod. Every node of a cluster is in one
    region (kubernetes.io docs/reference/labels-annotations-taints, topology.kubernetes.io/region).
    """
    term = k8s.PodAffinityTerm(
        label_selector=k8s.LabelSelector(match_labels={NAME: variant.name, COMPONENT: SERVER}),
        topology_key="topology.kubernetes.io/region",
    )
    return k8s.Affinity(
        pod_anti_affinity=k8s.PodAntiAffinity(
            required_during_scheduling_ignored_during_execution=[term]
        )
    )


def _build_bucket_volume(name: str, claim_name: str) -> k8s.Volume:
    """Return a volume of a prefix of the bucket (charts/storage.py)."""
    source = k8s.PersistentVolumeClaimVolumeSource(claim_name=claim_name, read_only=True)
    return k8s.Volume(name=name, persistent_volume_claim=source)


def _build_admit_container(
    environment: Environment,
    experiment: Experiment,
    variant: Variant,
    catalogue: Catalogue,
    *,
    has_local_copy: bool,
) -> k8s.Container:
    """Return the init container that lets a server start with its artifact, or reports why not.

    It only reads mounts, so it needs neither a way out nor a credential.
    """
    key = compute_artifact_key(experiment, variant, catalogue)
    models = pod.variant_models(experiment, variant, catalogue)
    compile_command = names.compile_command(environment.name, experiment.name)
    mounts = {"--stored": names.BUCKET_ARTIFACT_MOUNT, "--models": names.MODELS_MOUNT}
    artifact_options = ["--artifact", names.ARTIFACT_MOUNT]
    if has_local_copy:
        artifact_options.append("--copy")
    return pod.build_tool_container(
        environment,
        ADMIT,
        ["admit", *pod.list_options(mounts), *pod.model_options(models), *artifact_options],
        variables=[
            pod.key_variable(key),
            k8s.EnvVar(name="TANDEM_COMPILE_COMMAND", value=compile_command),
            pod.stage_command_variable(environment, experiment),
        ],
        requests={"cpu": "2"},
        mounts=[pod.MODELS_READ_ONLY, BUCKET_VOLUME_MOUNT, pod.ARTIFACT],
    )


def probe_program(model: str) -> str:
    """Return the Python program that requests one token from the server and fails without it."""
    body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0})
    return PROGRAM.format(port=names.SERVER_PORT, body=body, timeout=COMPLETION_TIMEOUT_S - 5)
