"""`tandem plan` as its user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bucket_specs import folders
from real_records import restore_records

from tandem.cli.program import main
from tandem.judge.text_format import TIMES
from tandem.plan import forecast

ROOT = Path(__file__).resolve().parents[2]
PLAN = ("plan", "post", "--env", "post-us-east-2")


def run(*words):
    return main([*words, *folders(ROOT)])


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


DRAFTS = ("plan", "post-drafts-windows")
SMALL = "Qwen/Qwen3-0.6B"
LARGE = "Qwen/Qwen3-1.7B"


def read_advice(capsys):
    """Return what is recommended, and the missing figures, in one line."""
    return " ".join(capsys.readouterr().out.partition("\npost")[0].split())


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        ((), "No recommendation: neither acceptance nor cost of a draft is known."),
        (("--tpot", "20"), "No recommendation: the acceptance of no draft is known."),
        (
            ("--acceptance", f"{SMALL}=0.9", "--tpot", "30"),
            f"Try {SMALL} with window 10 first: ",
        ),
        (
            ("--acceptance", f"{SMALL}=0.8", "--acceptance", f"{LARGE}=0.7", "--tpot", "20"),
            "No recommendation between drafts, because their ranges overlap",
        ),
        (
            ("--acceptance", f"{SMALL}=0.95", "--acceptance", f"{LARGE}=0.4", "--cost", "0.05"),
            f"Try {SMALL} with window 15 first:",
        ),
    ],
)
def test_a_plan_recommends_only_what_it_knows(flags, advice, capsys):
    assert run(*DRAFTS, *flags) == 0
    assert read_advice(capsys).startswith(advice)


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (
            ("--acceptance", "0.8"),
            f"Try {LARGE} with window 5 first: faster than plain decoding if the plain",
        ),
        (
            ("--acceptance", "0.1"),
            "Measure before you decide: no window of these is sure to be faster, whatever the TPOT",
        ),
        (
            ("--acceptance", "0.5", "--tpot", "20"),
            f"Measure before you decide: {LARGE} with window 3 may be slower or faster, 0.9 to 1.7",
        ),
        (
            ("--acceptance", "0.8", "--concurrency", "4"),
            "No speed-up can be forecast at concurrency 4: none is published above 2.",
        ),
    ],
)
def test_a_draft_of_known_acceptance_is_tried_measured_or_left(flags, advice, capsys):
    assert run(*PLAN, *flags) == 0
    assert read_advice(capsys).startswith(advice)


def test_an_unknown_draft_beside_a_known_one_is_named(capsys):
    run(*DRAFTS, "--acceptance", "Qwen3-0.6B=0.9", "--tpot", "30")
    assert f"Nothing is known of {LARGE}: it may be better." in read_advice(capsys)


def test_missing_figures_come_with_the_way_to_them(capsys):
    run(*DRAFTS)

    advice = read_advice(capsys)
    assert "acceptance: serve target and draft on any hardware" in advice
    assert (
        "cost: measure the plain server's TPOT (--tpot MS), or the first pair of a sweep" in advice
    )


def test_nothing_is_missing_where_both_figures_are_given(capsys):
    run(*PLAN, "--acceptance", "0.8", "--cost", "0.1", "--json")
    assert json.loads(capsys.readouterr().out)["deciding"] == []


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
        (("--acceptance", "0.4,0.5"), "a later position with a larger share"),
        (("--acceptance", "Qwen3-8B=0.4"), "no draft Qwen3-8B"),
        (("--cost", "x"), "write a number from 0 to 100"),
        (("--window", "1..99999999999"), "numbers from 1 to 15"),
        (("--window", "5..3"), "the lower number first: 3..5"),
        (("--window", "3.."), "whole numbers, as 1,4 or 1..15"),
    ],
)
def test_bad_input_gives_2_and_what_to_write(flags, words, capsys):
    assert run(*PLAN, *flags) == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def write_run(tmp_path):
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


def test_a_run_gives_its_own_acceptance_and_draft_cost(write_run, capsys):
    assert run(*NATIVE, "--from", str(write_run()), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (draft,) = document["drafts"].values()
    assert (draft["acceptance"], draft["acceptance_basis"]) == (pytest.approx(1.0), "measured")
    assert draft["share"]["basis"] == "measured"
    assert 0.7 < draft["share"]["mean"] < 1.0  # the target drafts for itself


def test_a_run_of_other_hardware_gives_acceptance_and_no_cost(write_run, capsys):
    assert run(*NATIVE, "--from", str(write_run(experiment=None)), "--json") == 0
    (draft,) = json.loads(capsys.readouterr().out)["drafts"].values()
    assert (draft["acceptance_basis"], draft["share"]) == ("measured", None)


def test_a_run_of_one_of_several_drafts_is_named_by_the_flag(write_run, capsys):
    folder = write_run(experiment=None)

    assert run(*DRAFTS, "--from", str(folder)) == 2
    assert "name it: --from DRAFT=DIR" in capsys.readouterr().err
    assert run(*DRAFTS, "--from", f"Qwen3-0.6B={folder}", "--json") == 0
    drafts = json.loads(capsys.readouterr().out)["drafts"]
    assert [drafts[name]["acceptance_basis"] for name in (SMALL, LARGE)] == ["measured", "assumed"]


def test_every_sentence_of_a_simulated_run_says_so(write_run, capsys):
    assert run(*NATIVE, "--from", str(write_run(simulated=True))) == 0
    out = capsys.readouterr().out
    assert out.startswith("SIMULATED SERVERS")
    assert "of simulated servers" in " ".join(out.partition("qwen3-native:")[0].split())


def test_a_run_of_another_experiment_is_refused(write_run, capsys):
    assert run(*NATIVE, "--from", str(write_run(experiment="post"))) == 2
    assert "the run is of the experiment post" in capsys.readouterr().err


def test_a_run_without_counters_is_refused(write_run, capsys):
    folder = write_run()
    (folder / "counters.jsonl").unlink()
    assert run(*NATIVE, "--from", str(folder)) == 2
    assert "the run counted no acceptance of self-draft" in capsys.readouterr().err


def test_what_a_run_gives_is_not_given_again(write_run, capsys):
    assert run(*NATIVE, "--from", str(write_run()), "--cost", "0.5") == 2
    assert "a run gives the cost of" in capsys.readouterr().err


def test_the_page_of_a_simulated_run_says_so(write_run, tmp_path):
    path = tmp_path / "plan.html"
    words = ("--from", str(write_run(simulated=True)), "--concurrency", "1", "--page", str(path))
    assert run(*NATIVE, *words) == 0
    page = path.read_text()
    assert ("SIMULATED SERVERS" in page, "Points are classes of the run" in page) == (True, True)
