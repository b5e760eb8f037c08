"""What pods of system nodes request: runner, staging, measuring, judging, llmperf; no accelerator.

The names of Jobs stand here, because the tools image holds tandem/declarations/names.py and
needs none of them.
"""

from __future__ import annotations

from tandem.declarations.experiment import Experiment
from tandem.declarations.project_image import PAIR_SIZE, has_llmperf

# a transfer takes under 400 MiB whatever its size (benchmarks/artifacts.py); files' pages yield
TOOLS_MEMORY_MIB = 480
STAGE_CPU_M = 500
# Ray and 8 workers of 100 MB each, the tool twice with pandas and tokenizer: 1.5 GB measured with
# 27 processes
LLMPERF_CPU_M = 1000
LLMPERF_MEMORY_MIB = 3072
# the CronJobs of which the runner makes Jobs
MEASURE_JOB = "tandem-measure"
QUALITY_JOB = "tandem-quality"
JUDGE_JOB = "tandem-judge"
SERVERS_VARIABLE = "TANDEM_SERVERS"  # of the quality Job, as in tandem/bench/lm_eval/__main__.py
# what times tokens has a processor to itself; 100,000 records are judged in under 500 MB, and then
# charts are drawn
BENCH_CPU_M = 1000
BENCH_MEMORY_MIB = 2048
QUALITY_CPU_M = 1000
# once a cluster
RUNNER_CPU_M = 250
RUNNER_MEMORY_MIB = 512


def compute_quality_memory_mib(experiment: Experiment) -> int:
    """Return the memory of the pod that asks tasks, in MiB: an lm-eval process for each server.

    One takes 270 MB, and 550 MB with the largest set (measured on 2026-11-28).
    """
    return 512 + 768 * (PAIR_SIZE if experiment.sweep else len(experiment.all_variants()))


def sum_job_requests(experiment: Experiment) -> tuple[int, int]:
    """Return what jobs of an experiment request of the system nodes at once, as (millicores, MiB).

    Every model may be staged while one Job measures, asks tasks or judges: a run takes those, and
    llmperf, one by one.
    """
    models = len(experiment.all_models())
    bench_requests = [(BENCH_CPU_M, BENCH_MEMORY_MIB)]
    if has_llmperf(experiment):
        bench_requests.append((LLMPERF_CPU_M, LLMPERF_MEMORY_MIB))
    if experiment.quality:
        bench_requests.append((QUALITY_CPU_M, compute_quality_memory_mib(experiment)))
    cpu_m, memory_mib = map(max, zip(*bench_requests, strict=True))
    return models * STAGE_CPU_M + cpu_m, models * TOOLS_MEMORY_MIB + memory_mib
