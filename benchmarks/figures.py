"""Compare docs/ tables with a new computation: the same data must give the same table.

    python benchmarks/figures.py [--worlds]

`make test` compares those of QUICK, which take seconds; this program compares the others, which
take minutes, and with `--worlds` those of virtual worlds, which take an hour. A table of MEASURED
comes from servers or a machine, so nothing can compute it again. Invariant: every table between
marks belongs to one of the four groups.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import knee
import llmperf_comparison
import real
import real_records
import theory
import theory_real
import tuning
import upgrade_diff
import usual_ways
import worlds
from between_marks import read_between, wrapped

ROOT = Path(__file__).resolve().parent.parent

LLMPERF_RUNS = ROOT / "tests" / "bench" / "llmperf_runs"


def format_real_runs() -> list[str]:
    """Return the tables of the kept runs of `make real`."""
    with tempfile.TemporaryDirectory() as folder:
        kept = real_records.restore_records(Path(folder) / "kept")
        return real.format_tables(kept, real.read_facts(kept))[0]


def format_upgrade(name: str) -> Iterable[str]:
    """Return the tables of a rehearsed upgrade."""
    return upgrade_diff.describe_upgrade(*upgrade_diff.UPGRADES[name]())


def format_usual_ways() -> list[str]:
    """Return the table of the usual ways at the seeds of the page, and as many of them."""
    ((runs, seed),) = re.findall(r"--runs (\d+) --seed (\d+)", read_between(usual_ways.TABLE))
    return list(usual_ways.format_table(int(runs), int(seed)))


def format_worlds() -> list[str]:
    """Return the table of all worlds at the seeds of the page, and as many of them."""
    (scale,) = re.findall(r"worlds.py --seed 0 --scale (\S+)`", read_between("worlds"))
    return worlds.format_table(list(worlds.measure_rows(worlds.ROWS, 0, float(scale))))


def format_knee() -> list[str]:
    """Return the table of knees at the seeds of the page, and as many of them."""
    ((runs, seed),) = re.findall(r"--runs (\d+) --seed (\d+)", read_between("knee"))
    seeds = range(int(seed), int(seed) + int(runs))
    return [*knee.HEAD, *(knee.measure_world(world, seeds)[0] for world in knee.WORLDS)]


QUICK: Mapping[str, Callable[[], Iterable[str]]] = {
    theory.FIGURES: theory.format_table,
    theory.REAL_FIGURES: theory_real.format_table,
    **tuning.TABLES,
    real.FIGURES: format_real_runs,
    "llmperf comparison": partial(llmperf_comparison.format_comparison, LLMPERF_RUNS),
    "llmperf tokenizers": partial(llmperf_comparison.format_token_counts, LLMPERF_RUNS),
    "llmperf machine": partial(llmperf_comparison.describe_machine, LLMPERF_RUNS),
}
SLOW: Mapping[str, Callable[[], Iterable[str]]] = {
    "sdk": partial(format_upgrade, "sdk"),
    "kubernetes": partial(format_upgrade, "kubernetes"),
    usual_ways.TABLE: format_usual_ways,
}
SLOWEST: Mapping[str, Callable[[], Iterable[str]]] = {
    "worlds": format_worlds,
    "knee": format_knee,
}
# the name of a table that servers or a machine gave -> the command that measures
MEASURED = {
    "accuracy": "make bench-load",
    "bursts": "make bench-load",
    "capacity": "make bench-load",
    "make others": "make others",
    "side-by-side": "make side-by-side",
}


def list_differences(name: str, lines: Iterable[str]) -> list[str]:
    """Return the lines in which a page and the computed table differ, marked as `diff` marks them.

    The lines above a table that name command, day and duration are the writer's, and not compared.

    Args:
        name: of the table, as its marks have it.
        lines: of the computed table.
    """
    stated = read_between(name).splitlines()
    computed = wrapped("\n".join(lines)).splitlines()
    if stated[0].startswith("`python ") and not computed[0].startswith("`python "):
        stated = stated[stated.index("") + 1 :]
    return list(difflib.unified_diff(stated, computed, "page", "computed", n=0, lineterm=""))


def main() -> int:
    """Compare the slow tables with their pages; return 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--worlds", action="store_true", help="the tables of virtual worlds too, which take an hour"
    )
    tables = SLOW | (SLOWEST if parser.parse_args().worlds else {})
    has_difference = False
    for name, format_table in tables.items():
        start_s = time.monotonic()
        differences = list_differences(name, format_table())
        print(
            f"{name}: {'differs' if differences else 'as on its page'},"
            f" {time.monotonic() - start_s:.0f} s"
        )
        print(*differences, sep="\n", end="\n" if differences else "")
        has_difference |= bool(differences)
    return int(has_difference)


if __name__ == "__main__":
    sys.exit(main())
