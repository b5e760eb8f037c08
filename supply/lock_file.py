"""Read and write a lock: every package of an installation, with its version and its files' hashes.

Invariant: a lock is a requirements file that pip reads with `--require-hashes`. A lock names no
registry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTION = "pyproject.toml"  # the input of requirements.txt
INPUT_PATTERNS = (
    DISTRIBUTION,
    "requirements-*.in",
    "images/*requirements.in",
    "images/*/*requirements.in",
    "rehearsal/*/requirements.in",
    "benchmarks/*requirements.in",
    "benchmarks/*/requirements.in",
    "supply/requirements.in",
    "supply/*/requirements.in",
)
_PACKAGE = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>.+))?$")
_HASH = "--hash="


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """One package of a lock.

    Args:
        name: as PyPI normalizes it.
        version: exact.
        marker: where pip installs it (PEP 508); empty: everywhere.
        hashes: `sha256:...` of each file that pip may take.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def find_inputs(root: Path = ROOT) -> list[Path]:
    """Return every input of a lock; the input that constrains the others comes first."""
    paths = []
    for pattern in INPUT_PATTERNS:
        paths += sorted(root.glob(pattern))
    return paths


def lock_path(source: Path) -> Path:
    """Return the path of an input's lock."""
    return (
        source.with_name("requirements.txt")
        if source.name == DISTRIBUTION
        else source.with_suffix(".txt")
    )


def normalize_name(name: str) -> str:
    """Return a package's name as PyPI normalizes it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(path: Path) -> list[LockedPackage]:
    """Return the packages of a lock.

    Raises:
        ValueError: a line is neither a comment nor a package with an exact version and hashes.
    """
    text = path.read_text().replace("\\\n", " ")
    return [
        _read_line(path, line) for line in text.splitlines() if line and not line.startswith("#")
    ]


def _read_line(path: Path, line: str) -> LockedPackage:
    requirement, *hashes = (part.strip() for part in line.split(_HASH))
    match = _PACKAGE.match(requirement)
    if match is None or not hashes:
        raise ValueError(
            f"{path}: {requirement!r} has no exact version or no hash; run `make lock`"
        )
    return LockedPackage(
        name=match["name"],
        version=match["version"],
        marker=match["marker"] or "",
        hashes=tuple(hashes),
    )


def write_lock(path: Path, comment: str, packages: Iterable[LockedPackage]) -> None:
    """Write a lock, sorted by name."""
    lines = [f"# {comment}"]
    for package in sorted(packages, key=lambda package: (package.name, package.version)):
        marker = f" ; {package.marker}" if package.marker else ""
        hashes = "".join(f" \\\n    {_HASH}{digest}" for digest in package.hashes)
        lines.append(f"{package.name}=={package.version}{marker}{hashes}")
    path.write_text("\n".join(lines) + "\n")
