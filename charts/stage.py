"""Staging: one suspended CronJob for each model snapshot of an experiment.

Invariant: the pod satisfies the `restricted` Pod Security Standard and needs no accelerator. A
manifest names the secret of a hub's token, and never holds the token.

Two experiments that share a model have a CronJob each, in their own namespaces: the second one
finds the snapshot and ends at once.
"""

from __future__ import annotations

from cdk8s_plus_36 import k8s

from charts import pod
from charts.experiment import ExperimentChart
from charts.network import STAGE
from tandem.declarations import names
from tandem.declarations.disk import stage_gib
from tandem.declarations.environment import Environment
from tandem.declarations.model import ModelConfig
from tandem.declarations.quantity import spell_gib, spell_thousandths
from tandem.declarations.system_jobs import STAGE_CPU_M

DEADLINE_S = 6 * 3600  # 65 GB at 5 MB/s take under 4 hours
RETRIES = 6  # every retry continues where the last one ended


class StageChart(ExperimentChart):
    """The CronJobs that stage an experiment's target and drafts."""

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        for name in self.experiment.all_models():
            model = self.catalogue.models[name]
            disk = stage_gib(model)
            pod.add_cron_job(
                self,
                names.stage_job_name(model),
                component=STAGE,
                annotations={"tandem/model": model.full_id()},
                deadline_s=DEADLINE_S,
                retries=RETRIES,
                pod=pod.build_job_pod(
                    names.STAGE_ACCOUNT,
                    retries=RETRIES,
                    containers=[_build_container(self.environment, model, disk)],
                    volumes=[pod.local_disk_volume("work", disk)],
                ),
            )


def _build_container(environment: Environment, model: ModelConfig, disk_gib: int) -> k8s.Container:
    options = {
        "--bucket": names.bucket_name(environment),
        "--model": model.id,
        "--revision": model.revision_or_main(),
        "--work": names.WORK_MOUNT,
    }
    hub = environment.hub
    hub_settings = {"HF_ENDPOINT": hub.endpoint, "TANDEM_HUB_TOKEN_SECRET": hub.token_secret}
    hub_variables = [
        k8s.EnvVar(name=name, value=value) for name, value in hub_settings.items() if value
    ]
    return pod.build_tool_container(
        environment,
        "stage",
        ["stage", *pod.list_options(options)],
        variables=[*pod.holder_variables(), *hub_variables],
        requests={"cpu": spell_thousandths(STAGE_CPU_M), "ephemeral-storage": spell_gib(disk_gib)},
        limits={"cpu": "1"},  # protects cluster DNS, which runs on the same small nodes
    )
