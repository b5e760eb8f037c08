"""Make every lock from its input: `make lock`; `make lock UPGRADE=1` takes newer allowed packages.

requirements.txt comes first, from pyproject.toml with all extras; the lock of the tests takes it in
whole. uv resolves for all systems at once and keeps the versions of a lock. Then packages that none
of our Linux targets installs are left out. For each of MACHINES and PYTHONS a lock has the wheel
that pip takes there, or the source if there is no wheel. A hash in an input itself is kept, because
PyTorch's own index serves files that PyPI does not.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from supply.lock_file import (
    DISTRIBUTION,
    ROOT,
    LockedPackage,
    find_inputs,
    lock_path,
    normalize_name,
    write_lock,
)

PYTHONS = ((3, 11), (3, 12), (3, 13))
MACHINES = ("x86_64", "aarch64")
GLIBC = 34  # 2.34, of Amazon Linux 2023; Debian 12 has 2.36
OLDEST_GLIBC = {"x86_64": 5, "aarch64": 17}  # PEP 600: manylinux1 is glibc 2.5
LEGACY_TAGS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
TARGETS = tuple(itertools.product(PYTHONS, MACHINES))
UV = Path(sys.executable).parent / "uv"


def main(argv: Sequence[str] | None = None) -> int:
    """Make every lock and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m supply.make_locks", description=__doc__)
    parser.add_argument("inputs", nargs="*", type=Path, help="inputs; default: all")
    parser.add_argument(
        "--upgrade", action="store_true", help="take the newest packages that the inputs allow"
    )
    arguments = parser.parse_args(argv)
    for source in [path.resolve() for path in arguments.inputs] or find_inputs():
        packages = resolve_lock(source, upgrade=arguments.upgrade)
        comment = f"Made from {source.name} by `make lock`: change that file, not this one."
        write_lock(lock_path(source), comment, packages)
        print(f"{lock_path(source).relative_to(ROOT)}: {len(packages)} packages", flush=True)
    return 0


def resolve_lock(source: Path, *, upgrade: bool) -> list[LockedPackage]:
    """Return all packages of an input on the targets.

    Raises:
        subprocess.CalledProcessError: uv found no set of versions that fit; its message is on
            stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "pins.txt"
        files = Path(folder) / "pylock.toml"
        if lock_path(source).exists():
            # uv keeps the versions of its output file
            pins.write_bytes(lock_path(source).read_bytes())
        excludes = source.parent / "excludes.txt"
        options = [
            *(["--excludes", str(excludes)] if excludes.exists() else []),
            *(["--upgrade"] if upgrade else []),
        ]
        if source.name == DISTRIBUTION:
            options += ["--extra", "all"]
        _run_uv_compile(source, "--output-file", str(pins), "--no-annotate", *options)
        _run_uv_compile(pins, "--output-file", str(files), "--format", "pylock.toml", "--no-deps")
        resolution = tomllib.loads(files.read_text())["packages"]
    own_hashes = read_own_hashes(source)
    return [
        package
        for entry in resolution
        if (package := build_locked_package(entry, own_hashes)) is not None
    ]


def _run_uv_compile(source: Path, *options: str) -> None:
    command = [
        str(UV),
        "pip",
        "compile",
        str(source),
        "--universal",
        "--python-version",
        "3.11",
        "--quiet",
    ]
    subprocess.run(
        [*command, "--no-header", *options], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )


def read_own_hashes(source: Path) -> dict[str, tuple[str, ...]]:
    """Return the hashes in an input itself, by package."""
    lines = source.read_text().replace("\\\n", " ").splitlines()
    return {
        normalize_name(line.partition("==")[0]): tuple(re.findall(r"--hash=(\S+)", line))
        for line in lines
        if "--hash=" in line and not line.startswith("#")
    }


def build_locked_package(
    entry: dict[str, Any], own_hashes: dict[str, tuple[str, ...]]
) -> LockedPackage | None:
    """Return the line of one package of a pylock.toml (PEP 751); None if no target installs it.

    Args:
        entry: its table.
        own_hashes: hashes that the input names, by package.

    Raises:
        ValueError: a target has neither a wheel nor a source.
    """
    name = entry["name"]
    version = entry["version"]
    marker = entry.get("marker", "")
    targets = [target for target in TARGETS if is_marker_true(marker, target)]
    if not targets:
        return None
    hashes = own_hashes.get(name) or tuple(
        dict.fromkeys(pick_file(entry, target) for target in targets)
    )
    is_everywhere = len(targets) == len(TARGETS)
    return LockedPackage(
        name=name, version=version, marker="" if is_everywhere else marker, hashes=hashes
    )


def is_marker_true(marker: str, target: tuple[tuple[int, int], str]) -> bool:
    """Return whether a marker holds on a target, at its Python's first or a late patch version."""
    (major, minor), machine = target
    environment = {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "platform_release": "",
        "platform_version": "",
        "python_version": f"{major}.{minor}",
        "extra": "",
    }
    versions = [f"{major}.{minor}.{patch}" for patch in (0, 99)]
    return not marker or any(
        Marker(marker).evaluate(
            {**environment, "python_full_version": version, "implementation_version": version}
        )
        for version in versions
    )


def pick_file(entry: dict[str, Any], target: tuple[tuple[int, int], str]) -> str:
    """Return the hash of the wheel that pip takes on a target; the source's if no wheel."""
    rank = {tag: place for place, tag in enumerate(list_tags(target))}
    file = entry.get("sdist")
    best = len(rank)
    for wheel in entry.get("wheels", []):
        name = wheel.get("name") or unquote(wheel["url"].rpartition("/")[2])
        place = min(
            (rank[tag] for tag in parse_wheel_filename(name)[3] if tag in rank), default=len(rank)
        )
        if place < best:
            file = wheel
            best = place
    if file is None:
        raise ValueError(f"{entry['name']}=={entry['version']} has no file for {target}")
    return f"sha256:{file['hashes']['sha256']}"


def list_tags(target: tuple[tuple[int, int], str]) -> Iterator[Tag]:
    """Yield the wheel tags of a target, best first, as pip ranks them."""
    python, machine = target
    platforms = []
    for minor in range(GLIBC, OLDEST_GLIBC[machine] - 1, -1):
        platforms.append(f"manylinux_2_{minor}_{machine}")
        if minor in LEGACY_TAGS:
            platforms.append(f"{LEGACY_TAGS[minor]}_{machine}")
    platforms.append(f"linux_{machine}")
    yield from cpython_tags(python, platforms=platforms)
    yield from compatible_tags(python, interpreter=f"cp{python[0]}{python[1]}", platforms=platforms)


if __name__ == "__main__":
    sys.exit(main())
