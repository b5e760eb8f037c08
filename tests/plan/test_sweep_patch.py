"""The edit of an experiment file after a sweep."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from committed import ROOT

from tandem.errors import InputError
from tandem.plan.sweep_patch import patch_experiment

NAME = "experiments/post-drafts-windows.yaml"
TEXT = (ROOT / NAME).read_text()
WINNER = {"name": "qwen-sd-qwen3-1-7b-k7", "draft": "Qwen/Qwen3-1.7B", "num_speculative_tokens": 7}


def apply(folder: Path, winner: dict[str, str | int], text: str = TEXT) -> str:
    """Return the file after the patch, as git applies it."""
    (folder / "experiments").mkdir()
    (folder / NAME).write_text(text)
    patch = patch_experiment(text, NAME, winner)
    subprocess.run(["git", "apply", "-"], cwd=folder, input=patch, text=True, check=True)
    return (folder / NAME).read_text()


def test_winner_becomes_a_variant(tmp_path):
    plain, winner = yaml.safe_load(apply(tmp_path, WINNER))["variants"]
    assert (plain["mode"], winner) == ("none", {"mode": "fused", **WINNER})


def test_plain_decoding_adds_no_variant(tmp_path):
    assert yaml.safe_load(apply(tmp_path, {}))["variants"] == [
        {"name": "qwen-vllm", "mode": "none"}
    ]


def test_every_other_line_stays(tmp_path):
    lines = [line for line in apply(tmp_path, {}).splitlines() if line not in TEXT.splitlines()]
    assert lines == []


def test_comment_after_the_sweep_stays(tmp_path):
    text = TEXT.replace("concurrency: [4]", "# the loads\nconcurrency: [4]")
    assert "# the loads\n" in apply(tmp_path, WINNER, text)


def test_sweep_at_the_end_of_the_file_goes(tmp_path):
    block = TEXT[TEXT.index("sweep:") : TEXT.index("concurrency:")]
    assert "sweep" not in yaml.safe_load(apply(tmp_path, WINNER, TEXT.replace(block, "") + block))


def test_note_stands_above_the_winner():
    note = (
        "its output is not shown to be that of plain decoding, but it answers the tasks as well"
        " (sums: same)"
    )
    patch = patch_experiment(TEXT, NAME, WINNER, note)
    lines = [line.removeprefix("+") for line in patch.splitlines() if line.startswith("+ ")]
    assert (lines[0].startswith("  # its output is not shown"), lines[2]) == (
        True,
        "  - name: qwen-sd-qwen3-1-7b-k7",
    )


def test_file_without_a_sweep_is_refused():
    with pytest.raises(InputError, match="no sweep any more"):
        patch_experiment("variants: []\n", NAME, WINNER)
