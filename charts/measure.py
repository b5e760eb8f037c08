"""Measuring and judging: two suspended CronJobs of the run image, of which the runner makes Jobs, one a round.

Invariant: the process that times tokens has a processor to itself and no right to raise anything. It writes results
alone, and talks to the servers of its own namespace, as `bench` may.

A Job's task is in the one variable that the CronJob leaves empty; the runner fills it in. Kubernetes retries nothing,
because a round that failed is another round of the journal.
"""

from __future__ import annotations

from charts import pod
from charts.manifest import Object
from charts.network import BENCH
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.project_image import RUN
from tandem.spec.system_jobs import BENCH_CPU_M, BENCH_MEMORY_MIB, JUDGE_JOB, MEASURE_JOB

TASK_VARIABLE = "TANDEM_TASK"  # as in tandem/run/run_values.py
# maximum of a Job, half an hour without S3 included; the runner's own deadlines come before
DEADLINES_S = {MEASURE_JOB: 4 * 3600, JUDGE_JOB: 2 * 3600}
DISK_GIB = 8  # of every round's records, which the judge downloads


def build_bench_jobs(environment: Environment, experiment: Experiment, _: Catalogue) -> list[Object]:
    """Return the CronJobs of a round and of the verdict."""
    return [
        pod.build_cron_job(
            name, experiment, component=BENCH, annotations={}, deadline_s=deadline_s, retries=0,
            pod=_build_pod(environment, name.removeprefix("tandem-")),
        )
        for name, deadline_s in DEADLINES_S.items()
    ]  # fmt: skip


def _build_pod(environment: Environment, command: str) -> Object:
    container = pod.build_bench_container(
        command, RUN.reference(environment), [command], cpu_m=BENCH_CPU_M, memory_mib=BENCH_MEMORY_MIB,
        disk_gib=DISK_GIB, variables=[pod.env_variable("AWS_REGION", environment.region), {"name": TASK_VARIABLE}],
    )  # fmt: skip
    return {
        **pod.pod_head(names.BENCH_ACCOUNT, restartPolicy="Never"),
        "nodeSelector": pod.SYSTEM_NODES,
        "containers": [container],
        "volumes": [pod.local_disk_volume("work", DISK_GIB)],
    }
