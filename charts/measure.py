"""Measuring and judging: two suspended CronJobs of the run image; the runner makes a Job a round.

Invariant: the process that times tokens has a processor to itself and no right to raise anything.
It writes results alone, and talks to the servers of its own namespace, as `bench` may.

A Job's task is in the one variable that the CronJob leaves empty; the runner fills it in.
Kubernetes retries nothing, because a round that failed is another round of the journal.
"""

from __future__ import annotations

from cdk8s_plus_36 import k8s

from charts import pod
from charts.experiment import ExperimentChart
from charts.network import BENCH
from tandem.declarations import names
from tandem.declarations.project_image import RUN
from tandem.declarations.system_jobs import BENCH_CPU_M, BENCH_MEMORY_MIB, JUDGE_JOB, MEASURE_JOB

TASK_VARIABLE = "TANDEM_TASK"  # as in tandem/run/run_values.py
# maximum of a Job, half an hour without S3 included; the runner's own deadlines come before
DEADLINES_S = {MEASURE_JOB: 4 * 3600, JUDGE_JOB: 2 * 3600}
DISK_GIB = 8  # of every round's records, which the judge downloads


class MeasureChart(ExperimentChart):
    """The CronJobs of a round and of the verdict."""

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        for name, deadline_s in DEADLINES_S.items():
            command = name.removeprefix("tandem-")
            pod.add_cron_job(
                self,
                name,
                component=BENCH,
                deadline_s=deadline_s,
                retries=0,
                pod=pod.build_job_pod(
                    names.BENCH_ACCOUNT,
                    retries=0,
                    containers=[
                        pod.build_bench_container(
                            command,
                            RUN.reference(self.environment),
                            [command],
                            cpu_m=BENCH_CPU_M,
                            memory_mib=BENCH_MEMORY_MIB,
                            disk_gib=DISK_GIB,
                            variables=[
                                k8s.EnvVar(name="AWS_REGION", value=self.environment.region),
                                k8s.EnvVar(name=TASK_VARIABLE),
                            ],
                        )
                    ],
                    volumes=[pod.local_disk_volume("work", DISK_GIB)],
                ),
            )
