"""The distribution as pip builds it, and a virtual environment that has what it declares and no
more."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from tracked_files import list_tracked

from supply.lock_file import ROOT, normalize_name

WITH_NEW = ("--cached", "--others", "--exclude-standard")  # of `git ls-files`
BUILD = (
    "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What a clean copy of the checkout gives.

    Args:
        source: the copy.
        wheel, sdist: built from it.
        second_wheel: built from the sdist, as pip builds it where no wheel is at hand.
    """

    source: Path
    wheel: Path
    sdist: Path
    second_wheel: Path


def copy_source(target: Path) -> None:
    """Copy the tracked files and new ones; an earlier build has left a module that is in the
    checkout no more."""
    for name in list_tracked(*WITH_NEW):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    for name in ("build/lib/tandem/gone.py", "build/lib/charts/gone.py"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text("")


def build_distribution(folder: Path) -> Distribution:
    """Build sdist and wheel with the setuptools of this environment, without the network."""
    source = folder / "source"
    copy_source(source)
    wheel = _build("build_wheel", source, folder / "wheel")
    sdist = _build("build_sdist", source, folder / "sdist")
    shutil.unpack_archive(sdist, folder / "unpacked")
    [unpacked_path] = (folder / "unpacked").iterdir()
    second_wheel = _build("build_wheel", unpacked_path, folder / "second-wheel")
    return Distribution(source=source, wheel=wheel, sdist=sdist, second_wheel=second_wheel)


def _build(hook: str, source: Path, target: Path) -> Path:
    """Call a build backend's hook (PEP 517) as pip does, in a process of its own and in the
    source's folder."""
    target.mkdir()
    subprocess.run(
        [sys.executable, "-c", BUILD, hook, str(target)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    [built_path] = target.iterdir()
    return built_path


def create_environment(folder: Path, wheel: Path) -> Path:
    """Install a wheel without its dependencies, beside links to those that it declares.

    Returns:
        The folder of programs.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "--quiet",
    ]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    [metadata] = importlib.metadata.distributions(name="tandem", path=[str(packages)])
    for name in list_dependencies(list_needs(metadata.requires)):
        _link_distribution(importlib.metadata.distribution(name), packages)
    return folder / "bin"


def list_dependencies(requirements: list[Requirement]) -> set[str]:
    """Return the distributions that these need, they themselves too, by the metadata of this
    environment."""
    waiting = list(requirements)
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            key = (normalize_name(requirement.name), extra)
            if key not in seen:
                seen.add(key)
                waiting += list_needs(importlib.metadata.requires(requirement.name), extra)
    return {name for name, _ in seen}


def list_needs(lines: list[str] | None, extra: str = "") -> list[Requirement]:
    """Return what a distribution needs here, of its extras one or none."""
    needs = map(Requirement, lines or [])
    return [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]


def _link_distribution(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    """Link the folders and modules of an installed distribution."""
    first_parts = {Path(file).parts[0] for file in distribution.files or []}
    for part in first_parts - {"..", "__pycache__"}:
        link = packages / part
        if not link.is_symlink():
            link.symlink_to(distribution.locate_file(part))


def build_variables(programs: Path, home: Path) -> dict[str, str]:
    """Return the variables of a user who has installed Tandem and nothing else."""
    kept_by_name = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
    return {
        **kept_by_name,
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
