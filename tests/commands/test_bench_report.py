from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from measured import chunks, failed, record, write_run

from tandem.bench.manifest import Ended
from tandem.cli import main


def test_a_run_is_reported_as_a_table_and_its_summary_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", [record()])

    assert main(["bench", "report", str(folder)]) == 0

    assert "concurrency 4: medians" in capsys.readouterr().out
    assert json.loads((folder / "summary.json").read_text())["records"] == 1


def test_json_is_the_summary_as_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run", [record(text="é")])

    assert main(["bench", "report", str(folder), "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == json.loads((folder / "summary.json").read_text())


def test_failed_requests_give_code_1(tmp_path: Path) -> None:
    assert main(["bench", "report", str(write_run(tmp_path / "run", [record(), failed()]))]) == 1


def test_a_cell_in_which_nothing_succeeded_gives_code_3(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [record(), failed(class_="chat")])

    assert main(["bench", "report", str(folder)]) == 3


def test_a_request_that_was_cut_and_asked_again_is_no_failure(tmp_path: Path) -> None:
    records = [record(), failed(error="interrupted"), record(request_id="r-0~1")]

    assert main(["bench", "report", str(write_run(tmp_path / "run", records))]) == 0
    cut = write_run(tmp_path / "cut", records, ended=Ended(reason="interrupted", utc="2026"))
    assert main(["bench", "report", str(cut)]) == 1


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_bad_line_gives_code_2_and_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: list[str]
) -> None:
    folder = write_run(tmp_path / "run", [record()])
    with (folder / "records.jsonl").open("a") as file:
        file.write("{}\n")

    assert main(["bench", "report", str(folder), *as_json]) == 2

    said = capsys.readouterr()
    assert f"{folder}/records.jsonl:2" in (said.out if as_json else said.err)
    assert "Traceback" not in said.err


def test_a_folder_that_is_no_run_gives_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "report", str(tmp_path / "nothing")]) == 2

    assert "manifest.json: the manifest cannot be read: No such file or directory" in capsys.readouterr().err


def test_a_folder_that_takes_no_summary_is_reported_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", [record(chunks=chunks((0.2, "text", 8)))])
    (folder / "summary.json.new").mkdir()

    assert main(["bench", "report", str(folder)]) == 0

    said = capsys.readouterr()
    assert "concurrency 4: medians" in said.out
    assert "warning: " in said.err
    assert "the summary cannot be written" in said.err
