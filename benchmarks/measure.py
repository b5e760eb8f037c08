"""Measure the speed of synthesis, check and render; print Markdown for docs/performance.md.

Every figure is the median of several runs of a whole process on this machine, or of a call after
imports.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

from machine import describe_day

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = "post-us-east-2"
COUNT = 10  # environments


def write_copies(count: int, folder: Path) -> tuple[Path, Path]:
    """Write `count` environments, own name and range each, and all experiments; return folders."""
    environments = folder / "environments"
    environments.mkdir(parents=True)
    text = (ROOT / "environments" / f"{ENVIRONMENT}.yaml").read_text()
    for index in range(count):
        (environments / f"bench-{index}.yaml").write_text(
            text.replace("10.42.", f"10.{50 + index}.")
        )
    return environments, shutil.copytree(ROOT / "experiments", folder / "experiments")


def run_python(*words: str, **variables: str) -> None:
    """Run this Python with some arguments and variables."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    subprocess.run(
        [sys.executable, *words], cwd=ROOT, check=True, capture_output=True, env=environment
    )


def time_calls(runs: int, *calls: Callable[[], object]) -> list[tuple[float, ...]]:
    """Return seconds of all calls in turn, after an uncounted turn: a slow minute hits all."""
    turns = []
    for _ in range(runs + 1):
        turn_s = []
        for call in calls:
            start_s = time.perf_counter()
            call()
            turn_s.append(time.perf_counter() - start_s)
        turns.append(tuple(turn_s))
    return turns[1:]


def measure_synthesis(runs: int, folder: Path) -> Iterator[tuple[str, float, str]]:
    """Measure `python app.py` with one environment and with all."""
    calls = []
    for count in (1, COUNT):
        environments, experiments = write_copies(count, folder / str(count))
        context = json.dumps({"environments": str(environments), "experiments": str(experiments)})
        out = str(folder / f"out-{count}")
        calls.append(partial(run_python, "app.py", CDK_CONTEXT_JSON=context, CDK_OUTDIR=out))
    turns = time_calls(runs, *calls)
    further_s = [(all_s - first_s) / (COUNT - 1) for first_s, all_s in turns]
    shares = sorted(each_s / turn[0] for each_s, turn in zip(further_s, turns, strict=True))
    note = (
        f"{shares[0]:.1%} to {shares[-1]:.1%} of the first, median {median(shares):.1%} (target:"
        " 10 %)"
    )
    yield "`python app.py`, one environment", median(first_s for first_s, _ in turns), "-"
    yield f"each of environments 2 to {COUNT}", median(further_s), note


def measure_check(runs: int, folder: Path) -> Iterator[tuple[str, float, str]]:
    """Measure `tandem check` of all environments, compared with Python's own start."""
    environments, experiments = write_copies(COUNT, folder / "check")
    folders = ("--environments", str(environments), "--experiments", str(experiments))
    check = partial(run_python, "-m", "tandem", "check", *folders)
    turns = time_calls(runs, partial(run_python, "-c", "pass"), check)
    start_s, check_s = (median(column) for column in zip(*turns, strict=True))
    yield "Python's own start", start_s, "-"
    note = f"{check_s - start_s:.2f} s more than Python's start (target: 1 s)"
    yield f"`tandem check`, {COUNT} environments", check_s, note


def measure_render(runs: int, folder: Path) -> Iterator[tuple[str, float, str]]:
    """Measure rendering all environments after imports."""
    import _node  # noqa: F401, PLC0415 - points jsii at the packaged Node
    from charts import tree  # noqa: PLC0415 - starts Node
    from tandem.cli.inputs import read_legal_inputs  # noqa: PLC0415
    from tandem.cli.selection import Selection  # noqa: PLC0415

    environments, experiments = write_copies(COUNT, folder / "render")
    inputs = read_legal_inputs(Selection(environments=environments, experiments=experiments))

    def render() -> None:
        for environment in inputs.environments():
            files = tree.render_files(
                environment, inputs.list_experiments(environment), inputs.catalogue
            )
            tree.write_tree(environment.name, files, folder / "manifests")

    turns = time_calls(runs, render)
    yield (
        f"render {COUNT} environments, after imports",
        median(turn_s for (turn_s,) in turns),
        "target: at most 3 s",
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each figure")
    runs = parser.parse_args().runs
    print(f"{describe_day()}, median of {runs}\n\n| what | seconds | |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for measure in (measure_render, measure_check, measure_synthesis):
            for what, seconds, note in measure(runs, Path(folder)):
                print(f"| {what} | {seconds:.2f} | {note} |", flush=True)


if __name__ == "__main__":
    main()
