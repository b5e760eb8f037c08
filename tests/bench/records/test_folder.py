"""The output folder: when a run may have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.bench.records.folder import claim_folder
from tandem.errors import InputError


def test_a_folder_that_holds_something_is_refused_and_stays(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(InputError, match="it exists already"), claim_folder(tmp_path, resume=False):
        pass
    assert (tmp_path / "mine").exists()


def test_a_folder_that_the_system_refuses_is_bad_input():
    with (
        pytest.raises(InputError, match="it cannot be made: "),
        claim_folder(Path("/proc/tandem/out"), resume=False),
    ):
        pass


def test_two_runs_never_write_to_one_folder(tmp_path):
    with claim_folder(tmp_path / "runs" / "out", resume=False):
        (tmp_path / "runs" / "out" / "manifest.json").write_text("{}")
        with (
            pytest.raises(InputError, match="another run is writing to it"),
            claim_folder(tmp_path / "runs" / "out", resume=True),
        ):
            pass

    with claim_folder(tmp_path / "runs" / "out", resume=True):  # free again, and it stays
        pass


def test_a_run_without_a_manifest_leaves_no_folder(tmp_path):
    with claim_folder(tmp_path / "out", resume=False):
        (tmp_path / "out" / "manifest.json.new").write_text("{")
    assert not (tmp_path / "out").exists()
