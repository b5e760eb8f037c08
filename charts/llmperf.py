"""The post's own generator: a suspended CronJob that drives both servers of an experiment at the same moment.

Invariant: what measures holds no credential, and what holds one runs nothing of others; whatever the tool left, of a
failed run too, is in the bucket before the Job has ended, unless somebody takes its pod away.

It does what the post did, so that its figures can be held beside Tandem's: its load, both servers at once, one call
after another. The raw files and the records made of them go below `results/<experiment>/llmperf/<job>/`. Only the
container that keeps them gets the pod's role, which reads and writes `results/*` alone; the other one runs packages of
others. It stands on the system nodes, because a generator beside one server would take from that one only.
"""

from __future__ import annotations

from charts.jobs import JobSpec, build_cron_job
from charts.manifest import Object
from charts.network import BENCH
from charts.pod import SHM_MOUNT, SKIP_CREDENTIALS
from charts.stage import SYSTEM_NODES
from charts.tools import (
    RESTRICTED_SECURITY,
    WORK,
    ToolStep,
    build_container,
    holder_variables,
    list_options,
    local_disk_volume,
)
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.project_image import LLMPERF
from tandem.spec.system_jobs import LLMPERF_CPU_M, LLMPERF_MEMORY_MIB

# the sample's settings (docs/measurement.md, "llmperf"); how often it called the tool is not said: without end
INPUT_TOKENS, OUTPUT_TOKENS, TEMPERATURE, CONCURRENCY, REQUESTS = 64, 600, 0.0, 4, 8
CALLS = 25  # 200 requests an arm; at the post's 45 ms a token a call takes about 70 s, so half an hour in all
MAX_MEASURE_S = 2 * 3600  # then no further call is begun, however slow the servers are
S3_RETRY_S = 1800
# beside those: a node, Ray's tries (20 minutes), the call under way (18); what is over takes the files along
DEADLINE_S = MAX_MEASURE_S + S3_RETRY_S + 5400
RETRIES = 3  # of what keeps the results: what measures ends well whatever happened
# no CPU limit: throttling would be measured as the servers' latency
MEMORY, CPU = f"{LLMPERF_MEMORY_MIB // 1024}Gi", str(LLMPERF_CPU_M // 1000)
DISK_GIB = 2
SHM = "256Mi"  # Ray's object store (100 MB) lies there; a pod's own is 64 MiB
MEASURE, KEEP = "measure", "keep"
RESULTS = f"{names.WORK_MOUNT}/results"


def build_llmperf_job(environment: Environment, experiment: Experiment, _: Catalogue) -> list[Object]:
    """Return the CronJob of an experiment that has one (`charts.workloads.list_stages`)."""
    job = JobSpec(
        name=names.LLMPERF_JOB, namespace=names.experiment_namespace(experiment), component=BENCH,
        annotations={
            "tandem/servers": ",".join(variant.name for variant in experiment.all_variants()),
            "tandem/results": f"s3://{names.bucket_name(environment)}/results/{_results_prefix(experiment)}/",
        },
        deadline_s=DEADLINE_S, retries=RETRIES, pod_annotations={SKIP_CREDENTIALS: MEASURE},
        pod=_build_pod(environment, experiment),
    )  # fmt: skip
    return [build_cron_job(job)]


def _results_prefix(experiment: Experiment) -> str:
    return f"{experiment.name}/llmperf"


def _build_pod(environment: Environment, experiment: Experiment) -> Object:
    return {
        "serviceAccountName": names.BENCH_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "OnFailure",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": SYSTEM_NODES,
        "initContainers": [_build_measure_container(environment, experiment)],
        "containers": [build_container(environment, _keep_step(environment, experiment))],
        "volumes": [
            local_disk_volume("work", DISK_GIB),
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHM}},
        ],
    }


def _build_measure_container(environment: Environment, experiment: Experiment) -> Object:
    servers = [
        part
        for variant in experiment.all_variants()
        for part in ("--server", f"{variant.name}=http://{variant.name}:{names.SERVER_PORT}")
    ]
    return {
        "name": MEASURE,
        "image": LLMPERF.reference(environment),
        "args": [
            *servers, "--model", experiment.target, "--calls", str(CALLS), "--most-s", str(MAX_MEASURE_S),
            "--out", RESULTS,
            "--input-tokens", str(INPUT_TOKENS), "--output-tokens", str(OUTPUT_TOKENS),
            "--temperature", str(TEMPERATURE), "--concurrency", str(CONCURRENCY), "--requests", str(REQUESTS),
            "--defer",
        ],
        "resources": {
            "requests": {"cpu": CPU, "memory": MEMORY, "ephemeral-storage": f"{DISK_GIB}Gi"},
            "limits": {"memory": MEMORY},
        },
        "securityContext": RESTRICTED_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [WORK, SHM_MOUNT],
    }  # fmt: skip


def _keep_step(environment: Environment, experiment: Experiment) -> ToolStep:
    options = {
        "--bucket": names.bucket_name(environment), "--folder": RESULTS, "--below": _results_prefix(experiment),
        "--patience-s": S3_RETRY_S,
    }  # fmt: skip
    return ToolStep(
        name=KEEP,
        arguments=["keep", *list_options(options)],
        variables=holder_variables(),
        requests={"cpu": "500m"},
    )
