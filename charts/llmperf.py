"""The post's generator: a suspended CronJob that drives both servers of an experiment at once.

Invariant: the measuring container holds no credential, and the container with one runs no code of
others. All files of the tool, of a failed run too, are in the bucket before the Job has ended,
unless somebody removes its pod.

It does what the post did, so that its figures can be compared with Tandem's: its load, both servers
at once, one call after another. The raw files and the records made of them go below
`results/<experiment>/llmperf/<job>/`. Only the storing container gets the pod's role, which reads
and writes only `results/*`; the other one runs third-party packages. The pod runs on the system
nodes, because a generator next to one server would slow down that one only.
"""

from __future__ import annotations

from cdk8s_plus_36 import k8s

from charts import pod
from charts.experiment import ExperimentChart
from charts.network import BENCH
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.project_image import LLMPERF
from tandem.declarations.system_jobs import LLMPERF_CPU_M, LLMPERF_MEMORY_MIB

# the settings of the sample (docs/measurement.md, "llmperf"); it does not state its number of
# calls: CALLS is a choice
INPUT_TOKENS = 64
OUTPUT_TOKENS = 600
TEMPERATURE = 0.0
CONCURRENCY = 4
REQUESTS = 8
# 200 requests an arm; at the post's 45 ms a token a call takes about 70 s, so half an hour in all
CALLS = 25
MAX_MEASURE_S = 2 * 3600  # then no further call begins, however slow the servers are
# In addition: a node, Ray's start (10 minutes), the call under way (18). A later end loses the
# files.
DEADLINE_S = MAX_MEASURE_S + pod.S3_RETRY_S + 5400
RETRIES = 3  # of the storing container: the measuring one ends well in any case
DISK_GIB = 2
SHM_MIB = 256  # Ray's object store (100 MB) is there; a pod's default is 64 MiB
MEASURE = "measure"


class LlmperfChart(ExperimentChart):
    """The CronJob of an experiment that has one (`charts.list_stages`)."""

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        below = f"{self.experiment.name}/llmperf"
        pod.add_cron_job(
            self,
            names.LLMPERF_JOB,
            component=BENCH,
            deadline_s=DEADLINE_S,
            retries=RETRIES,
            annotations={
                "tandem/servers": ",".join(
                    variant.name for variant in self.experiment.all_variants()
                ),
                "tandem/results": f"s3://{names.bucket_name(self.environment)}/results/{below}/",
            },
            credentials_skipped_by=MEASURE,
            pod=pod.build_job_pod(
                names.BENCH_ACCOUNT,
                retries=RETRIES,
                init_containers=[_build_measure_container(self.environment, self.experiment)],
                containers=[pod.build_keep_container(self.environment, below)],
                volumes=[pod.local_disk_volume("work", DISK_GIB), pod.shared_memory(SHM_MIB)],
            ),
        )


def _build_measure_container(environment: Environment, experiment: Experiment) -> k8s.Container:
    servers = [
        f"{variant.name}=http://{variant.name}:{names.SERVER_PORT}"
        for variant in experiment.all_variants()
    ]
    options = {
        "--model": experiment.target,
        "--calls": CALLS,
        "--most-s": MAX_MEASURE_S,
        "--out": pod.RESULTS_FOLDER,
        "--input-tokens": INPUT_TOKENS,
        "--output-tokens": OUTPUT_TOKENS,
        "--temperature": TEMPERATURE,
        "--concurrency": CONCURRENCY,
        "--requests": REQUESTS,
    }
    return pod.build_bench_container(
        MEASURE,
        LLMPERF.reference(environment),
        [*pod.repeat_option("--server", servers), *pod.list_options(options), "--defer"],
        cpu_m=LLMPERF_CPU_M,
        memory_mib=LLMPERF_MEMORY_MIB,
        disk_gib=DISK_GIB,
        mounts=[pod.SHM_MOUNT],
    )
