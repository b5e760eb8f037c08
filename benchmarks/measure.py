"""Measure the speed of synthesis, check and render; print Markdown for docs/performance.md.

Every figure is the median of several runs of a whole process or of a call after imports, on this machine.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from machine import describe_day

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

ENVIRONMENT = "post-us-east-2"
PROFILE_MIN_S = 0.04  # of four environments


def copies(count: int, folder: Path) -> tuple[Path, Path]:
    """Write `count` environments that differ in name and address range, and all experiments."""
    environments, experiments = folder / "environments", folder / "experiments"
    environments.mkdir(parents=True)
    shutil.copytree(ROOT / "experiments", experiments)
    text = (ROOT / "environments" / f"{ENVIRONMENT}.yaml").read_text()
    for index in range(count):
        (environments / f"bench-{index}.yaml").write_text(text.replace("10.42.", f"10.{50 + index}."))
    return environments, experiments


def process_s(command: list[str], runs: int) -> float:
    """Return the median wall time of a whole process, in seconds, after one warm-up."""
    return statistics.median([measure_process_s(command) for _ in range(runs + 1)][1:])


def measure_process_s(command: list[str], **variables: str) -> float:
    """Return the wall time of a whole process, in seconds."""
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env={**_environment(), **variables})
    return time.perf_counter() - start


def call_s(call: Callable[[], object], runs: int) -> float:
    """Return the median time of a call in this process, in seconds, after one warm-up."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def synthesis(runs: int, folder: Path) -> list[tuple[str, float, str]]:
    """Measure `python app.py` with 1, 5 and 10 environments in turn, so that a slow minute affects all."""
    variables = {}
    for count in (1, 5, 10):
        environments, experiments = copies(count, folder / str(count))
        context = f'{{"environments": "{environments}", "experiments": "{experiments}"}}'
        variables[count] = {"CDK_CONTEXT_JSON": context, "CDK_OUTDIR": str(folder / f"out-{count}")}
    command = [sys.executable, "app.py"]
    turns = [[measure_process_s(command, **variables[count]) for count in variables] for _ in range(runs + 1)][1:]
    return [
        ("`python app.py`, one environment", statistics.median(one_s for one_s, _, _ in turns), "-"),
        ("each of environments 2 to 5", *compare_turns([(one_s, (five_s - one_s) / 4) for one_s, five_s, _ in turns])),
        (
            "each of environments 6 to 10",
            *compare_turns([(one_s, (ten_s - five_s) / 5) for one_s, five_s, ten_s in turns]),
        ),
        ("each of environments 2 to 10", *compare_turns([(one_s, (ten_s - one_s) / 9) for one_s, _, ten_s in turns])),
    ]


def compare_turns(turns: list[tuple[float, float]]) -> tuple[float, str]:
    """Return the median of a further environment's seconds, and its share of the first in the same turn."""
    shares = sorted(further_s / first_s for first_s, further_s in turns)
    note = f"{shares[0]:.1%} to {shares[-1]:.1%} of the first, median {statistics.median(shares):.1%} (target: 10 %)"
    return statistics.median(further_s for _, further_s in turns), note


def checking(runs: int, folder: Path) -> list[tuple[str, float, str]]:
    """Measure `tandem check` of 10 environments, compared with Python's own start."""
    environments, experiments = copies(10, folder / "check")
    start = process_s([sys.executable, "-c", "pass"], runs)
    command = ["-m", "tandem", "check", "--environments", str(environments), "--experiments", str(experiments)]
    checked = process_s([sys.executable, *command], runs)
    return [
        ("Python's own start", start, "-"),
        ("`tandem check`, 10 environments", checked, f"{checked - start:.2f} s more than Python's start (target: 1 s)"),
    ]


def rendering(runs: int, folder: Path) -> list[tuple[str, float, str]]:
    """Measure rendering 10 environments after imports."""
    import _node  # noqa: F401, PLC0415
    from charts import tree  # noqa: PLC0415
    from tandem.cli.inputs import read_legal_inputs  # noqa: PLC0415
    from tandem.cli.selection import Selection  # noqa: PLC0415

    environments, experiments = copies(10, folder / "render")

    inputs = read_legal_inputs(Selection(environments=environments, experiments=experiments))

    def render() -> None:
        for environment in inputs.environments():
            files = tree.render_files(environment, inputs.list_experiments(environment), inputs.catalogue)
            tree.write_tree(environment.name, files, folder / "manifests")

    return [("render 10 environments, after imports", call_s(render, runs), "target: at most 3 s")]


def print_profile(folder: Path) -> None:
    """Print where a further environment's time goes: functions of ours and messages to Node, each a fourth of four."""
    import _node  # noqa: F401, PLC0415
    import app  # noqa: PLC0415
    from tandem.cli.inputs import read_legal_inputs  # noqa: PLC0415
    from tandem.cli.selection import Selection  # noqa: PLC0415

    environments, experiments = copies(5, folder / "profile")
    inputs = read_legal_inputs(Selection(environments=environments, experiments=experiments))
    hosts = [(environment, inputs.list_experiments(environment)) for environment in inputs.environments()]
    app.build_app(hosts[:1], inputs.catalogue, outdir=str(folder / "first")).synth()
    with cProfile.Profile() as profile:
        app.build_app(hosts[1:], inputs.catalogue, outdir=str(folder / "further")).synth()
    print("| function | calls | ms |\n|---|---|---|")
    rows = sorted(pstats.Stats(profile).stats.items(), key=lambda row: -row[1][3])  # by time, called functions included
    for (file, _, function), (_, calls, _, seconds, _) in rows:
        path = Path(file)
        is_message = path.match("jsii/_kernel/providers/process.py") and function == "send"
        is_own = path.is_relative_to(ROOT) and "site-packages" not in path.parts
        if seconds >= PROFILE_MIN_S and (is_message or is_own):
            name = "messages to Node" if is_message else f"{path.relative_to(ROOT)} {function}"
            print(f"| {name} | {calls / 4:g} | {1000 * seconds / 4:.0f} |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each figure")
    parser.add_argument("--profile", action="store_true", help="print where a further environment's time goes")
    options = parser.parse_args()
    runs = options.runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.profile:
            print_profile(folder)
            return
        rows = rendering(runs, folder) + checking(runs, folder) + synthesis(runs, folder)
    print(f"{describe_day()}, median of {runs}\n")
    print("| what | seconds | |\n|---|---|---|")
    for what, seconds, note in rows:
        print(f"| {what} | {seconds:.2f} | {note} |")


if __name__ == "__main__":
    main()
