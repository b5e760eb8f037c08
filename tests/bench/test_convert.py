"""A run of records schema 1: refused with the command that converts it, and the same figures afterwards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from measured import record, write_run

from tandem.bench.convert import convert_run
from tandem.bench.record import read_records
from tandem.bench.summary import summarize_run
from tandem.cli.program import main
from tandem.errors import InputError

FROZEN = Path(__file__).parents[1] / "frozen" / "runs" / "faults"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that commit 59a2544 recorded."""
    return Path(shutil.copytree(FROZEN, tmp_path / "old run"))


def test_old_run_is_refused_until_it_is_converted(folder, capsys):
    before = (folder / "records.jsonl").read_bytes()
    assert main(["bench", "report", str(folder)]) == 2
    assert f"tandem bench convert '{folder}'" in capsys.readouterr().err

    assert main(["bench", "convert", str(folder), "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["files"] == ["records.jsonl", "warmup.jsonl"]
    assert (folder / "records-schema1.jsonl").read_bytes() == before
    assert not list(folder.glob("*.new"))
    assert summarize_run(folder).records == before.count(b"\n")
    assert convert_run(folder) == []  # nothing is left to convert


def test_values_of_each_record_stay(folder):
    old = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]

    convert_run(folder)

    for line, new in zip(old, read_records(folder / "records.jsonl"), strict=True):
        assert [list(chunk) for chunk in new.chunks] == line["chunks"]
        assert all(getattr(new, name) == line[name] for name in ("request_id", "start_s", "text", "error"))


def test_torn_last_line_stays(folder):
    path = folder / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    torn = path.read_bytes().splitlines()[-1]

    convert_run(folder)

    assert path.read_bytes().endswith(b"\n" + torn)


@pytest.mark.parametrize("line", [b"{oops\n", b'{"schema":1,"chunks":[[1]]}\n', b'{"schema":1,"chunks":7}\n', b"\n"])
def test_line_that_is_no_record_leaves_the_run_alone(folder, line):
    path = folder / "records.jsonl"
    before = path.read_bytes() + line
    path.write_bytes(before)

    with pytest.raises(InputError, match="no record of schema 1") as refused:
        convert_run(folder)

    assert refused.value.where == f"{path}:{before.count(bytes([10]))}"
    assert path.read_bytes() == before
    assert not list(folder.glob("*schema1*")) + list(folder.glob("*.new"))


def test_file_in_the_way_is_kept(folder):
    (folder / "records-schema1.jsonl").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        convert_run(folder)
    assert (folder / "records-schema1.jsonl").read_text() == "mine"


def test_conversion_goes_on_after_a_kill_before_the_replacement(folder):
    (folder / "records-schema1.jsonl").hardlink_to(folder / "records.jsonl")
    convert_run(folder)
    assert summarize_run(folder).records


def test_folder_without_records_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no records\.jsonl"):
        convert_run(tmp_path)


def test_present_run_needs_no_conversion(tmp_path, capsys):
    assert main(["bench", "convert", str(write_run(tmp_path, [record()]))]) == 0
    assert "no conversion" in capsys.readouterr().out
