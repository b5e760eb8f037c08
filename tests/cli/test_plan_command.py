"""`tandem plan` as its user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from real_records import restore_records

from tandem.cli.program import main
from tandem.judge.text_format import TIMES
from tandem.plan import forecast

ROOT = Path(__file__).resolve().parents[2]
PLAN = ("plan", "post", "--env", "post-us-east-2")


def run(*words):
    folders = (
        "--environments",
        str(ROOT / "environments"),
        "--experiments",
        str(ROOT / "experiments"),
    )
    return main([*words, *folders])


def test_a_tpot_gives_a_range_of_a_factor_of_two(capsys):
    assert run(*PLAN, "--tpot", "20", "--json") == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [cell["high"] / cell["low"] for cell in cells] == pytest.approx([2.0] * 5)


def test_a_load_above_the_published_has_no_figure(capsys):
    assert run(*PLAN, "--tpot", "20", "--concurrency", "1,4") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "no figure above concurrency 2" in text
    assert "Qwen/Qwen3-1.7B 5 4 3.36 - - -" in text


def test_a_mixture_of_experts_has_no_forecast(monkeypatch, capsys):
    monkeypatch.setitem(forecast.TARGET_KINDS, "qwen3", "mixture of experts")
    assert run(*PLAN, "--tpot", "20") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(
        "No speed-up can be forecast for Qwen/Qwen3-32B: of its kind (mixture of experts"
    )
    assert "tandem run post --env NAME --hours 8" in text
    assert TIMES not in text
    assert "gains above" not in text


def test_sources_list_published_rows_with_their_dates(capsys):
    assert run(*PLAN, "--sources") == 0
    out = capsys.readouterr().out
    assert "qwen3-8b-dflash-4 (another implementation): window 4, 2.31 tokens a step, 1.70" in out
    assert "tutorial-eagle3-speculative-decoding-llama-3-1.md, Step 2 (2026-06-11)" in out
    assert "gpt-oss" not in out


def test_equal_drafts_are_not_told_apart(capsys):
    assert run("plan", "post-drafts-windows") == 0
    first = " ".join(capsys.readouterr().out.partition("\npost-drafts")[0].split())
    assert first.startswith("Try window 5 with any of 2 drafts first: ")
    assert first.endswith("The forecast does not tell these drafts apart.")


def test_without_an_environment_there_is_no_price(capsys):
    assert run("plan", "post") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "price unknown: no environment is named, so the node is taken to be a trn2.48xlarge" in text
    )
    assert "USD" not in text


def test_without_an_environment_an_illegal_experiment_is_refused(capsys, tmp_path):
    text = (ROOT / "experiments" / "post.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("max_model_len: 1024", "max_model_len: 512"))
    assert main(["plan", "mine", "--experiments", str(tmp_path)]) == 2
    assert "serving.max_model_len: got 512" in capsys.readouterr().err


def test_a_low_acceptance_keeps_plain_decoding(capsys):
    assert run(*PLAN, "--acceptance", "0.1", "--tpot", "10") == 0
    assert capsys.readouterr().out.startswith("Keep plain decoding")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--acceptance", "1.2"), "from 0 to 1"),
        (("--window", "16"), "numbers from 1 to 15"),
        (("--window", "x"), "whole numbers"),
    ],
)
def test_bad_input_gives_2_and_what_to_write(flags, words, capsys):
    assert run(*PLAN, *flags) == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def measured(tmp_path):
    """A kept run of a real vLLM, as if it were of the experiment qwen3-native; the changes go into
    its manifest."""

    def write(**changes):
        folder = restore_records(tmp_path / "kept") / "self-draft"
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text()) | {"experiment": "qwen3-native"} | changes
        manifest["arms"][1]["speculation"] = {"method": "draft_model", "num_speculative_tokens": 4}
        path.write_text(json.dumps(manifest))
        return folder

    return write


NATIVE = ("plan", "qwen3-native", "--env", "native-us-east-2")


def test_a_run_gives_its_own_acceptance_and_draft_cost(measured, capsys):
    assert run(*NATIVE, "--from", str(measured()), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["acceptance"] == {"value": pytest.approx(1.0), "basis": "measured"}
    assert document["draft_share"]["basis"] == "measured"
    assert 0.7 < document["draft_share"]["mean"] < 1.0  # the target drafts for itself


def test_every_sentence_of_a_simulated_run_says_so(measured, capsys):
    assert run(*NATIVE, "--from", str(measured(simulated=True))) == 0
    out = capsys.readouterr().out
    assert out.startswith("SIMULATED SERVERS")
    assert "of simulated servers" in " ".join(out.partition("qwen3-native:")[0].split())


def test_a_run_of_another_experiment_is_refused(measured, capsys):
    assert run(*NATIVE, "--from", str(measured(experiment="post"))) == 2
    assert "the run is of the experiment post" in capsys.readouterr().err


def test_a_run_without_counters_is_refused(measured, capsys):
    folder = measured()
    (folder / "counters.jsonl").unlink()
    assert run(*NATIVE, "--from", str(folder)) == 2
    assert "the run counted no acceptance of self-draft" in capsys.readouterr().err


def test_a_run_that_names_no_draft_is_refused(measured, capsys):
    folder = measured()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["arms"][1]["speculation"] = None
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert run(*NATIVE, "--from", str(folder)) == 2
    assert "which arm drafts with which window" in capsys.readouterr().err


def test_from_and_acceptance_exclude_each_other(measured, capsys):
    assert run(*NATIVE, "--from", str(measured()), "--acceptance", "0.5") == 2
    assert "drop --acceptance and --tpot, or --from" in capsys.readouterr().err


def test_a_price_of_zero_gives_a_plan_and_2(tmp_path, capsys):
    text = (ROOT / "environments" / "post-us-east-2.yaml").read_text()
    price = next(line for line in text.splitlines() if line.strip().startswith("usd_per_hour:"))
    text = text.replace(price, "  usd_per_hour: 0").replace(
        "monthly_limit_usd: 300", "monthly_limit_usd: 3000"
    )
    (tmp_path / "post-us-east-2.yaml").write_text(text)
    code = main(
        [*PLAN, "--environments", str(tmp_path), "--experiments", str(ROOT / "experiments")]
    )
    out = " ".join(capsys.readouterr().out.split())
    assert (code, "`capacity.usd_per_hour` is 0" in out, "Qwen/Qwen3-1.7B" in out) == (
        2,
        True,
        True,
    )


def test_the_page_has_a_chart_for_each_load(tmp_path, capsys):
    path = tmp_path / "plan.html"
    assert run(*PLAN, "--tpot", "20", "--concurrency", "1,2", "--page", str(path)) == 0
    assert capsys.readouterr().out.endswith(f"{path}\n")
    page = path.read_text()
    assert ("<h1>Try Qwen/Qwen3-1.7B" in page, page.count("<figure"), "<script" in page) == (
        True,
        2,
        False,
    )


def test_the_page_of_a_simulated_run_says_so(measured, tmp_path):
    path = tmp_path / "plan.html"
    words = ("--from", str(measured(simulated=True)), "--concurrency", "1", "--page", str(path))
    assert run(*NATIVE, *words) == 0
    page = path.read_text()
    assert ("SIMULATED SERVERS" in page, "Points are classes of the run" in page) == (True, True)
