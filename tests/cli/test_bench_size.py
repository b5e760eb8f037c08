"""The three sizes of `tandem bench run`: what each asks, how long it takes, and what stands before
it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench_cli import run_flags

from tandem.bench.load.warm_up import SHORT_TOKENS
from tandem.bench.plan.estimate import estimate_request_s, estimate_run_s
from tandem.bench.plan.run_size import DEFAULT_SIZE, QUICK_SIZE
from tandem.bench.plan.settings import RunSettings
from tandem.bench.suites.suite import load_suite
from tandem.cli.bench_settings import RunArms, build_settings
from tandem.cli.selection import Selection

CHOSEN = Selection(environments=Path("environments"), experiments=Path("experiments"))
SERVERS = ("--baseline", "http://h:1", "--variant", "http://h:2", "--model", "m")
HOSTED = ("--env", "post-us-east-2", "--experiment", "post")
PAGE = (Path(__file__).parents[2] / "docs" / "bench.md").read_text()


@pytest.fixture(autouse=True)
def _at_the_root(root, monkeypatch):
    monkeypatch.chdir(root)


def settings(*flags: str, arms: tuple[str, ...] = SERVERS) -> RunSettings:
    return build_settings(CHOSEN, run_flags(*arms, *flags, "--out", "x"))


def expected_s(*flags: str, arms: tuple[str, ...]) -> float:
    return estimate_run_s(settings(*flags, arms=arms).plan())


def warm_up_s(max_tokens: int) -> float:
    """Seconds of both arms' shortest warm-up: a window of full length and two short ones, each one
    wave."""
    return 2 * (estimate_request_s(max_tokens) + 2 * estimate_request_s(SHORT_TOKENS))


def prompts_by_class(asked: RunSettings) -> dict[str, int]:
    return {block.class_: len(block.entries) for block in asked.plan().blocks}


def longest_answer(asked: RunSettings) -> int:
    return max(entry.max_tokens for block in asked.plan().blocks for entry in block.entries)


def test_the_default_fills_two_and_a_half_hours():
    longer = DEFAULT_SIZE.max_tokens + 10
    assert expected_s(arms=HOSTED) + warm_up_s(DEFAULT_SIZE.max_tokens) <= 2.5 * 3600
    assert expected_s("--max-tokens", str(longer), arms=HOSTED) + warm_up_s(longer) > 2.5 * 3600


@pytest.mark.parametrize("arms", [SERVERS, HOSTED], ids=["by address", "hosted"])
def test_a_quick_run_takes_at_most_ten_minutes(arms):
    assert expected_s("--quick", arms=arms) + warm_up_s(QUICK_SIZE.max_tokens) <= 600


def test_the_default_asks_eight_prompts_a_class_at_concurrency_4():
    run = settings(arms=HOSTED)
    real = load_suite("real").classes

    assert run.concurrency == (4,)
    assert {class_: prompts_by_class(run)[class_] for class_ in real} == dict.fromkeys(real, 8)
    assert longest_answer(run) == DEFAULT_SIZE.max_tokens


def test_the_full_size_asks_all_that_the_suites_state():
    run = settings("--full", arms=HOSTED)
    entries = [entry for block in run.plan().blocks for entry in block.entries]

    assert (run.concurrency, run.manifest.prompts_per_class, run.manifest.max_tokens) == (
        None,
        None,
        None,
    )
    assert {(entry.suite, entry.prompt.id) for entry in entries} == {
        (name, prompt.id) for name in ("post", "real") for prompt in load_suite(name).prompts
    }


@pytest.mark.parametrize("arms", [SERVERS, HOSTED], ids=["by address", "hosted"])
def test_a_quick_run_asks_three_classes_of_the_suite_real(arms):
    run = settings("--quick", arms=arms)
    assert [suite.name for suite in run.suites] == ["real"]
    assert prompts_by_class(run) == {"repetition": 6, "code-edit": 6, "open-ended": 6}
    assert (run.concurrency, longest_answer(run)) == ((4,), QUICK_SIZE.max_tokens)


@pytest.mark.parametrize("size", [(), ("--quick",), ("--full",)], ids=["default", "quick", "full"])
def test_a_flag_stands_before_the_size(size):
    counts = ("--rounds", "9", "--prompts-per-class", "2", "--control-rounds", "0")
    run = settings(*size, *counts, "--concurrency", "1,2", "--max-tokens", "33")
    manifest = run.manifest

    assert (manifest.rounds, manifest.prompts_per_class, manifest.control_rounds) == (9, 2, 0)
    assert (run.concurrency, manifest.max_tokens) == ((1, 2), 33)


@pytest.mark.parametrize("size", [(), ("--quick",)], ids=["default", "quick"])
def test_time_and_rate_stand_before_the_size(size):
    run = settings(*size, "--duration", "90s", "--rate", "2")
    assert (run.manifest.rounds, run.concurrency) == (0, None)


def test_a_sample_stands_before_the_size(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text("".join(f"question {number}\n" for number in range(30)))
    run = settings("--quick", "--suite", str(path), "--sample", "20")
    assert prompts_by_class(run) == {"prompts": 20}


def test_named_classes_stand_before_the_size():
    run = settings("--quick", "--classes", "json,chat")
    assert list(prompts_by_class(run)) == ["json", "chat"]


def test_an_experiments_lower_limit_stands_before_the_size(monkeypatch):
    short = RunArms(arms=settings().manifest.arms, suites=("real",), most_tokens=550)
    monkeypatch.setattr("tandem.cli.bench_settings.select_arms", lambda *_: short)
    assert [longest_answer(settings(*size)) for size in ((), ("--full",), ("--quick",))] == [
        550,
        550,
        192,
    ]


@pytest.mark.parametrize(
    ("row", "arms"),
    [("the suite `real`, two arms", SERVERS), ("experiments/post.yaml", HOSTED)],
    ids=["real", "post"],
)
def test_the_page_has_the_minutes_of_each_size(row, arms):
    [cells] = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", PAGE, flags=re.MULTILINE)
    minutes = [
        f"{expected_s(*size, arms=arms) / 60:.1f} min" for size in ((), ("--quick",), ("--full",))
    ]
    assert [cell.partition(",")[0] for cell in cells.split(" | ")] == minutes
