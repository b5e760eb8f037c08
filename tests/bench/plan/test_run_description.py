"""What is said of a plan before it runs: its requests, its time, its cost and its notes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measured import run_manifest
from planned import plan, suite

from tandem.bench.plan.estimate import estimate_request_s, estimate_turn_s, format_duration
from tandem.bench.plan.run_description import (
    describe_plan,
    note_cut_files,
    note_large_suites,
    note_shared_classes,
    note_thin_loads,
)
from tandem.bench.plan.settings import RunSettings
from tandem.bench.suites.file_options import FileOptions


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(45, "45 s"), (200, "3 min 20 s"), (59.6, "1 min 00 s"), (7500, "2 h 05 min")],
)
def test_times_are_spoken(seconds, words):
    assert format_duration(seconds) == words


def test_a_turn_takes_its_waves_or_its_arrivals():
    first, *_ = plan(classes={"code": 16}, concurrency=(4,)).round(0)
    arriving, *_ = plan(concurrency=None, rates_per_s=(2.0,)).round(0)
    answer_s = estimate_request_s(8)

    assert estimate_turn_s(first) == pytest.approx(2 * answer_s)
    assert estimate_turn_s(arriving) == pytest.approx(arriving.arrivals_s[-1] + answer_s)


def test_a_file_of_very_many_prompts_may_be_sampled():
    assert list(note_large_suites(plan(classes={"code": 1000}))) == []
    (note,) = note_large_suites(plan(classes={"code": 1001}, concurrency=(1, 4)))
    assert note == "all 1,001 prompts of small are sent: --sample N draws some of them"


def test_a_file_that_is_cut_is_noted_with_both_counts():
    run_settings = settings(suites=(file_suite({"code": 100, "chat": 3}),), prompts_per_class=6)

    (note,) = note_cut_files(run_settings, run_settings.plan())

    assert note == (
        "9 of 103 prompts of small are sent, at most the first 6 of a class: --sample N draws from"
        " all"
    )


def test_a_sample_that_is_sent_whole_is_not_cut():
    places = {f"code-{place}": "line" for place in range(1000)}
    sampled = replace(file_suite({"code": 24}), places=places)
    run_settings = settings(suites=(sampled,), prompts_per_class=24)

    assert list(note_cut_files(run_settings, run_settings.plan())) == []


def test_a_cut_file_of_an_experiment_is_noted_with_its_key():
    cut = file_suite({"code": 100}, options=FileOptions(is_declared=True))
    run_settings = settings(suites=(cut,), prompts_per_class=6)

    (note,) = note_cut_files(run_settings, run_settings.plan())

    assert note.endswith(": sample: N draws from all")


def file_suite(classes, **changes):
    return replace(suite(classes), file_sha256="0" * 64, **changes)


def settings(**changes):
    suites = changes.pop("suites", (suite({"code": 4}),))
    return RunSettings(manifest=run_manifest(**changes), suites=suites, concurrency=(1,))


def test_the_plan_says_requests_order_minutes_cost_and_notes():
    run_settings = settings(
        price_usd_per_hour=36.0,
        suites=(replace(suite({"code": 4}), notes=("one case is left out",)),),
    )

    text = "\n".join(describe_plan(run_settings, run_settings.plan(), 1800.0))

    assert "8 requests in all, 8 a round" in text
    assert "base, spec, spec, base" in text or "spec, base, base, spec" in text
    assert "about 30.0 min, 18.00 USD at 36 USD an hour (0.5 s + 45 ms a token" in text
    assert "  note: one case is left out" in text
    assert "USD" not in "\n".join(describe_plan(settings(), run_settings.plan(), 60.0))


def test_unreachable_concurrency_and_shared_classes_are_noted():
    second = replace(suite({"code": 4}), name="other")

    (thin,) = note_thin_loads(plan(classes={"code": 4}, concurrency=(8,)))
    (shared,) = note_shared_classes(settings(suites=(suite({"code": 4, "chat": 4}), second)).plan())

    assert thin.startswith("concurrency 8 is never reached where a class has 4 requests a round")
    assert shared.startswith("class code is in small and in other")
