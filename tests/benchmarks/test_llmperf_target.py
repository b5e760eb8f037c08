"""`make llmperf` without the tool's source ends with the sentence that says why and how to bring
it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_without_a_source_it_names_where_the_tool_is():
    command = [sys.executable, str(ROOT / "benchmarks" / "llmperf.py"), "--source", ""]

    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "error: there is no SOURCE; llmperf is not on the Python package index"
    )
    assert "git clone https://github.com/ray-project/llmperf DIR" in done.stderr
    assert "Traceback" not in done.stderr
