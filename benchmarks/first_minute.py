"""Measure the seconds and megabytes of the first commands on a fresh clone.

    python3 benchmarks/first_minute.py [COMMIT ...] [--test] [--keep FOLDER]     default: HEAD

Each commit is cloned into an empty folder, with an empty HOME, and the commands run there in turn.
What is not committed is not measured. Two commits give tables side by side. Exit 1: a command
failed; the end of its output is shown, and the table has its exit code. The program needs Python's
standard library alone, so it runs before `make setup`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution
from pathlib import Path

from machine import measure_folder_mb, sum_files_mb
from machine import describe_day

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = (("setup",), ("demo",), ("demo",), ("setup-test", "test-packages"))
"""Targets in the order of running; of several names a commit's Makefile has one."""

GROUPS = ("light", "aws", "deploy", "rehearsal")
"""Groups of packages of the distribution: what it needs itself, then its extras."""

CHECKS = "checks"
NAMED_COUNT = 4  # largest packages that a row names
OWN_VARIABLES = frozenset(
    {
        "MAKEFLAGS",
        "MAKELEVEL",
        "MFLAGS",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
    }
)
"""Variables of this process that would change what the clone does."""


@dataclass(frozen=True, kw_only=True)
class CommandFigures:
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

    def format_seconds(self) -> str:
        """Return the seconds, and the exit code of a command that failed."""
        failure = f", exit code {self.exit_code}" if self.exit_code else ""
        return f"{self.seconds:.0f}{failure}"


@dataclass(kw_only=True)
class CloneFigures:
    """What one commit took.

    Args:
        commit: as the user named it.
        commands: in order.
        home_mb: caches in HOME at the end.
        folder_mb: each folder that the commands made, at its end.
        packages_mb: packages of .venv by group, at its end.
    """

    commit: str
    commands: list[CommandFigures] = field(default_factory=list)
    home_mb: float = 0.0
    folder_mb: dict[str, float] = field(default_factory=dict)
    packages_mb: dict[str, dict[str, float]] = field(default_factory=dict)


class CommandError(Exception):
    """Git refused."""


def measure_commit(commit: str, folder: Path, *, has_test: bool) -> CloneFigures:
    """Clone a commit, run the commands in it, and return what they took.

    Args:
        commit: any name of it that this repository knows.
        folder: an empty one, for the clone and its HOME.
        has_test: run `make test` too.

    Raises:
        CommandError: git knows no such commit, or could not clone it.
    """
    clone = folder / "clone"
    home = folder / "home"
    home.mkdir()
    digest = run_git(ROOT, "rev-parse", f"{commit}^{{commit}}")
    run_git(ROOT, "clone", "--quiet", "--no-checkout", str(ROOT), str(clone))
    run_git(clone, "checkout", "--quiet", "--detach", digest)

    variables = build_variables(home)
    targets = set(re.findall(r"^([a-z-]+):", (clone / "Makefile").read_text(), re.MULTILINE))
    figures = CloneFigures(commit=commit)
    size_mb = measure_folder_mb(clone)
    for names in (*COMMANDS, *([("test",)] if has_test else [])):
        target = next(name for name in names if name in targets)
        print(f"{commit}: make {target}", file=sys.stderr, flush=True)
        former_s = read_processor_s()
        seconds, exit_code = run_target(clone, target, variables)
        former_mb = size_mb
        size_mb = measure_folder_mb(clone)
        command = CommandFigures(
            target=target,
            seconds=seconds,
            processor_s=read_processor_s() - former_s,
            exit_code=exit_code,
            added_mb=size_mb - former_mb,
        )
        figures.commands.append(command)

    figures.home_mb = measure_folder_mb(home)
    for made in sorted([*clone.glob(".venv*"), clone / "node_modules"]):
        figures.folder_mb[made.name] = measure_folder_mb(made)
    for site_packages in clone.glob(".venv/lib/python3.*/site-packages"):
        figures.packages_mb = measure_packages(site_packages)
    return figures


def run_git(folder: Path, *arguments: str) -> str:
    """Return what git prints.

    Raises:
        CommandError: git refused.
    """
    command = ["git", *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CommandError(f"git {arguments[0]}: {result.stderr.strip()}")
    return result.stdout.strip()


def build_variables(home: Path) -> dict[str, str]:
    """Return this process's variables with another HOME, and without those of a make here."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(place for place in places if not place.startswith(str(ROOT)))
    kept = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
    return {**kept, "PATH": path, "HOME": str(home)}


def read_processor_s() -> float:
    """Return the processor time of all processes of this one that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_target(clone: Path, target: str, variables: Mapping[str, str]) -> tuple[float, int]:
    """Run one target; return its seconds by the clock and its exit code, and show why it failed."""
    log = clone.parent / f"{target}.log"
    command = ["make", target]  # whichever make the caller has
    started_s = time.perf_counter()
    with log.open("wb") as output:
        result = subprocess.run(
            command,
            cwd=clone,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    duration_s = time.perf_counter() - started_s
    if result.returncode:
        print(log.read_text(errors="replace")[-3000:], file=sys.stderr)
    return duration_s, result.returncode


def measure_packages(site_packages: Path) -> dict[str, dict[str, float]]:
    """Return what each package takes on the disk, by the first group that needs it."""
    installed = {
        normalize_name(distribution.metadata["Name"]): distribution
        for distribution in importlib.metadata.distributions(path=[str(site_packages)])
    }
    rest = dict(installed)
    sizes: dict[str, dict[str, float]] = {}
    for group in GROUPS:
        names = list_needs(installed, "tandem", "" if group == GROUPS[0] else group)
        sizes[group] = {name: measure_package(rest.pop(name)) for name in sorted(names & set(rest))}
    installers = [name for name in ("pip", "setuptools") if name in rest]
    sizes["installer"] = {name: measure_package(rest.pop(name)) for name in installers}
    sizes[CHECKS] = {name: measure_package(distribution) for name, distribution in rest.items()}
    return sizes


def list_needs(installed: Mapping[str, Distribution], name: str, extra: str) -> set[str]:
    """Return a package and all that it needs, of what is installed."""
    waiting = [(name, extra)]
    seen = set()
    while waiting:
        place = waiting.pop()
        if place in seen or place[0] not in installed:
            continue
        seen.add(place)
        for line in installed[place[0]].requires or []:
            waiting += list_needed_places(line, place[1])
    return {name for name, _ in seen}


def list_needed_places(line: str, extra: str) -> Iterator[tuple[str, str]]:
    """Yield the package that a requirement names, with its extras, if our extra asks for it.

    A marker of a Python or a system is not read: what it leaves out is not installed.
    """
    requirement, _, marker = line.partition(";")
    asking_extras = re.findall(r"extra == ['\"]([\w-]+)", marker)
    if asking_extras and extra not in asking_extras:
        return
    match = re.match(r"([\w.-]+)\s*(?:\[([\w,\s-]+)\])?", requirement)
    if match is not None:
        for named_extra in ("", *re.findall(r"[\w-]+", match[2] or "")):
            yield normalize_name(match[1]), named_extra


def normalize_name(name: str) -> str:
    """Return a package's name as PyPI normalizes it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def measure_package(distribution: Distribution) -> float:
    """Return what a package takes on the disk, compiled modules too, in units of 2^20 bytes."""
    files = set()
    for file in distribution.files or []:
        path = Path(os.path.normpath(str(distribution.locate_file(file))))
        files.add(path)
        if path.suffix == ".py":
            files.add(Path(importlib.util.cache_from_source(str(path))))
    return sum_files_mb(path for path in files if path.is_file())


def format_tables(clones: Sequence[CloneFigures]) -> Iterator[str]:
    """Yield the tables of all commits side by side, in Markdown."""
    yield from _format_commands(clones)
    yield ""
    yield from _format_folders(clones)
    yield ""
    yield from _format_packages(clones)


def _format_commands(clones: Sequence[CloneFigures]) -> Iterator[str]:
    heads = ["command"]
    cold = ["`make demo` on a fresh clone: the first two"]
    for clone in clones:
        heads += [f"{clone.commit}: s", "of a processor", "MB more"]
        first_commands = clone.commands[:2]
        cold.append(f"{sum(command.seconds for command in first_commands):.0f}")
        cold.append(f"{sum(command.processor_s for command in first_commands):.0f}")
        cold.append(f"{sum(command.added_mb for command in first_commands):.0f}")
    yield format_row(heads)
    yield format_row(["---"] * len(heads))

    names: list[str] = []
    for row in zip(*(clone.commands for clone in clones), strict=True):
        name = " or ".join(dict.fromkeys(f"`make {command.target}`" for command in row))
        cells = [f"{name} again" if name in names else name]
        names.append(name)
        for command in row:
            cells.append(command.format_seconds())
            cells.append(f"{command.processor_s:.0f}")
            cells.append(str(round(command.added_mb)))
        yield format_row(cells)
    yield format_row(cold)


def _format_folders(clones: Sequence[CloneFigures]) -> Iterator[str]:
    yield format_row(["folder, at the end", *(f"{clone.commit}: MB" for clone in clones)])
    yield format_row(["---"] * (1 + len(clones)))
    folders = dict.fromkeys(folder for clone in clones for folder in clone.folder_mb)
    for folder in folders:
        sizes = [f"{clone.folder_mb.get(folder, 0):.0f}" for clone in clones]
        yield format_row([f"`{folder}`", *sizes])
    yield format_row(["caches in HOME", *(f"{clone.home_mb:.0f}" for clone in clones)])


def _format_packages(clones: Sequence[CloneFigures]) -> Iterator[str]:
    heads = ["packages in `.venv`, at the end", *(f"{clone.commit}: MB" for clone in clones)]
    yield format_row([*heads, "the largest"])
    yield format_row(["---"] * (2 + len(clones)))
    for group, packages in clones[-1].packages_mb.items():
        largest = sorted(packages, key=packages.__getitem__, reverse=True)[:NAMED_COUNT]
        named = ", ".join(f"{name} {packages[name]:.0f}" for name in largest)
        totals = [f"{sum(clone.packages_mb.get(group, {}).values()):.0f}" for clone in clones]
        yield format_row([group, *totals, named])


def format_row(cells: Sequence[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Measure every commit and print the tables; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("commits", nargs="*", default=["HEAD"], help="default: HEAD")
    parser.add_argument("--test", action="store_true", help="run `make test` too")
    parser.add_argument("--keep", type=Path, help="an empty folder for the clones, which stay")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory(prefix="tandem-first-") as temporary:
            folder = arguments.keep or Path(temporary)
            clones = []
            for number, commit in enumerate(arguments.commits):
                place = folder.resolve() / f"{number}-{re.sub(r'[^0-9A-Za-z.-]', '-', commit)}"
                place.mkdir(parents=True)
                clones.append(measure_commit(commit, place, has_test=arguments.test))
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{describe_day()}, load {load:.1f} at the beginning\n", *format_tables(clones), sep="\n")
    return int(any(command.exit_code for clone in clones for command in clone.commands))


if __name__ == "__main__":
    sys.exit(main())
