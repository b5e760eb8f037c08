"""What the jobs of the system nodes request: staging and llmperf, which need no accelerator."""

from __future__ import annotations

from tandem.spec.experiment import Experiment
from tandem.spec.project_image import has_llmperf

# a transfer takes under 400 MiB whatever its size (benchmarks/artifacts.py); files' pages yield
TOOLS_MEMORY_MIB = 480
STAGE_CPU_M = 500
# Ray and 8 workers of 100 MB each, the tool twice with pandas and tokenizer: 1.5 GB measured with 27 processes
LLMPERF_CPU_M, LLMPERF_MEMORY_MIB = 1000, 3072


def sum_job_requests(experiment: Experiment) -> tuple[int, int]:
    """Return what all jobs of an experiment request of the system nodes at once, as (millicores, MiB)."""
    models = len(experiment.all_models())
    cpu_m, memory_mib = models * STAGE_CPU_M, models * TOOLS_MEMORY_MIB
    if has_llmperf(experiment):
        cpu_m, memory_mib = cpu_m + LLMPERF_CPU_M, memory_mib + LLMPERF_MEMORY_MIB
    return cpu_m, memory_mib
