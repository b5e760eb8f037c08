"""The output folder: when a run may have it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tandem.bench.fault import BenchError
from tandem.bench.folder import check_folder, claim_folder

NOBODY = 65534


@pytest.fixture
def read_only():
    """A folder that nobody may write to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def refused(folder: Path, *, resume: bool) -> str:
    """What a user without any rights is told; root, who may do everything, first becomes nobody."""
    told, say = os.pipe()
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        try:
            check_folder(folder, resume=resume)
        except BenchError as fault:
            os.write(say, str(fault).encode())
        os._exit(0)
    os.close(say)
    os.waitpid(child, 0)
    with os.fdopen(told) as said:
        return said.read()


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to(path.with_name("nowhere"))])
def test_a_folder_or_link_that_exists_is_refused(tmp_path, make):
    make(tmp_path / "out")
    with pytest.raises(BenchError, match="it exists already"):
        check_folder(tmp_path / "out", resume=False)


def test_a_folder_in_a_place_that_may_not_be_written_to_is_refused_before_anything_is_asked(read_only):
    assert f"it cannot be made: {read_only} may not be written to" in refused(read_only / "out", resume=False)


def test_a_run_in_a_folder_that_may_not_be_written_to_is_not_resumed(read_only):
    read_only.chmod(0o755)
    (read_only / "manifest.json").write_text("{}")
    read_only.chmod(0o555)
    assert "it may not be written to" in refused(read_only, resume=True)


def test_a_place_that_may_not_be_looked_into_is_refused(read_only):
    read_only.chmod(0o700 if os.geteuid() == 0 else 0o000)
    assert "it cannot be looked at: Permission denied" in refused(read_only / "runs" / "out", resume=False)


def test_a_folder_that_the_system_refuses_is_bad_input():
    with pytest.raises(BenchError, match="it cannot be made: "), claim_folder(Path("/proc/tandem/out"), resume=False):
        pass


def test_two_runs_never_write_to_one_folder(tmp_path):
    with claim_folder(tmp_path / "runs" / "out", resume=False):
        (tmp_path / "runs" / "out" / "manifest.json").write_text("{}")
        with (
            pytest.raises(BenchError, match="another run is writing to it"),
            claim_folder(tmp_path / "runs" / "out", resume=True),
        ):
            pass

    with claim_folder(tmp_path / "runs" / "out", resume=True):  # free again, and it stays
        pass


def test_a_run_that_could_not_write_its_manifest_leaves_no_folder(tmp_path):
    with claim_folder(tmp_path / "out", resume=False):
        (tmp_path / "out" / "manifest.json.new").write_text("{")
    assert not (tmp_path / "out").exists()
