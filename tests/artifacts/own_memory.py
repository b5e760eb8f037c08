"""The most memory that a command held, of its own process alone: rusage counts what its parent held
at the fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import re, sys
from pathlib import Path
from tandem.artifacts.__main__ import main

code = main(sys.argv[1:])
sys.stderr.write("\\n" + re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


def peak_mib(arguments, variables):
    """Run `python -m tandem.artifacts` with these arguments, to a good end; the most memory it
    held, in MiB."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(run.stderr.splitlines()[-1]) / 1024
