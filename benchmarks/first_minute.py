"""Measure the seconds and megabytes of the first commands on a fresh clone.

    python benchmarks/first_minute.py [COMMIT] [--test] [--keep FOLDER]     default: HEAD

The commit is cloned into an empty folder, with an empty HOME, and the commands run there in turn.
What is not committed is not measured. Exit 1: a command failed; the end of its output is shown, and
the table has its exit code.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from machine import describe_day, measure_folder_mb

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("setup", "demo", "demo", "setup-test")
"""Targets in the order of running."""

OWN_VARIABLES = {
    "MAKEFLAGS",
    "MAKELEVEL",
    "MFLAGS",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPATH",
    "VIRTUAL_ENV",
}
"""Variables of this process that would change what the clone does, besides those of XDG."""


class CommandFigures(NamedTuple):
    """What one command took.

    Args:
        target: of make.
        seconds: by the clock.
        processor_s: of all its processes; other work on the machine changes it less.
        exit_code: of make.
        added_mb: that it added to the clone.
    """

    target: str
    seconds: float
    processor_s: float
    exit_code: int
    added_mb: float

    def format_row(self) -> str:
        """Return the row of the table, with the exit code of a command that failed."""
        failure = f", exit code {self.exit_code}" if self.exit_code else ""
        return (
            f"| `make {self.target}` | {self.seconds:.0f}{failure} | {self.processor_s:.0f} |"
            f" {self.added_mb:.0f} |"
        )


class CommandError(Exception):
    """Git refused."""


def clone_commit(commit: str, folder: Path) -> Path:
    """Clone a commit, and return the clone.

    Args:
        commit: any name of it that this repository knows.
        folder: an empty one, for the clone and its HOME.

    Raises:
        CommandError: git knows no such commit, or could not clone it.
    """
    clone = folder / "clone"
    digest = run_git(ROOT, "rev-parse", f"{commit}^{{commit}}")
    run_git(ROOT, "clone", "--quiet", "--no-checkout", str(ROOT), str(clone))
    run_git(clone, "checkout", "--quiet", "--detach", digest)
    return clone


def run_git(folder: Path, *arguments: str) -> str:
    """Return what git prints.

    Raises:
        CommandError: git refused.
    """
    command = ["git", *arguments]  # whichever git the caller has
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CommandError(f"git {arguments[0]}: {result.stderr.strip()}")
    return result.stdout.strip()


def build_variables(home: Path) -> dict[str, str]:
    """Return this process's variables with another HOME, and without those of a make here."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    for name in OWN_VARIABLES:
        variables.pop(name, None)
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(place for place in places if not place.startswith(str(ROOT)))
    return {**variables, "PATH": path, "HOME": str(home)}


def run_target(clone: Path, target: str, variables: Mapping[str, str]) -> CommandFigures:
    """Run one target and return what it took; show why it failed."""
    former_mb = measure_folder_mb(clone)
    former_s = read_processor_s()
    log = clone.parent / f"{target}.log"
    start_s = time.perf_counter()
    with log.open("wb") as output:
        command = ["make", target]  # whichever make the caller has
        result = subprocess.run(
            command,
            cwd=clone,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    seconds = time.perf_counter() - start_s
    if result.returncode:
        print(log.read_text(errors="replace")[-3000:], file=sys.stderr)
    processor_s = read_processor_s() - former_s
    return CommandFigures(
        target, seconds, processor_s, result.returncode, measure_folder_mb(clone) - former_mb
    )


def read_processor_s() -> float:
    """Return the processor time of all processes of this one that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def format_sizes(clone: Path) -> Iterator[str]:
    """Yield the table of what the clone and its HOME hold, in Markdown."""
    yield "| folder, at the end | MB |"
    yield "|---|---|"
    for folder in (*sorted(clone.glob(".venv*")), clone / "node_modules", clone.parent / "home"):
        yield f"| `{folder.name}` | {measure_folder_mb(folder):.0f} |"


def main() -> int:
    """Measure a commit and print the tables; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", nargs="?", default="HEAD", help="default: HEAD")
    parser.add_argument("--test", action="store_true", help="run `make test` too")
    parser.add_argument("--keep", type=Path, help="an empty folder for the clone, which stays")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tandem-first-") as temporary:
        folder = (arguments.keep or Path(temporary)).resolve()
        home = folder / "home"
        home.mkdir(parents=True)
        try:
            clone = clone_commit(arguments.commit, folder)
        except CommandError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print(
            f"{describe_day()}, load {load:.1f} at the beginning\n\n| command | s | of a processor"
            " | MB more |"
        )
        print("|---|---|---|---|")
        exit_code = 0
        for target in (*COMMANDS, *(["test"] if arguments.test else [])):
            figures = run_target(clone, target, build_variables(home))
            print(figures.format_row(), flush=True)
            exit_code |= bool(figures.exit_code)
        print("", *format_sizes(clone), sep="\n")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
