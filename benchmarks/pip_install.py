"""Install Tandem by pip in an empty environment, judge two URLs, print MB and seconds.

python benchmarks/pip_install.py [--keep FOLDER]; exit 1: the environment is larger than the limit,
or a command failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from machine import describe_day, measure_folder_mb

ROOT = Path(__file__).resolve().parent.parent
LIMIT_MB = 450  # 2^20 bytes, with the environment itself, pip included
MEASURE = (
    "simulate --experiment post --time-scale 25 -- tandem bench run --quick --baseline {qwen-vllm} "
    "--variant {qwen-sd-vllm} --model Qwen/Qwen3-32B --out try"
)
VERDICT_CODES = (0, 4)  # 4: a control failed, as on a busy machine


def run_timed(command: list[str], folder: Path, variables: dict[str, str]) -> tuple[int, float]:
    """Run a program and return its exit code and its seconds by the clock."""
    started_s = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=variables, check=False)
    return done.returncode, time.perf_counter() - started_s


def main() -> int:
    """Install, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keep",
        type=Path,
        help="an empty folder for the environment; default: one that is removed",
    )
    arguments = parser.parse_args()
    if arguments.keep is not None:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        return install_and_measure(arguments.keep.resolve())
    with tempfile.TemporaryDirectory(prefix="tandem-pip-") as folder:
        return install_and_measure(Path(folder))


def install_and_measure(folder: Path) -> int:
    """Print the table of one installation in a folder, and return the exit code."""
    environment = folder / "venv"
    started_s = time.perf_counter()
    venv.create(environment, with_pip=True)
    venv_s = time.perf_counter() - started_s
    install_code, install_s = run_timed(
        [str(environment / "bin" / "pip"), "install", "--quiet", "."], ROOT, dict(os.environ)
    )
    if install_code:
        print("`pip install .` failed", file=sys.stderr)
        return 1
    disk_mb = measure_folder_mb(environment)

    work = folder / "work"
    home = folder / "home"
    for empty in (work, home):
        empty.mkdir()
    variables = {"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "HOME": str(home)}
    tandem = str(environment / "bin" / "tandem")
    help_code, help_s = run_timed([tandem, "--help"], work, variables)
    measure_code, measure_s = run_timed([tandem, *MEASURE.split()], work, variables)
    report_code, report_s = run_timed([tandem, "bench", "report", "try"], work, variables)

    print(f"\n{describe_day()}\n\n| what | |\n|---|---|")
    print(f"| an empty environment with pip | {venv_s:.0f} s |")
    print(f"| `pip install .` into it | {install_s:.0f} s |")
    print(f"| the environment on the disk | {disk_mb:.0f} MB (limit {LIMIT_MB}) |")
    print(f"| `tandem --help` | {help_s:.2f} s |")
    print(
        f"| `tandem simulate` with `tandem bench run --quick` | {measure_s:.0f} s, exit code"
        f" {measure_code} |"
    )
    print(f"| `tandem bench report` | {report_s:.1f} s |")
    is_judged = (
        measure_code in VERDICT_CODES
        and report_code in VERDICT_CODES
        and (work / "try/report.html").is_file()
    )
    return 0 if disk_mb <= LIMIT_MB and help_code == 0 and is_judged else 1


if __name__ == "__main__":
    sys.exit(main())
