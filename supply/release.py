"""Make a release: `make release VERSION=0.2.0`, from a clean checkout, manifests, pages current.

The program writes the version into pyproject.toml and CHANGELOG.md. It writes the changes and the
checksums of every manifest into build/release/VERSION, for people who sync the manifests. It prints
the commands for commit and tag, but does not run them.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from supply.lock_file import ROOT

UNRELEASED = "## Unreleased"
VERSION = re.compile(r"\d+\.\d+\.\d+")
CHECKS = (  # each condition, and the command that fixes it
    (("-m", "tandem", "render", "--check"), "manifests/ is stale", "tandem render"),
    (("docs/write_pages.py", "--check"), "a generated page is stale", "make docs"),
)


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Make a release and return 0; 2 if something must be done first."""
    parser = argparse.ArgumentParser(prog="python -m supply.release", description=__doc__)
    parser.add_argument("version", help="as 0.2.0")
    version = parser.parse_args(argv).version
    try:
        check_release(root, version)
        changes = write_version(root, version, datetime.now(tz=UTC).date())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    folder = root / "build" / "release" / version
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "CHANGES.md").write_text(changes)
    (folder / "manifests.sha256").write_text(list_checksums(root))
    print(
        f"{folder.relative_to(root)}: CHANGES.md, manifests.sha256 (sha256sum --check, from the"
        " repository's root)"
    )
    print(
        f"next  git commit --all --message 'Release {version}' && git tag --annotate v{version}"
        f" --message {version}"
    )
    return 0


def check_release(root: Path, version: str) -> None:
    """Check that a release may be made.

    Args:
        root: of the repository.
        version: to be released.

    Raises:
        ValueError: a release must wait; the message says what to do first.
    """
    old_version = read_version(root)
    if not VERSION.fullmatch(version) or split_version(version) < split_version(old_version):
        raise ValueError(
            f"VERSION: got {version!r}, allowed three numbers, {old_version} or later; write e.g."
            " 0.2.0"
        )
    if re.search(rf"^## {re.escape(version)} ", (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        raise ValueError(f"CHANGELOG.md has {version} already: choose a later version")
    status_command = ["git", "status", "--porcelain"]  # whichever git the caller has
    status = subprocess.run(status_command, cwd=root, capture_output=True, text=True, check=True)
    if status.stdout:
        raise ValueError(f"the checkout has changes; commit them first:\n{status.stdout.rstrip()}")
    for words, problem, command in CHECKS:
        if subprocess.run(
            [sys.executable, *words], cwd=root, capture_output=True, check=False
        ).returncode:
            raise ValueError(f"{problem}: run `{command}`, and commit what it wrote")


def read_version(root: Path) -> str:
    """Return the version of pyproject.toml."""
    match = re.search(r'^version = "(.+)"$', (root / "pyproject.toml").read_text(), re.MULTILINE)
    assert match is not None, "pyproject.toml has a version"
    return match[1]


def split_version(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare versions."""
    return tuple(map(int, version.split(".")))


def write_version(root: Path, version: str, day: date) -> str:
    """Write the version into pyproject.toml and CHANGELOG.md, and return its changes.

    Raises:
        ValueError: CHANGELOG.md lists nothing as unreleased.
    """
    project = root / "pyproject.toml"
    changelog = root / "CHANGELOG.md"
    before, _, rest = changelog.read_text().partition(f"{UNRELEASED}\n")
    changes, separator, older = rest.partition("\n## ")
    if not changes.strip():
        raise ValueError(f"CHANGELOG.md tells nothing below `{UNRELEASED}`: write what changed")
    heading = f"## {version} - {day.isoformat()}"
    changelog.write_text(f"{before}{UNRELEASED}\n\n{heading}\n{changes}{separator}{older}")
    project.write_text(
        project.read_text().replace(
            f'version = "{read_version(root)}"', f'version = "{version}"', 1
        )
    )
    return f"{heading}\n{changes}"


def list_checksums(root: Path) -> str:
    """Return a line of sha256sum for every file below manifests/, by path."""
    paths = sorted(path for path in (root / "manifests").rglob("*") if path.is_file())
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(root).as_posix()}\n"
        for path in paths
    )


if __name__ == "__main__":
    sys.exit(main())
