"""`keep`: all of a folder, under a name that no other run has, with the exit code of the run that
made it."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]
HOLDER = "qwen-llmperf-1-uid"


@pytest.fixture
def folder(tmp_path):
    results = tmp_path / "results"
    (results / "raw/a/0").mkdir(parents=True)
    (results / "raw/a/0/summary.json").write_text("{}")
    (results / "calls.jsonl").write_text("1\n")
    return results


@pytest.fixture
def keep(bucket, aws, folder, monkeypatch, command):  # noqa: ARG001 - aws leads to the endpoint
    def act(holder=HOLDER, below="post/llmperf"):
        monkeypatch.setenv("TANDEM_HOLDER", holder)
        return command("keep", "--bucket", bucket, "--folder", folder, "--below", below)

    return act


def test_every_file_is_below_the_runs_own_prefix(store, keep):
    code, lines = keep()

    assert code == 0
    assert {row.key: row.size for row in store.list("")} == {
        f"results/post/llmperf/{HOLDER}/calls.jsonl": 2,
        f"results/post/llmperf/{HOLDER}/raw/a/0/summary.json": 2,
    }
    assert lines[-1]["event"] == "kept"


def test_it_ends_as_the_measurement_ended_and_keeps_its_files(store, keep, folder):
    (folder / "outcome.json").write_text('{"exit_code": 3}')
    code, _ = keep()
    assert (code, len(list(store.list("results/")))) == (3, 3)


def test_an_outcome_that_names_no_code_is_told(keep, folder):
    (folder / "outcome.json").write_text("{")
    code, lines = keep()
    assert (code, lines[-1]["where"]) == (2, str(folder / "outcome.json"))


def test_an_empty_folder_is_told(keep, folder):
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.unlink()
    code, lines = keep()
    assert code == 2
    assert "no files" in lines[-1]["event"]


@pytest.mark.parametrize("below", ["../models", "/models", ""])
def test_a_prefix_that_leads_elsewhere_is_refused(keep, store, below):
    code, _ = keep(below=below)
    assert (code, list(store.list(""))) == (2, [])


def test_problem_of_the_measurement_is_the_last_line(keep, folder):
    (folder / "outcome.json").write_text('{"exit_code": 3, "problem": "lm-eval ended with 1"}')
    _, lines = keep()
    assert lines[-1]["event"] == "lm-eval ended with 1"
