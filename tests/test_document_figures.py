"""A limit or a default that a page states is the constant of the program; a measured figure names
its command.

STATED is the one table of what is compared: a page, a piece of its text, and where the figure in it
comes from. The references and the tables of `benchmarks/figures.py` need no row: their programs
write them.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import asdict, fields
from datetime import timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from document_text import CURRENT, ROOT, name_page
from shipped import copy_examples

from rehearsal.aws.fleet_behavior import FleetBehavior
from rehearsal.cluster.timing import ClusterTiming
from tandem.bench.load.event import DETAIL_CHARACTERS
from tandem.bench.load.server_watch import STEADY_S
from tandem.bench.load.synthesis import TOLERANCE
from tandem.bench.plan import knee_search
from tandem.bench.plan.restart_options import RESTART_LIMIT_S
from tandem.bench.plan.run_size import DEFAULT_SIZE, DEFAULT_SUITES
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.bench.suites.suite import REAL
from tandem.bench.suites.suite_file import MAX_CLASSES
from tandem.bench.suites.synthetic import SYNTHETIC_PROMPTS
from tandem.cli.artifacts import DEFAULT_DAYS
from tandem.cli.bench_flags import RunFlags
from tandem.cli.inputs import CommandInputs, read_inputs
from tandem.cli.selection import Selection
from tandem.cli.show import compute_environment_cost
from tandem.declarations.environment import RUNS_PER_MONTH
from tandem.declarations.experiment import CompileSettings, QualityTask
from tandem.declarations.project_image import BUILD_MINUTES
from tandem.declarations.suite_limit import MAX_SUITE_BYTES
from tandem.declarations.variant_key import compute_artifact_key
from tandem.guard import observe
from tandem.guard.config import GuardConfig
from tandem.guard.pass_metrics import PASS_MINUTES
from tandem.judge.quality import FEWEST_ITEMS
from tandem.monitoring import widget
from tandem.monitoring.standing_cost import ParkedCost
from tandem.ops.doctor.capacity import MAX_PRICE_AGE_DAYS
from tandem.plan.measurement_rows import SERVED_DENSE, load_published
from tandem.plan.step_cost import RANGE_FACTOR, fit_step_cost, fit_verified_share
from tandem.publish import publisher
from tandem.run import engine, fleet_steps, jobs, request_inbox, run_client, run_keys, serving_steps
from tandem.run.prompt_lengths import ASCII_TOKENS, OTHER_TOKENS
from tandem.run.run_estimate import RunEstimate
from tandem.run.run_plan import (
    JUDGE_MINUTES,
    OWN_ITEMS,
    BucketGaps,
    RunPlanInputs,
    estimate_run,
)
from tandem.run.run_values import RunRequest

GUARD_DEFAULTS = {field.name: field.default for field in fields(GuardConfig)}
ROWS = load_published()
RUN_DEFAULTS = {field.name: field.default for field in fields(RunFlags)}


def count_minutes(value: timedelta | float) -> str:
    """Return a time, or a number of seconds, in minutes."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return str(Fraction(seconds) / 60)


@cache
def read_post() -> CommandInputs:
    """Return the environment of the post with the two experiments that the pages say it hosts."""
    with tempfile.TemporaryDirectory() as folder:
        copy_examples(Path(folder), "post-us-east-2")
        folders = {kind: Path(folder) / kind for kind in ("environments", "experiments")}
        return read_inputs(Selection(**folders).narrow(("post-us-east-2",)))


def plan_post(**fields: Any) -> RunEstimate:
    """Return the plan of a run of the post whose bucket is empty, as `tandem run --hours 8
    --dry-run` prints it."""
    inputs = read_post()
    (environment,) = inputs.environments()
    experiment = inputs.workspace.experiments["post"].record
    variants = experiment.all_variants()
    keys = [
        compute_artifact_key(experiment, variant, inputs.catalogue).name for variant in variants
    ]
    request = RunRequest(
        kind="run",
        run="r",
        environment=environment.name,
        experiment="post",
        at="2026-11-22",
        hours=8,
        **fields,
    )
    return estimate_run(
        RunPlanInputs(
            environment=environment,
            experiment=experiment,
            catalogue=inputs.catalogue,
            gaps=BucketGaps(models=tuple(experiment.all_models()), artifacts=tuple(keys)),
            request=request,
        )
    )


def cost_post() -> ParkedCost:
    """Return what the environment of the post costs."""
    inputs = read_post()
    (environment,) = inputs.environments()
    return compute_environment_cost(inputs, environment)


WHOLE = plan_post(starts=6, rounds=6, llmperf=True)
STATED: list[tuple[str, str, object]] = [
    ("artifacts.md", "`--days` days ({} by default)", DEFAULT_DAYS),
    (
        "artifacts.md",
        "| `compile.deadline_hours` | {} |",
        CompileSettings.model_fields["deadline_hours"].default,
    ),
    (
        "artifacts.md",
        "| `compile.attempts` | {} |",
        CompileSettings.model_fields["attempts"].default,
    ),
    ("artifacts.md", "| `compile.where` | `{}` |", CompileSettings.model_fields["where"].default),
    ("bench.md", "`--rounds N` ({} by default)", FEWEST_ROUNDS),
    ("bench.md", "`--control-rounds N`, {} by default", RUN_DEFAULTS["control_rounds"]),
    ("bench.md", "`--concurrency 1,4` ({} by default)", DEFAULT_SIZE.concurrency[0]),
    ("bench.md", "| `--suite S` | {} |", DEFAULT_SUITES[0]),
    ("bench.md", "| `--max-tokens N` | {} |", DEFAULT_SIZE.max_tokens),
    ("bench.md", "| `--prompts-per-class N` | {} |", DEFAULT_SIZE.prompts_per_class),
    ("bench.md", "| `--temperature T` | {} |", RUN_DEFAULTS["temperature"]),
    ("restarts.md", "| `--starts N` | {} |", RUN_DEFAULTS["starts"]),
    ("restarts.md", "| `--restart-limit T` | {:.0f}m |", RESTART_LIMIT_S / 60),
    ("restarts.md", "each server from {:.0f} s before COMMAND begins", STEADY_S),
    ("restarts.md", "open and in use for {:.0f} s", STEADY_S),
    ("costs.md", "follows the price: {} runs of", RUNS_PER_MONTH),
    ("costs.md", "at most {} minutes each", BUILD_MINUTES),
    ("doctor.md", "else at most {} days old (spot)", MAX_PRICE_AGE_DAYS["spot"]),
    ("doctor.md", "days old (spot) or {} |", MAX_PRICE_AGE_DAYS["on-demand"]),
    ("records.md", "the server's own words, at most {} characters", DETAIL_CHARACTERS),
    ("local-endpoint.md", "`start_delay_s`, `stop_delay_s` ({})", FleetBehavior().start_delay_s),
    ("local-endpoint.md", "| `retry_delay_s` ({:.0f}) |", FleetBehavior().retry_delay_s),
    ("publish.md", "`older than {} weeks`", {14 * 86400: "two"}[publisher.MAX_AGE_S]),
    ("quality.md", "(default {})", QualityTask.model_fields["items"].default),
    ("quality.md", "Below {} no word is possible", FEWEST_ITEMS),
    ("quality.md", "the servers get {} sums of ours", OWN_ITEMS),
    ("sweep.md", "Only a task of {}", FEWEST_ITEMS),
    ("sweep.md", "by {} rounds or more", FEWEST_ROUNDS),
    ("sweep.md", "takes at most {:.0f} minutes", 2 * JUDGE_MINUTES),
    ("run-steps.md", "or a missing CronJob: {} minutes", count_minutes(engine.REFUSAL_WAIT)),
    ("run-steps.md", "a Job whose pod does not start: {} minutes", count_minutes(jobs.START_WAIT)),
    ("run-steps.md", "larger than {} KiB", run_keys.MAX_REQUEST_BYTES >> 10),
    (
        "run-steps.md",
        "older than {} minutes when it first sees it",
        count_minutes(request_inbox.MAX_AGE),
    ),
    (
        "run-faults.md",
        "`runner.json` is older than {} minutes",
        count_minutes(run_client.BEAT_LIMIT),
    ),
    ("run-faults.md", "{} minutes before a block's end", count_minutes(observe.BLOCK_MARGIN)),
    (
        "run-faults.md",
        "new labels on a live node within {} minutes",
        count_minutes(fleet_steps.LABEL_WAIT_S),
    ),
    ("run-faults.md", "that a node joins in {} minutes", count_minutes(fleet_steps.NODE_WAIT_S)),
    (
        "run-faults.md",
        "shows its devices {} minutes later",
        count_minutes(fleet_steps.DEVICE_WAIT_S),
    ),
    (
        "run-faults.md",
        "a start takes {} minutes at most",
        count_minutes(serving_steps.READY_WAIT_S),
    ),
    (
        "reproduce.md",
        "{0.usd:.0f} USD a month while parked, {0.start_parts[0].usd:.2f} USD of builds",
        cost_post(),
    ),
    ("reproduce.md", "no node; {0.steps[1].usd:.2f} USD through NAT", WHOLE),
    ("reproduce.md", "in {0.leases} leases | {0.usd:.2f} USD: the block's hours", WHOLE),
    (
        "reproduce.md",
        "| all | at most {0.minutes:.0f} | {0.usd:.2f} | {0.node_minutes:.0f} node-minutes |",
        WHOLE,
    ),
    (
        "reproduce.md",
        "| `--starts 6` | 11 h 32 min, 2 leases | {.usd:.2f} |",
        plan_post(starts=6, rounds=6),
    ),
    ("reproduce.md", "| no flag | 8 h 21 min, 1 lease | {.usd:.2f} |", plan_post()),
    ("reproduce.md", "| `--quick` | 6 h 03 min, 1 lease | {.usd:.2f} |", plan_post(size="quick")),
    (
        "reproduce.md",
        "the reaper stops the fleet {} minutes before",
        count_minutes(observe.BLOCK_MARGIN),
    ),
    ("runbook.md", "reaper runs every {} minutes", PASS_MINUTES),
    ("runbook.md", "and {} minutes after the fence it terminates", GUARD_DEFAULTS["grace_minutes"]),
    (
        "runbook-guard.md",
        "The reaper stops the fleet {} minutes before it",
        count_minutes(observe.BLOCK_MARGIN),
    ),
    ("knee.md", "| `--goodput-share SHARE` | {} |", knee_search.GOODPUT_SHARE),
    ("knee.md", "they are {} % apart", round(100 * knee_search.MAX_BRACKET - 100)),
    ("knee.md", "at least {} and", knee_search.WARM_UP_LIMITS[0]),
    ("knee.md", "at most {}. At least", knee_search.WARM_UP_LIMITS[1]),
    ("knee.md", "At least {} counted", knee_search.LEAST_COUNTED),
    ("knee.md", "goes on by {}", knee_search.COUNT_STEP),
    ("knee.md", "up to {}. The load", knee_search.MOST_COUNTED),
    ("own-prompts.md", "in the bucket, at most {} MiB", MAX_SUITE_BYTES // 1024**2),
    ("own-prompts.md", "it estimates {} tokens a character", ASCII_TOKENS),
    ("own-prompts.md", "and {} for a character beyond ASCII", OTHER_TOKENS),
    ("own-prompts.md", "At most {} classes", MAX_CLASSES),
    ("suites.md", "(by default {};", DEFAULT_SIZE.prompts_per_class),
    ("built-in-suites.md", "The default allows at most {} output tokens", DEFAULT_SIZE.max_tokens),
    ("suites.md", "| `max_tokens` | {} by default |", REAL.max_tokens),
    ("suites.md", "makes {} prompts (`--sample N`", SYNTHETIC_PROMPTS),
    ("suites.md", "with IN tokens each, within {:.0f} %", 100 * TOLERANCE),
    ("suites.md", "At most {} classes", MAX_CLASSES),
    (
        "theory.md",
        "reads all weights anyway: {:.3f} of a plain step",
        fit_verified_share(ROWS, "dense"),
    ),
    (
        "theory.md",
        "experts of its own: {:.2f} of a plain step",
        fit_verified_share(ROWS, "mixture of experts"),
    ),
    ("theory.md", "up to concurrency {}", fit_step_cost(ROWS, SERVED_DENSE).concurrency),
    ("theory.md", "The range is {:.2f} times either way", RANGE_FACTOR),
    (
        "tuning.md",
        "A verified token costs {:.3f} of a plain step",
        fit_verified_share(ROWS, "dense"),
    ),
    (
        "tuning.md",
        "A draft forward took {0.low_ms:.1f} to {0.high_ms:.1f} ms",
        fit_step_cost(ROWS, SERVED_DENSE),
    ),
    ("watch.md", "**A point is {} minutes.**", {300: "five"}[widget.PERIOD_S]),
    *(
        ("rehearsal-cluster.md", f"| `{name}` | {{:.0f}} |", value)
        for name, value in asdict(ClusterTiming()).items()
    ),
]
# A default in a sentence: "30 by default", "by default 8", "(default 400)".
DEFAULT = re.compile(
    r"(?<![\d.])\d[\d,]*(?:\.\d+)? by default|\bby default \d[\d.]*|\(default \d[\d.]*"
)


def read_page(name: str) -> str:
    """Return the text of a page of docs/, each run of blanks as one."""
    return " ".join((ROOT / "docs" / name).read_text().split())


@pytest.mark.parametrize(
    ("name", "text", "value"), STATED, ids=[f"{name}: {text}" for name, text, _ in STATED]
)
def test_a_stated_figure_is_the_programs(name, text, value):
    assert text.format(value) in read_page(name)


@pytest.mark.parametrize("path", CURRENT, ids=name_page)
def test_a_stated_default_is_compared(path):
    text = " ".join(path.read_text().split())
    for name, template, value in STATED:
        text = text.replace(template.format(value), "") if name == path.name else text
    assert DEFAULT.findall(text) == []
