"""The list of a run's steps; it asks a world for nothing but what is declared."""

from __future__ import annotations

from types import SimpleNamespace

from committed import environment, experiment, known

from tandem.run.journal import RunJournal
from tandem.run.run_values import LeaseSpan, RunRecord, RunRequest, StepRecord
from tandem.run.run_world import StepWork
from tandem.run.step_list import list_steps

POST = experiment("post")
SWEEP = experiment("post-drafts-windows")
AT = "2026-11-21T08:00:00+00:00"


def build_work(declared=POST, leases=(), steps=None, **request):
    """A run that has begun, as its journal has it."""
    names = {"run": "r1", "environment": "post-us-east-2", "experiment": declared.name}
    run = RunRecord(
        **names,
        who="anna",
        started_at=AT,
        leases=leases,
        request=RunRequest(**names, kind="run", at=AT, **request),
    )
    declarations = SimpleNamespace(environment=environment("post-us-east-2"), catalogue=known())
    return StepWork(world=declarations, journal=RunJournal(None, run, steps), experiment=declared)


def name_steps(work):
    return [step.name for step in list_steps(work)]


def test_a_run_that_only_stages_has_no_step_on_nodes():
    steps = list_steps(build_work(until="stage"))

    assert [(step.name, step.needs_node) for step in steps] == [
        ("preflight", False),
        ("stage", False),
    ]


def test_servers_restart_between_the_rounds_of_two_starts():
    names = name_steps(build_work(rounds=4, control_rounds=0, starts=2))
    restart_at = names.index("restart-2")

    assert names[restart_at - 1 : restart_at + 2] == ["round-00001", "restart-2", "round-00002"]


def test_compiles_that_do_not_fit_at_once_have_twice_the_time():
    # of the node's 2 TiB one compile takes more than half
    settings = POST.compile.model_copy(update={"memory_gib": 1200})
    steps = list_steps(build_work(POST.model_copy(update={"compile": settings})))
    (compile_step,) = [step for step in steps if step.name == "compile"]

    # two waves of compile.deadline_hours 4, and 90 minutes for nodes and transfers
    assert compile_step.deadline_s == (2 * 4 * 60 + 90) * 60


def test_a_second_lease_starts_the_servers_anew():
    first_lease = LeaseSpan(name="r1", deadline=AT, raised_at=AT, empty_at=AT)
    names = name_steps(build_work(leases=(first_lease,)))

    assert {"raise.2", "node.2", "serve.2", "ready.2"} < set(names)


def test_a_sweep_without_another_candidate_is_decided():
    choice = StepRecord(
        run="r1", step="pair-01-choose", state="done", started_at=AT, result={"variant": ""}
    )
    names = name_steps(build_work(SWEEP, steps={choice.step: choice}))

    assert names[-2:] == ["pair-01-choose", "judge"]
