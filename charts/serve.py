"""The servers: one Deployment and one Service per variant.

Invariant: the pods of two variants differ only in their names, their raise label, their speculation fields and their
artifact. No server starts before its artifact was compared with its settings. The runner of an experiment owns the
number of pods, so no manifest states `replicas`.
"""

from __future__ import annotations

import json

from charts import pod
from charts.manifest import COMPONENT, IGNORE_HEALTH, NAME, PART_OF, Object, build_object, object_labels
from charts.network import SERVER
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.disk import artifact_gib, largest_pair
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.quantity import spell_count, spell_gib
from tandem.spec.server_command import build_server_command
from tandem.spec.variant_key import compute_artifact_key

# The maximum, which Kubernetes reads as no deadline: a pod of a parked environment may wait for a node for weeks, and
# that is no failed rollout (k8s.io/kubernetes deployment util, HasProgressDeadline).
NO_DEADLINE_S = 2_147_483_647
GRACE_S = 120  # below the 600 s that a Mountpoint pod lives on after SIGTERM (mountpoint-s3-csi-driver, 2026-08)
LABEL_CHARACTERS = 63
CONTAINER, ADMIT = "vllm", "admit"
BUCKET_VOLUME_MOUNT = {"name": "stored", "mountPath": names.BUCKET_ARTIFACT_MOUNT, "readOnly": True}
LINK_GIB = 1  # an artifact on the mount is a link on local disk
# A warm start reads the weights from S3 and loads a compiled artifact: minutes. An hour leaves room for the largest
# model and still ends a start that never succeeds.
STARTUP_PERIOD_S = 10
STARTUP_FAILURES = 360
COMPLETION_TIMEOUT_S = 60
PROGRAM = """\
from urllib.request import Request, urlopen
body = b'{body}'
kind = {{"Content-Type": "application/json"}}
urlopen(Request("http://127.0.0.1:{port}/v1/completions", body, kind), timeout={timeout}).read()
"""


def build_servers(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the Deployments and Services of one experiment."""
    namespace, objects = names.experiment_namespace(experiment), []
    for variant in experiment.all_variants():
        labels, selector = object_labels(variant.name, SERVER), {NAME: variant.name, COMPONENT: SERVER}
        deployment = {
            # a rolling update deadlocks: the new pod waits for the old one's devices
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": NO_DEADLINE_S,
            "selector": {"matchLabels": selector},
            "template": {
                # the reader's role is for Mountpoint, whose token the kubelet gives to the CSI driver; no container
                # needs one
                "metadata": {
                    "labels": selector | PART_OF, "annotations": {pod.SKIP_CREDENTIALS: f"{ADMIT},{CONTAINER}"},
                },
                "spec": build_server_pod(environment, experiment, variant, catalogue) | _single_pod_affinity(selector),
            },
        }  # fmt: skip
        service = {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [{"name": "http", "port": names.SERVER_PORT, "targetPort": "http", "protocol": "TCP"}],
        }
        objects += [
            build_object(
                "apps/v1", "Deployment", variant.name, {"spec": deployment}, namespace=namespace, wave=pod.WAVE,
                labels=labels | speculation_labels(variant), annotations=IGNORE_HEALTH,
            ),
            build_object(
                "v1", "Service", variant.name, {"spec": service}, namespace=namespace, wave=pod.WAVE, labels=labels
            ),
        ]  # fmt: skip
    return objects


def speculation_labels(variant: Variant) -> dict[str, str]:
    """Return the labels for `kubectl get deploy -L`: mode, draft and window, as far as a label can spell them."""
    draft = (variant.draft or "none").rpartition("/")[2][:LABEL_CHARACTERS].strip("-_.")
    return {
        "tandem/mode": variant.mode,
        "tandem/draft": draft,
        "tandem/num-speculative-tokens": str(variant.num_speculative_tokens or 0),
    }


def _single_pod_affinity(selector: dict[str, str]) -> Object:
    """Return the affinity that leaves a second pod of a variant without a node, wherever the first one runs.

    A Service would send half of a measurement to the second pod. Every node of a cluster is in one region
    (kubernetes.io docs/reference/labels-annotations-taints, topology.kubernetes.io/region).
    """
    term = {"labelSelector": {"matchLabels": selector}, "topologyKey": "topology.kubernetes.io/region"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def build_server_pod(
    environment: Environment, experiment: Experiment, variant: Variant, catalogue: Catalogue
) -> Object:
    """Return the pod's spec."""
    runtime, serving = catalogue.runtimes[experiment.runtime], experiment.serving
    assert runtime.spelling is not None  # a rule refuses runtimes that are not rendered
    key = compute_artifact_key(experiment, variant, catalogue)
    is_cache = runtime.spelling.artifact_is_cache
    has_local_copy = is_cache or serving.copy_artifact
    local_gib = artifact_gib(largest_pair(experiment, catalogue)) if has_local_copy else LINK_GIB
    command = build_server_command(experiment, variant, catalogue)
    memory = spell_gib(serving.memory_gib)
    # a cache keeps locks; everything else is read only, so that a server that would compile ends at once
    artifact_mount = pod.ARTIFACT if is_cache else {**pod.ARTIFACT, "readOnly": True}
    server = {
        "name": CONTAINER,
        "image": pod.runtime_image(environment, experiment, catalogue),
        "command": list(command.command),
        "args": list(command.arguments),
        "env": [pod.env_variable(name, value) for name, value in command.environment.items()],
        "ports": [{"name": "http", "containerPort": names.SERVER_PORT, "protocol": "TCP"}],
        **build_probes(experiment.target),
        "resources": {  # no CPU limit: throttling would be measured as the model's latency
            "requests": {
                "cpu": spell_count(serving.cpu),
                "memory": memory,
                "ephemeral-storage": spell_gib(local_gib),
            },
            "limits": {"memory": memory},
            "claims": [{"name": pod.CLAIM}],
        },
        "securityContext": pod.RUNTIME_SECURITY[environment.serving.capabilities],
        "volumeMounts": [
            {**pod.MODELS, "readOnly": True}, artifact_mount, *([] if has_local_copy else [BUCKET_VOLUME_MOUNT]),
            pod.SHM_MOUNT,
        ],
    }  # fmt: skip
    claims = {
        "models": names.models_volume_name(environment, experiment),
        "stored": names.artifact_volume_name(environment, experiment, key),
    }
    return {
        **pod.pod_head(names.SERVE_ACCOUNT, terminationGracePeriodSeconds=GRACE_S),
        "nodeSelector": {
            pod.INSTANCE_TYPE: environment.capacity.instance_type,
            # the raise sets it on a node for this variant: a waiting pod takes nobody else's node
            names.raise_label(variant): experiment.name,
        },
        "tolerations": [pod.TOLERATION],
        "resourceClaims": [pod.device_claim(environment, experiment)],
        "initContainers": [
            _build_admit_container(environment, experiment, variant, catalogue, has_local_copy=has_local_copy)
        ],
        "containers": [server],
        "volumes": [
            *(
                {"name": name, "persistentVolumeClaim": {"claimName": claim_name, "readOnly": True}}
                for name, claim_name in claims.items()
            ),
            pod.local_disk_volume("artifact", local_gib),
            pod.local_disk_volume("work", LINK_GIB),
            pod.shared_memory(serving.shm_gib * 1024),
        ],
    }


def _build_admit_container(
    environment: Environment, experiment: Experiment, variant: Variant, catalogue: Catalogue, *, has_local_copy: bool
) -> Object:
    """Return the init container that lets the server start with its own artifact, or reports why not.

    It only reads mounts, so it needs neither a way out nor a credential.
    """
    key = compute_artifact_key(experiment, variant, catalogue)
    models = pod.variant_models(experiment, variant, catalogue)
    compile_command = names.compile_command(environment.name, experiment.name)
    mounts = {"--stored": names.BUCKET_ARTIFACT_MOUNT, "--models": names.MODELS_MOUNT}
    artifact_options = ["--artifact", names.ARTIFACT_MOUNT, *(["--copy"] if has_local_copy else [])]
    return pod.build_tool_container(
        environment, ADMIT, ["admit", *pod.list_options(mounts), *pod.model_options(models), *artifact_options],
        variables=[
            pod.key_variable(key),
            pod.env_variable("TANDEM_COMPILE_COMMAND", compile_command),
            pod.stage_command_variable(environment, experiment),
        ],
        requests={"cpu": "2"}, mounts=[{**pod.MODELS, "readOnly": True}, BUCKET_VOLUME_MOUNT, pod.ARTIFACT],
    )  # fmt: skip


def build_probes(model: str) -> dict[str, Object]:
    """Return the probes that decide when a server of `model` counts as started, ready and alive.

    Started means that the device answered once. On Neuron `/health` proves the process, not the device (the plugin's
    own check does nothing, vllm-neuron 0.2.0 neuron_worker.py), so the first probe requests one token. The later ones
    must cost a measurement nothing and request `/health`.
    """
    health = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 10}
    return {
        "startupProbe": {
            "exec": {"command": ["python", "-c", probe_program(model)]},
            "periodSeconds": STARTUP_PERIOD_S,
            "timeoutSeconds": COMPLETION_TIMEOUT_S,
            "failureThreshold": STARTUP_FAILURES,
        },
        "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 3},
        # two minutes of silence: a restart during a run costs more than a late one
        "livenessProbe": {**health, "periodSeconds": 15, "failureThreshold": 8},
    }


def probe_program(model: str) -> str:
    """Return the Python program that requests one token from the server and fails without it."""
    body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0})
    return PROGRAM.format(port=names.SERVER_PORT, body=body, timeout=COMPLETION_TIMEOUT_S - 5)
