"""The plan of a run: steps in their leases, minutes, USD, what it rests on, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from committed import workspace

from tandem.artifacts.survey import SurveyRow
from tandem.bench.suites.task_items import CONCURRENCY, MAX_ANSWER_TOKENS, OWN_TASK, load_items
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.experiment import QualityTask
from tandem.declarations.suite_file import SuiteFile
from tandem.judge.interval import FEWEST_STARTS
from tandem.judge.quality import FEWEST_ITEMS
from tandem.run.run_estimate import StepEstimate
from tandem.run.run_plan import (
    ITEMS_OF_WORD,
    OWN_ANSWER_TOKENS,
    OWN_ITEMS,
    QUALITY_STREAMS,
    BucketGaps,
    RunPlanInputs,
    estimate_run,
    find_gaps,
)
from tandem.run.run_refusals import list_refusals
from tandem.run.run_values import RunRequest
from tandem.run.starts_options import compare_starts, describe_word_scope

MODELS = ("Qwen/Qwen3-32B", "Qwen/Qwen3-1.7B")
ARTIFACTS = ("qwen3-32b-none", "qwen3-32b-fused")
NO_GAPS = BucketGaps()
NO_ARTIFACTS = BucketGaps(artifacts=ARTIFACTS)
RESERVATION = {"reservation_id": "cr-0123456789abcdef0"}


def plan(
    environment="post-us-east-2", experiment="post", gaps=NO_GAPS, capacity=RESERVATION, **request
):
    """Inputs of a run of six hours; the committed environment waits for the id of a block."""
    environment_record = workspace().environments[environment].record
    environment_record = environment_record.model_copy(
        update={"capacity": environment_record.capacity.model_copy(update=capacity)}
    )
    fields = {
        "kind": "run",
        "run": "r",
        "environment": environment,
        "experiment": experiment,
        "at": "",
        "hours": 6.0,
    }
    return RunPlanInputs(
        environment=environment_record,
        experiment=workspace().experiments[experiment].record,
        catalogue=load_catalogue(),
        gaps=gaps,
        request=RunRequest(**{**fields, **request}),
    )


def names_of(inputs):
    return [step.step for step in estimate_run(inputs).steps]


def find_step(inputs, name) -> StepEstimate:
    return next(step for step in estimate_run(inputs).steps if step.step == name)


def edit(inputs, part, **changes):
    """The inputs with a part of the experiment changed."""
    experiment = inputs.experiment
    section = getattr(experiment, part).model_copy(update=changes)
    return replace(inputs, experiment=experiment.model_copy(update={part: section}))


def test_plan_has_the_journals_steps_in_order():
    rounds = [f"round-{number:05}" for number in range(5)]
    before = ["preflight", "stage", "raise", "node", "label", "serve", "ready", "check"]
    assert names_of(plan()) == [*before, *rounds, "judge", "end"]


def test_only_steps_behind_the_raise_are_paid():
    estimate = estimate_run(plan())
    assert [step.step for step in estimate.steps if not step.lease] == ["preflight", "stage"]
    assert sum(step.usd for step in estimate.steps[:2]) == 0
    assert estimate.usd == pytest.approx(estimate.node_minutes / 60 * 35.76)
    assert estimate.minutes == pytest.approx(estimate.node_minutes + 1)


def test_staging_takes_the_models_bytes_at_the_stated_rate():
    step = find_step(plan(gaps=BucketGaps(models=MODELS)), "stage")
    size_mb = sum(load_catalogue().models[name].bytes.value for name in MODELS) / 1e6
    assert step.minutes == pytest.approx(size_mb / 25 / 60)
    assert "69.6 GB" in step.basis and "25 MB/s" in step.basis and "assumed" in step.basis  # noqa: PT018 - one text


def test_compile_is_bound_by_its_declared_hours():
    inputs = plan(gaps=NO_ARTIFACTS)
    step = find_step(inputs, "compile")
    assert step.minutes == 240
    assert step.is_bound
    assert "compile.deadline_hours 4" in step.basis
    assert step.usd == pytest.approx(4 * 35.76)
    assert estimate_run(inputs).has_bounds
    assert (
        names_of(inputs).index("node")
        < names_of(inputs).index("compile")
        < names_of(inputs).index("label")
    )


@pytest.mark.parametrize(("memory_gib", "waves"), [(256, 1), (1200, 2)])
def test_compiles_run_side_by_side_as_far_as_memory_allows(memory_gib, waves):
    inputs = edit(plan(gaps=NO_ARTIFACTS, hours=8.0), "compile", memory_gib=memory_gib)
    assert names_of(inputs).count("compile") == waves


def test_rounds_take_what_the_bench_estimates_and_a_pods_start():
    quick, default, full = (
        find_step(plan(size=size), "round-00000").minutes for size in ("quick", "default", "full")
    )
    assert quick < 6 < default < full
    assert "45 ms a token" in find_step(plan(), "round-00000").basis


def test_step_that_does_not_fit_begins_another_lease():
    steps = names_of(plan(hours=2.0))
    end = steps.index("park-1")
    assert steps[end + 1 : end + 7] == [
        "raise.2",
        "node.2",
        "label.2",
        "serve.2",
        "ready.2",
        "check.2",
    ]
    assert (estimate_run(plan(hours=2.0)).leases, steps[-1]) == (5, "end")


def test_no_lease_is_planned_longer_than_it_lasts():
    steps = estimate_run(plan(hours=2.0, gaps=BucketGaps(models=MODELS))).steps
    for lease in (1, 2, 3):
        assert 0 < sum(step.minutes for step in steps if step.lease == lease) <= 110


def test_a_resumed_run_plans_only_what_is_left():
    done = frozenset({"compile", "round-00000", "round-00001"})
    steps = names_of(replace(plan(gaps=NO_ARTIFACTS), done_steps=done))
    assert [step for step in steps if step.startswith(("round", "compile"))] == [
        "round-00002",
        "round-00003",
        "round-00004",
    ]


@pytest.mark.parametrize("hours", [3.0, 8.0])
def test_a_restart_stands_between_two_rounds_of_one_lease(hours):
    """A new lease starts the servers anew, and its first round needs no restart."""
    steps = names_of(plan(hours=hours, starts=4))
    places = [place for place, step in enumerate(steps) if step.startswith("restart")]
    assert {steps[place + side][:5] for place in places for side in (-1, 1)} == {"round"}


def test_more_starts_cost_more_and_cover_restarts():
    options = compare_starts(plan())
    assert [(row.starts, row.rounds, row.word_scope) for row in options] == [
        (1, 4, "restarts not covered"),
        (2, 4, "restarts not covered"),
        (6, 6, "restarts covered"),
    ]
    costs = [row.estimate.usd for row in options]
    assert costs == sorted(costs)
    assert costs[1] - costs[0] == pytest.approx(20 / 60 * 35.76)


def test_scope_of_a_word_is_that_of_the_judge():
    assert describe_word_scope(3, 1) == "no verdict"
    assert describe_word_scope(FEWEST_STARTS, FEWEST_STARTS) == "restarts covered"
    assert describe_word_scope(FEWEST_STARTS, FEWEST_STARTS - 1) == "restarts not covered"


def declare_tasks(items, **request):
    """Inputs of a run with one task of so many items."""
    inputs = plan(**request)
    task = QualityTask(name="letters", sha256="0" * 64, items=items)
    return replace(inputs, experiment=inputs.experiment.model_copy(update={"quality": (task,)}))


def test_tasks_are_a_step_after_the_rounds():
    steps = names_of(declare_tasks(400))
    assert steps[steps.index("quality") - 1 : steps.index("quality") + 2] == [
        "round-00004",
        "quality",
        "judge",
    ]


def test_tasks_that_outlast_their_job_are_refused():
    refusal, *_ = list_refusals(declare_tasks(4000, hours=8.0))
    assert (refusal.where, refusal.change) == (
        "experiment post",
        "write fewer items in its quality",
    )


def test_figures_of_the_bench_are_as_the_plan_has_them():
    bench_figures = (len(load_items(OWN_TASK)), CONCURRENCY, MAX_ANSWER_TOKENS)
    assert bench_figures == (OWN_ITEMS, QUALITY_STREAMS, OWN_ANSWER_TOKENS)


def test_items_of_a_word_are_those_of_the_judge():
    assert ITEMS_OF_WORD == FEWEST_ITEMS


def test_own_items_cost_their_short_answers():
    inputs = plan(experiment="post-drafts-windows")
    assert inputs.quality_minutes == pytest.approx(400 * (0.5 + 64 * 0.045) / 4 / 60 + 3)


@pytest.mark.parametrize(("items", "is_leader_alone"), [(60, False), (400, True)])
def test_leader_alone_is_asked_where_that_is_cheaper(items, is_leader_alone):
    inputs = declare_tasks(items, experiment="post-drafts-windows")
    assert inputs.asks_leaders_only is is_leader_alone


def test_what_fits_is_not_refused():
    assert list_refusals(plan(gaps=BucketGaps(models=MODELS, artifacts=ARTIFACTS))) == ()


@pytest.mark.parametrize(
    ("arguments", "where", "problem", "change"),
    [
        (
            {"capacity": {}},
            "environment post-us-east-2",
            "no Fleet stack yet",
            "capacity.reservation_id",
        ),
        (
            {"environment": "dev-trn2-3xlarge", "experiment": "dev", "hours": 2.0, "capacity": {}},
            "experiment dev",
            "its 2 servers do not fit: a trn2.3xlarge holds 1 at once",
            "raise capacity.nodes to 2",
        ),
        (
            {"experiment": "post-drafts-windows", "starts": 2},
            "--starts",
            "a sweep starts each pair once",
            "leave the",
        ),
        (
            {"experiment": "post-drafts-windows", "llmperf": True},
            "--llmperf",
            "runs no llmperf",
            "leave the flag out",
        ),
        ({"budget_usd": 10.0}, "--budget-usd", "only a sweep has a budget", "--hours limits"),
        (
            {"hours": 9.0},
            "environment post-us-east-2",
            "9 hours are asked for",
            "0.25 to 8 (guard.max_hours)",
        ),
        (
            {"starts": 5},
            "--starts",
            "5 starts of each server, and 4 rounds",
            "ask for 1 to 4 starts",
        ),
        (
            {"hours": 4.0, "gaps": NO_ARTIFACTS},
            "--hours",
            "step compile takes at most 240 min",
            "ask for --hours 4.5",
        ),
        ({"hours": 1.0}, "--hours", "a lease of 1 h does not hold it", "ask for --hours 1.5"),
    ],
)
def test_what_cannot_fit_is_refused_with_what_to_change(arguments, where, problem, change):
    (refusal,) = list_refusals(plan(**arguments))
    assert (refusal.where, problem in refusal.problem, change in refusal.change) == (
        where,
        True,
        True,
    ), refusal


def test_a_sweep_takes_the_node_of_one_pair():
    inputs = plan(experiment="post-drafts-windows", size="quick")
    assert (list_refusals(inputs), estimate_run(inputs).nodes) == ((), 1)


def test_plan_of_a_sweep_has_a_step_for_each_candidate():
    steps = names_of(plan(experiment="post-drafts-windows", size="quick"))
    assert [step for step in steps if step.startswith("pair")] == [
        f"pair-{number:02}-judge" for number in range(1, 9)
    ]


def test_compile_without_devices_is_refused():
    inputs = edit(plan(), "compile", where="cpu")
    (refusal,) = list_refusals(replace(inputs, gaps=NO_ARTIFACTS))
    assert list_refusals(inputs) == ()
    assert "without devices" in refusal.problem


def test_step_longer_than_any_lease_says_what_to_change():
    inputs = edit(plan(hours=8.0, gaps=NO_ARTIFACTS), "compile", deadline_hours=8)
    (refusal,) = list_refusals(inputs)
    assert "lower compile.deadline_hours, or raise guard.max_hours (now 8) to 8.5" in refusal.change


def test_all_that_is_wrong_is_told():
    assert len(list_refusals(plan(experiment="post-drafts-windows", starts=9, capacity={}))) == 3


def test_gaps_are_what_is_needed_and_not_whole():
    def make_row(kind, name, state, used_by=("post/qwen-vllm",)):
        return SurveyRow(kind=kind, name=name, prefix=name, state=state, used_by=used_by)

    rows = [
        make_row("model", "Qwen/Qwen3-32B@main", "missing"),
        make_row("model", "Qwen/Qwen3-1.7B@main", "present"),
        make_row("artifact", "one", "partial"),
        make_row("artifact", "two", "stale", ()),
    ]
    assert find_gaps(rows) == BucketGaps(models=("Qwen/Qwen3-32B",), artifacts=("one",))


def test_rounds_of_a_file_that_nobody_counted_are_left_out_and_named():
    inputs = plan()
    suite = SuiteFile(file="prompts/support.jsonl", sha256="1" * 64)
    experiment = inputs.experiment.model_copy(update={"suites": (suite,)})
    estimate = estimate_run(replace(inputs, experiment=experiment))
    step = next(step for step in estimate.steps if step.step == "round-00001")
    assert (step.minutes, estimate.uncounted) == (0, ("support.jsonl",))
    assert "not counted: support.jsonl" in step.basis
