"""Quality: a suspended CronJob that asks the servers of an experiment its tasks.

Invariant: the container that asks runs code of others and holds no credential. Of the two with one,
the first brings only sets whose bytes have the declared digest. The last stores all files, those of
a failure too.

The files go below `results/<experiment>/quality/<job>/`. The runner says in one variable which
servers are asked, because of a sweep only a pair is there.
"""

from __future__ import annotations

from cdk8s_plus_36 import k8s

from charts import pod
from charts.experiment import ExperimentChart
from charts.network import BENCH
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.project_image import LM_EVAL
from tandem.declarations.system_jobs import (
    QUALITY_CPU_M,
    QUALITY_JOB,
    SERVERS_VARIABLE,
    compute_quality_memory_mib,
)

DEADLINE_S = 4 * 3600  # of one attempt, as MAX_QUALITY_MINUTES of tandem/run/run_plan.py
DISK_GIB = 4  # of task sets, lm-eval's copies of them, and every answer
FETCH = "fetch"
ASK = "ask"
SETS = f"{names.WORK_MOUNT}/sets"


class QualityChart(ExperimentChart):
    """The CronJob of an experiment that declares tasks (`charts.list_stages`)."""

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        pod.add_cron_job(
            self,
            QUALITY_JOB,
            component=BENCH,
            deadline_s=DEADLINE_S,
            retries=0,
            credentials_skipped_by=ASK,
            pod=pod.build_job_pod(
                names.BENCH_ACCOUNT,
                retries=0,
                init_containers=[
                    _build_fetch_container(self.environment, self.experiment),
                    _build_ask_container(self.environment, self.experiment),
                ],
                containers=[
                    pod.build_keep_container(self.environment, f"{self.experiment.name}/quality")
                ],
                volumes=[pod.local_disk_volume("work", DISK_GIB)],
            ),
        )


def _build_fetch_container(environment: Environment, experiment: Experiment) -> k8s.Container:
    options = {"--bucket": names.bucket_name(environment), "--folder": SETS}
    sets = [f"{task.name}={task.sha256}" for task in experiment.quality if task.sha256]
    words = ["fetch-tasks", *pod.list_options(options), *pod.repeat_option("--task-set", sets)]
    return pod.build_tool_container(environment, FETCH, words, requests={"cpu": "500m"})


def _build_ask_container(environment: Environment, experiment: Experiment) -> k8s.Container:
    tasks = [task.model_dump_json() for task in experiment.quality]
    options = {
        "--sets": SETS,
        "--model": experiment.target,
        "--max-prompt-tokens": experiment.max_prompt_tokens,
        "--max-tokens": experiment.max_output_tokens,
        "--out": pod.RESULTS_FOLDER,
    }
    return pod.build_bench_container(
        ASK,
        LM_EVAL.reference(environment),
        [*pod.repeat_option("--task", tasks), *pod.list_options(options)],
        cpu_m=QUALITY_CPU_M,
        memory_mib=compute_quality_memory_mib(experiment),
        disk_gib=DISK_GIB,
        variables=[k8s.EnvVar(name=SERVERS_VARIABLE)],
    )
