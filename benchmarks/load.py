"""Measure the load itself: its accuracy, bursts and capacity; print Markdown for docs/.

    python benchmarks/load.py [--only accuracy|bursts|capacity] [--llmperf DIR] [--write]

The program takes ten minutes on an idle machine. Every server and every client is a separate process; truth is the
server's own log. `capacity` needs aiperf in `.venv-aiperf` (`make bench-load` makes it), and also measures llmperf if a
checkout of its commit is given. benchmarks/records.py measures the time of a million records. The exit code is 1 if a
limit does not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import load_accuracy  # noqa: E402
import load_bursts  # noqa: E402
import load_capacity  # noqa: E402
from between_marks import write_between  # noqa: E402
from load_parts import PartError  # noqa: E402
from taken_on import taken_on  # noqa: E402

from tandem.errors import TandemError  # noqa: E402


def accuracy(folder: Path) -> tuple[list[str], bool]:
    """Return the table of accuracy, and whether every limit holds."""
    rows = list(load_accuracy.accuracy(folder))
    return load_accuracy.table(rows), all(row.holds for row in rows)


def bursts(folder: Path) -> tuple[list[str], bool]:
    """Return the table of bursts, and whether TPOT stays the same."""
    rows = load_bursts.bursts(folder)
    return load_bursts.table(rows), load_bursts.holds(rows)


def capacity(folder: Path, checkout: Path | None = None) -> tuple[list[str], bool]:
    """Return the tables of capacity, and whether Tandem's is the highest and the tools agree."""
    rows = []
    for row in load_capacity.capacity(folder):
        rows.append(row)
        print(load_capacity.table([row])[-1], file=sys.stderr)
    lines, held = load_capacity.table(rows), True
    lines.append("")
    for rate in load_capacity.RATES:
        most = {tool: load_capacity.highest(rows, tool, rate) for tool in ("tandem", "aiperf")}
        held &= most["tandem"] >= most["aiperf"]
        said = ", ".join(f"{tool} {streams}" for tool, streams in most.items())
        lines.append(f"Most streams at {rate} chunks/s under {load_capacity.LIMIT_MS:g} ms: {said}.")
    apart = load_capacity.disagreement(rows)
    lines.append(f"Largest difference of the tools' TPOT at the lightest load of each rate: {apart:.2%} (limit 1 %).")
    if checkout is not None:
        lines += ["", *load_capacity.llmperf_table(list(load_capacity.llmperf(folder, checkout)))]
    else:
        lines += ["", "llmperf was not measured: no checkout was given (`--llmperf DIR`)."]
    return lines, held and apart <= 0.01  # noqa: PLR2004 - the limit stands in the line above


PARTS = ("accuracy", "bursts", "capacity")


def main() -> int:
    """Run the requested parts; return 1 if a limit does not hold, 3 if a part could not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--llmperf", type=Path, metavar="DIR", help="checkout of llmperf's pinned commit")
    parser.add_argument("--write", action="store_true", help="put the tables into their page of docs/")
    options = parser.parse_args()
    measure = {"accuracy": accuracy, "bursts": bursts, "capacity": partial(capacity, checkout=options.llmperf)}
    held = True
    for name in [options.only] if options.only else PARTS:
        with tempfile.TemporaryDirectory(prefix="tandem-load-") as folder:
            try:
                lines, holds = measure[name](Path(folder))
                text = "\n".join([_head(holds=holds), "", *lines])
                print(f"\n## {name}\n\n{text}")
                if options.write:
                    write_between(name, text)
            except (PartError, TandemError) as failure:
                print(f"error: {name}: {failure}", file=sys.stderr)
                return 3
        held &= holds
    return 0 if held else 1


def _head(*, holds: bool) -> str:
    return f"`python benchmarks/load.py`, {taken_on()}; limits {'held' if holds else '**not held**'}."


if __name__ == "__main__":
    sys.exit(main())
