"""docs/first-hour.md takes an engineer from a file of prompts to a plan: its commands are run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from doubles.simulator_thread import SimulatorThread

from rehearsal.run.__main__ import build_parser
from tandem.bench.suites.__main__ import main as list_suite
from tandem.cli.program import main
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.workspace import load_workspace
from tandem.simulator.variant_settings import build_variant_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-hour.md").read_text()
PROMPTS = Path("prompts/support.jsonl")
(PROMPT_LINES,) = re.findall(rf"`{PROMPTS}`:\n\n```\n(.*?)```", PAGE, flags=re.DOTALL)
EXPERIMENT, HOSTING, REPORT = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
WITHOUT_ACCOUNT, _, _ = PAGE.partition("## 7. With an account")
LINES = re.findall(r"^(?:tandem|python) .*$", WITHOUT_ACCOUNT, flags=re.MULTILINE)
COMMANDS = [shlex.split(line) for line in LINES]
ENVIRONMENT = Path("environments/post-us-east-2.yaml")
SMALL = "--rounds 3 --control-rounds 0 --warm-up 0 --max-tokens 8"


@pytest.fixture(scope="module")
def urls():
    """The addresses of the post's two servers, simulated."""
    workspace = load_workspace(ROOT / "environments", ROOT / "experiments", ())
    experiment = workspace.experiments["post"].record
    assert experiment is not None
    plain, speculating = build_variant_settings(experiment, load_catalogue(), {}).values()
    with (
        SimulatorThread(plain.scale_time(50)) as baseline,
        SimulatorThread(speculating.scale_time(50)) as variant,
    ):
        yield [baseline.url, variant.url]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The declared files and those of the page, as its reader has them before step 5."""
    for name in ("environments", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    PROMPTS.parent.mkdir()
    PROMPTS.write_text(PROMPT_LINES)
    Path("experiments/support.yaml").write_text(EXPERIMENT + REPORT)
    return tmp_path


def find_command(*start: str, flag: str = "") -> list[str]:
    """Return the page's only command with these first words and this flag."""
    (command,) = [
        words
        for words in COMMANDS
        if tuple(words[: len(start)]) == start and (not flag or flag in words)
    ]
    return command


def run_command(words: list[str], capsys) -> str:
    """Return what a command prints; it must end well."""
    assert main(words[1:]) == 0, capsys.readouterr()
    return str(capsys.readouterr().out)


def host_experiment() -> None:
    """Edit the environment as the page says."""
    text = ENVIRONMENT.read_text()
    ENVIRONMENT.write_text(re.sub(r"^experiments: .*\n", HOSTING, text, flags=re.MULTILINE))


@pytest.mark.usefixtures("project")
def test_its_file_of_prompts_is_usable(capsys):
    words = find_command("python", "-m", "tandem.bench.suites")

    assert list_suite(words[3:]) == 0
    assert "support.jsonl: 4 prompts in 2 classes" in capsys.readouterr().out


@pytest.mark.usefixtures("project")
def test_nothing_is_recommended_before_anything_is_measured(capsys):
    words = next(words for words in COMMANDS if words[:2] == ["tandem", "plan"])

    assert run_command(words, capsys).startswith("No recommendation")


@pytest.mark.usefixtures("project", "no_page")
def test_two_servers_at_hand_give_a_verdict_and_an_acceptance(urls, capsys):
    measure = find_command("tandem", "bench", "run")
    measure[measure.index("--baseline") + 1] = urls[0]
    measure[measure.index("--variant") + 1] = f"draft={urls[1]}"

    run_command([*measure, *shlex.split(SMALL)], capsys)
    verdict = run_command(find_command("tandem", "bench", "report"), capsys)
    plan = run_command(find_command("tandem", "plan", flag="--from"), capsys)

    assert f"support.jsonl (SHA-256 {hash_prompts()})" in " ".join(verdict.split())
    assert "acceptance 0." in plan, plan
    assert "assumed" not in plan.partition("window")[0], plan


@pytest.mark.usefixtures("project")
def test_simulated_servers_show_the_same_steps(monkeypatch, capsys):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    words = find_command("tandem", "simulate")
    place = words.index("--")
    fast = ["--time-scale", "50"]

    run_command([*words[:place], *fast, *words[place:], *shlex.split(SMALL)], capsys)

    assert json.loads(Path("runs/simulated/manifest.json").read_text())["simulated"]


def hash_prompts() -> str:
    return hashlib.sha256(PROMPT_LINES.encode()).hexdigest()


def test_its_experiment_has_the_digest_of_its_file():
    assert f"sha256: {hash_prompts()}\n" in EXPERIMENT


@pytest.mark.usefixtures("project")
def test_file_and_experiment_fit_together(capsys):
    host_experiment()

    assert ": 0 errors" in run_command(find_command("tandem", "check"), capsys)


@pytest.mark.usefixtures("project")
def test_a_dry_run_says_minutes_and_usd_without_an_account(capsys):
    host_experiment()

    plan = run_command(find_command("tandem", "run"), capsys)

    assert re.search(r"measure +about \d+ min +[\d.]+ USD", plan), plan
    assert re.search(r"total +at most .* USD", plan), plan
    assert "not asked" in plan


@pytest.mark.usefixtures("project")
def test_show_says_what_a_day_of_the_block_costs(capsys):
    host_experiment()

    assert re.search(
        r"a day of the block +[\d.]+ USD, prepaid",
        run_command(find_command("tandem", "show"), capsys),
    )


def test_its_rehearsal_is_one_that_the_program_takes():
    options = build_parser().parse_args(find_command("python", "-m", "rehearsal.run")[3:])

    assert (options.experiment, options.words) == ("support", ["--quick"])


def test_every_command_without_an_account_is_tested():
    assert [" ".join(words[:3]) for words in COMMANDS] == [
        "python -m tandem.bench.suites",
        "tandem plan post",
        "tandem bench run",
        "tandem bench report",
        "tandem plan post",
        "tandem simulate --experiment",
        "tandem check post-us-east-2",
        "tandem run support",
        "tandem show post-us-east-2",
        "python -m rehearsal.run",
    ]
