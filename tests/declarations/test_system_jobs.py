"""What the Jobs of an experiment request of the system nodes at once."""

from __future__ import annotations

from committed import experiment

from tandem.declarations import system_jobs
from tandem.declarations.system_jobs import compute_quality_memory_mib, sum_job_requests


def test_every_model_may_be_staged_at_once():
    post = experiment("post")
    plain = post.variants[0]
    twin = plain.model_copy(update={"name": "twin"})
    without_draft = post.model_copy(update={"variants": (plain, twin)})

    cpu_m, memory_mib = sum_job_requests(post)
    plain_cpu_m, plain_memory_mib = sum_job_requests(without_draft)

    assert cpu_m - plain_cpu_m == system_jobs.STAGE_CPU_M
    assert memory_mib - plain_memory_mib == system_jobs.TOOLS_MEMORY_MIB


def test_the_largest_job_alone_is_counted():
    post = experiment("post")
    stage_mib = len(post.all_models()) * system_jobs.TOOLS_MEMORY_MIB

    _, memory_mib = sum_job_requests(post)

    assert memory_mib - stage_mib == system_jobs.LLMPERF_MEMORY_MIB


def test_a_pod_that_asks_tasks_holds_a_process_for_each_server():
    post = experiment("post")
    alone = post.model_copy(update={"variants": post.variants[:1]})

    assert compute_quality_memory_mib(post) > compute_quality_memory_mib(alone)


def test_a_sweep_asks_tasks_of_two_servers_at_a_time():
    sweep = experiment("post-drafts-windows")

    assert compute_quality_memory_mib(sweep) == compute_quality_memory_mib(experiment("post"))
