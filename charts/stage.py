"""Staging: one suspended CronJob for each model snapshot of an experiment.

Invariant: the pod satisfies the `restricted` Pod Security Standard and needs no accelerator; a token of the hub
is named by its secret and never stands in a manifest.

Two experiments that share a model have a CronJob each, in their own namespaces: who comes second finds the
snapshot there and ends at once.
"""

from __future__ import annotations

from charts.jobs import JobSpec, build_cron_job
from charts.manifest import Object
from charts.network import STAGE
from charts.tools import ToolStep, build_container, env_variable, holder_variables, local_disk_volume
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.disk import stage_gib
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.model import ModelConfig
from tandem.spec.system_jobs import STAGE_CPU_M

DEADLINE_S = 6 * 3600  # 65 GB at 5 MB/s take under 4 hours
RETRIES = 6  # every retry goes on where the last one ended
SYSTEM_NODES = {"workload": "system"}


def build_stage_jobs(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the CronJobs that stage an experiment's target and drafts."""
    return [
        build_cron_job(
            JobSpec(
                name=names.stage_job_name(model),
                namespace=names.experiment_namespace(experiment),
                component=STAGE,
                annotations={"tandem/model": model.full_id()},
                deadline_s=DEADLINE_S,
                retries=RETRIES,
                pod_annotations={},
                pod=_build_pod(environment, model),
            )
        )
        for model in (catalogue.models[name] for name in experiment.all_models())
    ]


def _build_pod(environment: Environment, model: ModelConfig) -> Object:
    disk = stage_gib(model)
    hub = environment.hub
    step = ToolStep(
        name="stage",
        arguments=[
            "stage", "--bucket", names.bucket_name(environment), "--model", model.id,
            "--revision", model.revision_or_main(), "--work", names.WORK_MOUNT,
        ],
        variables=[
            *holder_variables(),
            *([env_variable("HF_ENDPOINT", hub.endpoint)] if hub.endpoint else []),
            *([env_variable("TANDEM_HUB_TOKEN_SECRET", hub.token_secret)] if hub.token_secret else []),
        ],
        # the limit keeps cluster DNS alive, which runs on the same small nodes
        requests={"cpu": f"{STAGE_CPU_M}m", "ephemeral-storage": f"{disk}Gi"},
        limits={"cpu": "1"},
    )  # fmt: skip
    return {
        "serviceAccountName": names.STAGE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "OnFailure",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": SYSTEM_NODES,
        "containers": [build_container(environment, step)],
        "volumes": [local_disk_volume("work", disk)],
    }
