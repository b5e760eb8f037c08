"""The runner: one pod that takes requests from the bucket and runs experiments, and its rights in the cluster.

Invariant: its Roles are the rows of RUNNER_CLUSTER_RIGHTS and no more: it makes Jobs and scales Deployments in the
experiments' namespaces, and reads; it writes to no node. charts/base.py renders the Roles of an experiment's namespace,
so that nothing here needs an experiment to be applied first. The Deployment starts no second pod while the first lives
(Recreate). If one still lives, e.g. on a node that Kubernetes lost, `runner.json` decides. Nobody may call it. Its
specs are in a ConfigMap, not in its image; another digest of them is another pod.

Its token of the Kubernetes API is the only one in our pods.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial

from charts import pod
from charts.base import security_labels
from charts.manifest import COMPONENT, NAME, PART_OF, Object, build_object, object_labels
from charts.network import RUNNER, build_runner_policies
from charts.roles import build_runner_roles
from tandem.ops.people.cluster_rights import RUNNER_ACCOUNT, RUNNER_NAMESPACE
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.project_image import RUN
from tandem.spec.quantity import spell_gib, spell_mib, spell_thousandths
from tandem.spec.spec_digest import dump_record_yaml
from tandem.spec.system_jobs import RUNNER_CPU_M, RUNNER_MEMORY_MIB

FOLDER = "runner"
WAVE, POD_WAVE = 0, 1
SPECS, SPECS_MOUNT = "specs", "/specs"
DIGEST_CHARACTERS = 16
TERMINATION_S = 60  # after SIGTERM it finishes the current write
DISK_GIB = 1


def render_runner(environment: Environment, experiments: Sequence[Experiment]) -> dict[str, list[Object]]:
    """Return the objects of the runner: those of the cluster and of its namespace, then its pod."""
    specs = _build_specs(environment, experiments)
    labels = object_labels(RUNNER, RUNNER) | security_labels(environment, "restricted")
    build = partial(_build_object, namespace=RUNNER_NAMESPACE)
    deployment = {"spec": _build_deployment_spec(environment, specs)}
    return {
        "cluster": [
            build_object("v1", "Namespace", RUNNER_NAMESPACE, {}, labels=labels, wave=WAVE),
            build("v1", "ServiceAccount", RUNNER_ACCOUNT, {"automountServiceAccountToken": False}),
            build("v1", "ConfigMap", SPECS, {"data": specs}),
            *(
                build("networking.k8s.io/v1", "NetworkPolicy", name, {"spec": spec})
                for name, spec in build_runner_policies(environment).items()
            ),
            *build_runner_roles(None),
        ],
        "pod": [build("apps/v1", "Deployment", RUNNER, deployment, wave=POD_WAVE)],
    }


def _build_object(api: str, kind: str, name: str, body: Object, *, namespace: str, wave: int = WAVE) -> Object:
    return build_object(api, kind, name, body, namespace=namespace, labels=object_labels(name, RUNNER), wave=wave)


def _build_specs(environment: Environment, experiments: Sequence[Experiment]) -> dict[str, str]:
    """Return the declared files by the keys of their ConfigMap: a key has no slash."""
    return {
        "environment.yaml": dump_record_yaml(environment),
        **{f"experiment.{experiment.name}.yaml": dump_record_yaml(experiment) for experiment in experiments},
    }


def _build_deployment_spec(environment: Environment, specs: dict[str, str]) -> Object:
    labels = {NAME: RUNNER, COMPONENT: RUNNER, **PART_OF}
    digest = hashlib.sha256(json.dumps(specs, sort_keys=True).encode()).hexdigest()[:DIGEST_CHARACTERS]
    pod_metadata = {"annotations": {"tandem/specs": digest}, "labels": labels}
    return {
        "replicas": 1,
        "strategy": {"type": "Recreate"},  # never two at once, not even during a replacement
        "selector": {"matchLabels": {NAME: RUNNER}},
        "template": {"metadata": pod_metadata, "spec": _build_pod(environment, list(specs))},
    }


def _build_pod(environment: Environment, keys: list[str]) -> Object:
    paths = [f"environments/{environment.name}.yaml", *(key.replace(".", "s/", 1) for key in keys[1:])]
    items = [{"key": key, "path": path} for key, path in zip(keys, paths, strict=True)]
    memory = {"memory": spell_mib(RUNNER_MEMORY_MIB)}
    container = {
        "name": RUNNER,
        "image": RUN.reference(environment),
        "args": ["serve", *pod.list_options({"--environment": environment.name, "--specs": SPECS_MOUNT})],
        "env": [
            pod.env_variable("AWS_REGION", environment.region),
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}},
        ],
        "resources": {
            "requests": {
                **memory,
                "cpu": spell_thousandths(RUNNER_CPU_M),
                "ephemeral-storage": spell_gib(DISK_GIB),
            },
            "limits": memory,
        },
        "securityContext": pod.RESTRICTED_SECURITY,
        "terminationMessagePolicy": pod.LAST_WORDS,
        "volumeMounts": [{"name": SPECS, "mountPath": SPECS_MOUNT, "readOnly": True}, pod.WORK],
    }
    return {
        **pod.pod_head(RUNNER_ACCOUNT, terminationGracePeriodSeconds=TERMINATION_S),
        "automountServiceAccountToken": True,
        "nodeSelector": pod.SYSTEM_NODES,
        "containers": [container],
        "volumes": [
            {"name": SPECS, "configMap": {"name": SPECS, "items": items}}, pod.local_disk_volume("work", DISK_GIB),
        ],
    }  # fmt: skip
