"""Ctrl-C while a command loads its modules, of which one is slow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAIT = "import time; print('loading', flush=True); time.sleep(30)\n"
INDENTED_WAIT = f"try:\n    {WAIT}"
FAILS = f"{INDENTED_WAIT}except BaseException:\n    raise ImportError('its C part failed')\n"
IGNORES = f"{INDENTED_WAIT}except BaseException:\n    pass\n{WAIT}"
IS_DELETED = f"class Slow:\n    def __del__(self):\n        {WAIT}del (lambda: Slow())().__dict__\n"


def interrupt(tmp_path: Path, module: str, text: str, count: int) -> tuple[int, str]:
    """Interrupt `tandem bench report` so often while it loads a module; return code and errors."""
    (tmp_path / f"{module}.py").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem", "bench", "report", "nowhere"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(count):
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=20)[1]
    return process.returncode, errors


@pytest.mark.parametrize("module", ["cyclopts", "numpy"], ids=["of all commands", "of one"])
@pytest.mark.parametrize(
    ("text", "count"),
    [(WAIT, 1), (FAILS, 1), (IGNORES, 2), (IS_DELETED, 1)],
    ids=["plain", "into an error", "ignored once", "where nobody can raise"],
)
def test_an_interrupt_while_loading_gives_130_and_no_traceback(tmp_path, module, text, count):
    assert interrupt(tmp_path, module, text, count) == (130, "")
