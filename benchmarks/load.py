"""Measure the load itself: its accuracy, bursts and capacity; print Markdown for docs/.

    python benchmarks/load.py [--only accuracy|bursts|capacity|side-by-side] [--write]

The program takes ten minutes on an idle machine. Every server and every client is a separate
process; truth is the server's own log. `capacity` needs aiperf in `.venv-aiperf` (`make bench-load`
makes it). `side-by-side` runs only where it is named (`make side-by-side`). The exit code is 1 if a
limit does not hold, 3 if a part could not run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import load_accuracy
import load_bursts
import load_capacity
import side_by_side
from bench_command import BenchError
from between_marks import write_between
from foreign_servers import ForeignError
from machine import describe_day

from tandem.errors import TandemError

PARTS = {
    "accuracy": load_accuracy.measure,
    "bursts": load_bursts.measure,
    "capacity": load_capacity.measure,
}
APART = {"side-by-side": side_by_side.measure}


def main() -> int:
    """Run the requested parts and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS | APART)
    parser.add_argument(
        "--write", action="store_true", help="put the tables into their page of docs/"
    )
    options = parser.parse_args()
    exit_code = 0
    for name in [options.only] if options.only else PARTS:
        load = os.getloadavg()[0]
        try:
            with tempfile.TemporaryDirectory(prefix="tandem-load-") as folder:
                lines, holds = (PARTS | APART)[name](Path(folder))
            limits = "held" if holds else "**not held**"
            facts = f"{describe_day()}, load {load:.1f}; limits {limits}."
            text = "\n".join([f"`python benchmarks/load.py`, {facts}", "", *lines])
            print(f"\n## {name}\n\n{text}")
            if options.write:
                write_between(name, text)
        except (BenchError, ForeignError, TandemError) as failure:
            print(f"error: {name}: {failure}", file=sys.stderr)
            return 3
        exit_code |= not holds
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
