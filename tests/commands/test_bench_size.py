"""The three sizes of `tandem bench run`: what each asks, how long it takes, and what stands before it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))

from planned import suite_file

from tandem.bench.estimate import Estimate, request_s
from tandem.bench.fault import BenchError
from tandem.bench.judge.interval import FEWEST_ROUNDS
from tandem.bench.run_size import DEFAULT, QUICK
from tandem.bench.settings import Settings
from tandem.bench.statement import plan_lines
from tandem.bench.suites.suite import load
from tandem.bench.warm import SHORT_TOKENS
from tandem.cli import _parser
from tandem.commands.bench import _settings
from tandem.commands.selection import Selection

CHOSEN = Selection(environments=Path("environments"), experiments=Path("experiments"))
SERVERS = ("--baseline", "http://h:1", "--variant", "http://h:2", "--model", "m")
HOSTED = ("--env", "post-us-east-2", "--experiment", "post")
PAGE = (Path(__file__).parents[2] / "docs" / "bench.md").read_text()
CLASSES = ("alpha", "beta", "gamma", "delta")


@pytest.fixture(autouse=True)
def _at_the_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


@pytest.fixture
def own_file(tmp_path: Path) -> str:
    """A user's suite: four classes of ten prompts that state more tokens than any size."""
    prompts = {class_: [f"{class_} {number}" for number in range(10)] for class_ in CLASSES}
    return str(suite_file(tmp_path, prompts, max_tokens=2000))


def settings(*flags: str, arms: tuple[str, ...] = SERVERS) -> Settings:
    return _settings(CHOSEN, _parser().parse_args(["bench", "run", *arms, *flags, "--out", "x"]))


def expected_s(*flags: str, arms: tuple[str, ...] = SERVERS) -> float:
    return Estimate().run_s(settings(*flags, arms=arms).plan())


def warm_up_s(max_tokens: int) -> float:
    """Seconds of both arms' shortest warm-up: a window of full length and two short ones, each one wave."""
    return 2 * (request_s(max_tokens) + 2 * request_s(SHORT_TOKENS))


def prompts_by_class(asked: Settings) -> dict[str, int]:
    return {block.class_: len(block.entries) for block in asked.plan().blocks}


def longest_answer(asked: Settings) -> int:
    return max(entry.max_tokens for block in asked.plan().blocks for entry in block.entries)


def test_the_default_takes_the_longest_answers_that_two_and_a_half_hours_allow():
    longer = DEFAULT.max_tokens + 10

    assert expected_s(arms=HOSTED) + warm_up_s(DEFAULT.max_tokens) <= 2.5 * 3600
    assert expected_s("--max-tokens", str(longer), arms=HOSTED) + warm_up_s(longer) > 2.5 * 3600


@pytest.mark.parametrize("arms", [SERVERS, HOSTED], ids=["by address", "hosted"])
def test_a_quick_run_takes_at_most_ten_minutes(arms):
    assert expected_s("--quick", arms=arms) + warm_up_s(QUICK.max_tokens) <= 600


@pytest.mark.parametrize("size", [(), ("--quick",), ("--full",)], ids=["default", "quick", "full"])
def test_every_size_has_the_rounds_of_a_verdict_and_a_control_round(size):
    asked = settings(*size)

    assert (asked.rounds, asked.control_rounds) == (FEWEST_ROUNDS, 1)


def test_the_default_asks_eight_prompts_of_each_class_at_concurrency_4():
    asked = settings(arms=HOSTED)
    real = load("real").classes

    assert asked.concurrency == (4,)
    assert {class_: prompts_by_class(asked)[class_] for class_ in real} == dict.fromkeys(real, 8)
    assert longest_answer(asked) == DEFAULT.max_tokens


def test_the_full_size_asks_all_that_the_suites_state():
    asked = settings("--full", arms=HOSTED)
    entries = [entry for block in asked.plan().blocks for entry in block.entries]

    assert (asked.concurrency, asked.prompts_per_class, asked.max_tokens) == (None, None, None)
    assert {(entry.suite, entry.prompt.id) for entry in entries} == {
        (name, prompt.id) for name in ("post", "real") for prompt in load(name).prompts
    }


@pytest.mark.parametrize("arms", [SERVERS, HOSTED], ids=["by address", "hosted"])
def test_a_quick_run_asks_three_classes_of_the_suite_real(arms):
    asked = settings("--quick", arms=arms)

    assert [suite.name for suite in asked.suites] == ["real"]
    assert prompts_by_class(asked) == {"repetition": 6, "code-edit": 6, "open-ended": 6}
    assert (asked.concurrency, longest_answer(asked)) == ((4,), QUICK.max_tokens)


def test_a_quick_run_asks_the_first_three_classes_of_a_users_file(own_file):
    asked = settings("--quick", "--suite", own_file)

    assert prompts_by_class(asked) == dict.fromkeys(CLASSES[:3], 6)
    assert longest_answer(asked) == QUICK.max_tokens


@pytest.mark.parametrize("more", [(), ("real",)], ids=["alone", "beside another"])
def test_the_default_shortens_no_users_file(own_file, more):
    asked = settings("--suite", own_file, *more)

    assert {class_: prompts_by_class(asked)[class_] for class_ in CLASSES} == dict.fromkeys(CLASSES, 10)
    assert (longest_answer(asked), asked.concurrency) == (2000, (4,))


@pytest.mark.parametrize("size", [(), ("--quick",), ("--full",)], ids=["default", "quick", "full"])
@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        (("--rounds", "9"), "rounds", 9),
        (("--duration", "90s"), "rounds", None),
        (("--prompts-per-class", "2"), "prompts_per_class", 2),
        (("--concurrency", "1,2"), "concurrency", (1, 2)),
        (("--rate", "2"), "concurrency", None),
        (("--max-tokens", "33"), "max_tokens", 33),
        (("--control-rounds", "0"), "control_rounds", 0),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) and value and isinstance(value[0], str) else "",
)
def test_a_flag_stands_before_the_size(size, flags, field, value):
    assert getattr(settings(*size, *flags), field) == value


@pytest.mark.parametrize("size", [(), ("--quick",), ("--full",)], ids=["default", "quick", "full"])
def test_named_classes_stand_before_the_size(size):
    assert list(prompts_by_class(settings(*size, "--classes", "json,chat"))) == ["json", "chat"]


def test_an_experiments_lower_limit_stands_before_the_size(monkeypatch):
    from tandem.commands import bench_arms  # noqa: PLC0415 - the command imports it when it runs

    short = bench_arms.Measured(arms=settings().arms, suites=("real",), most_tokens=550)
    monkeypatch.setattr(bench_arms, "measured", lambda *_: short)

    assert [longest_answer(settings(*size)) for size in ((), ("--full",), ("--quick",))] == [550, 550, 192]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--quick", "--full"), "--full beside --quick; allowed: one size of a run; drop one of them"),
        (
            ("--quick", "--rounds", "1"),
            f"--rounds 1 beside --quick; allowed: at least {FEWEST_ROUNDS} rounds: fewer give no verdict; drop",
        ),
        (("--quick", "--rounds", str(FEWEST_ROUNDS - 1)), f"--rounds {FEWEST_ROUNDS - 1} beside --quick"),
    ],
    ids=" ".join,
)
def test_sizes_that_contradict_are_refused(flags, sentence):
    with pytest.raises(BenchError, match=re.escape(sentence)) as refused:
        settings(*flags)

    assert refused.value.code == 2


@pytest.mark.parametrize(("rounds", "is_noted"), [(FEWEST_ROUNDS - 1, True), (FEWEST_ROUNDS, False)])
def test_the_plan_says_that_few_rounds_give_no_verdict(rounds, is_noted):
    asked = settings("--rounds", str(rounds))
    note = f"  note: fewer than {FEWEST_ROUNDS} rounds give figures and no verdict: --rounds {FEWEST_ROUNDS}"

    assert (note in list(plan_lines(asked, asked.plan(), 1.0))) is is_noted


def test_the_plan_says_how_long_an_answer_may_be():
    asked = settings("--quick")

    assert f"at most {QUICK.max_tokens} tokens" in "\n".join(plan_lines(asked, asked.plan(), 1.0))


@pytest.mark.parametrize(
    ("row", "arms"), [("the suite `real`, two arms", SERVERS), ("experiments/post.yaml", HOSTED)], ids=["real", "post"]
)
def test_the_page_has_the_minutes_of_each_size(row, arms):
    [cells] = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", PAGE, flags=re.MULTILINE)
    minutes = [f"{expected_s(*size, arms=arms) / 60:.1f} min" for size in ((), ("--quick",), ("--full",))]

    assert [cell.partition(",")[0] for cell in cells.split(" | ")] == minutes


def test_the_page_has_the_plan_of_the_default():
    asked = settings("--price", "35.76")
    lines = list(plan_lines(asked, asked.plan(), Estimate().run_s(asked.plan())))
    [shown] = re.findall(r"^```\n(plan: .*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)

    assert len(lines) == len(shown.splitlines())
    for line, part in zip(lines, shown.splitlines(), strict=True):
        assert line.startswith(part.removesuffix(" ..."))


@pytest.mark.parametrize(
    ("row", "field"),
    [("concurrency", "concurrency"), ("tokens of an answer, at most", "max_tokens")],
)
def test_the_page_has_the_figures_of_the_sizes(row, field):
    [cells] = re.findall(rf"^\| {row} \| (.*) \|$", PAGE, flags=re.MULTILINE)

    assert cells.split(" | ")[:2] == [str(getattr(size, field)).strip("(,)") for size in (DEFAULT, QUICK)]


def test_the_help_has_the_figures_of_the_sizes(capsys):
    with pytest.raises(SystemExit):
        _parser().parse_args(["bench", "run", "--help"])
    text = " ".join(capsys.readouterr().out.split())

    assert f"three classes, {QUICK.prompts_per_class} prompts of each, {QUICK.max_tokens} tokens" in text
    assert f"(default {DEFAULT.prompts_per_class}; of a file all)" in text
    assert f"(default {DEFAULT.max_tokens}; of a file what it states)" in text
    assert f"closed loops (default {DEFAULT.concurrency[0]})" in text
    assert f"(default {DEFAULT.rounds}; fewer give no verdict)" in text
    assert f"the noise floor (default {DEFAULT.control_rounds}; 0 is off)" in text
