"""llmperf's CronJob: the post's load on both servers at once, without a credential where others'
code runs."""

from __future__ import annotations

from typing import Any

from chart_cases import flag, stages

from tandem.bench.llmperf import tool
from tandem.bench.llmperf.__main__ import _build_parser
from tandem.bench.llmperf.run import START_TIMEOUT_S
from tandem.bench.llmperf.tool import REQUEST_LIMIT_S, LlmperfLoad

Spec = dict[str, Any]


def read_job() -> Spec:
    (body,) = stages("post-us-east-2", "post")["llmperf"]
    return body["spec"]["jobTemplate"]["spec"]


def measure() -> Spec:
    (init_container,) = read_job()["template"]["spec"]["initContainers"]
    return init_container


def keep() -> Spec:
    (container,) = read_job()["template"]["spec"]["containers"]
    return container


def test_its_load_is_the_posts():
    options = _build_parser().parse_args(measure()["args"])
    result = (
        options.input_tokens,
        options.output_tokens,
        options.temperature,
        options.concurrency,
        options.requests,
    )
    assert result == (64, 600, 0.0, 4, 8)


def test_what_is_measured_is_what_is_kept():
    assert flag(measure()["args"], "--out") == flag(keep()["args"], "--folder") == "/work/results"


def test_the_job_has_time_to_keep_what_the_slowest_servers_gave():
    call_s = START_TIMEOUT_S + LlmperfLoad.timeout_s + REQUEST_LIMIT_S
    measured_s = (
        float(flag(measure()["args"], "--most-s")) + call_s + tool.RAY_TIMEOUT_S + tool.GRACE_S
    )

    kept_s = float(flag(keep()["args"], "--patience-s"))
    assert measured_s + kept_s < read_job()["activeDeadlineSeconds"]
