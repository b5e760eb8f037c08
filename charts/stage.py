"""Staging: one suspended CronJob for each model snapshot of an experiment.

Invariant: the pod satisfies the `restricted` Pod Security Standard and needs no accelerator. A manifest names the
    secret
of a hub's token, and never holds the token.

Two experiments that share a model have a CronJob each, in their own namespaces: the second one finds the snapshot and
ends at once.
"""

from __future__ import annotations

from charts import pod
from charts.manifest import Object
from charts.network import STAGE
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.disk import stage_gib
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.model import ModelConfig
from tandem.spec.quantity import spell_gib, spell_thousandths
from tandem.spec.system_jobs import STAGE_CPU_M

DEADLINE_S = 6 * 3600  # 65 GB at 5 MB/s take under 4 hours
RETRIES = 6  # every retry continues where the last one ended


def build_stage_jobs(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the CronJobs that stage an experiment's target and drafts."""
    return [
        pod.build_cron_job(
            names.stage_job_name(model), experiment, component=STAGE, annotations={"tandem/model": model.full_id()},
            deadline_s=DEADLINE_S, retries=RETRIES, pod=_build_pod(environment, model),
        )
        for model in (catalogue.models[name] for name in experiment.all_models())
    ]  # fmt: skip


def _build_pod(environment: Environment, model: ModelConfig) -> Object:
    disk, hub = stage_gib(model), environment.hub
    options = {
        "--bucket": names.bucket_name(environment),
        "--model": model.id,
        "--revision": model.revision_or_main(),
        "--work": names.WORK_MOUNT,
    }
    hub_variables = {"HF_ENDPOINT": hub.endpoint, "TANDEM_HUB_TOKEN_SECRET": hub.token_secret}
    container = pod.build_tool_container(
        environment, "stage", ["stage", *pod.list_options(options)],
        variables=[
            *pod.holder_variables(), *(pod.env_variable(name, value) for name, value in hub_variables.items() if value),
        ],
        # the limit protects cluster DNS, which runs on the same small nodes
        requests={"cpu": spell_thousandths(STAGE_CPU_M), "ephemeral-storage": spell_gib(disk)}, limits={"cpu": "1"},
    )  # fmt: skip
    return {
        **pod.pod_head(names.STAGE_ACCOUNT, restartPolicy="OnFailure"),
        "nodeSelector": pod.SYSTEM_NODES,
        "containers": [container],
        "volumes": [pod.local_disk_volume("work", disk)],
    }
