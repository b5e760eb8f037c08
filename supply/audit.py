"""Look up the known vulnerabilities of everything that this project installs: `make audit`.

Exit 0: no vulnerability is known. 1: some are known, each named with the versions that fix it. 3: a
database gave no answer, with one sentence, and none is known of the rest. pip-audit queries the
JSON API of the Python package index, or OSV; `npm audit` queries the npm registry. pip-audit ends
with 0 if the index has no such API. A package without an answer may have vulnerabilities, so here
the exit code is 3.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from supply.lock_file import ROOT, LockedPackage, find_inputs, lock_path, read_lock

CLEAN = 0
VULNERABLE = 1
UNREACHABLE = 3
PIP_AUDIT = Path(sys.executable).parent / "pip-audit"
PACKAGE_JSON = ROOT / "package.json"


class AuditError(Exception):
    """A database gave no answer."""


def main(argv: Sequence[str] | None = None) -> int:
    """Audit the locks and package.json and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m supply.audit", description=__doc__)
    parser.add_argument(
        "locks",
        nargs="*",
        type=Path,
        help="locks; default: all of this repository, and package.json",
    )
    parser.add_argument(
        "--osv-url", help="ask this OSV API, e.g. a mirror, and not the package index"
    )
    arguments = parser.parse_args(argv)
    locks = arguments.locks or [lock_path(source) for source in find_inputs()]
    packages = chain.from_iterable(map(read_lock, locks))
    pins = {format_pin(package) for package in packages}
    audits: dict[str, Callable[[], set[str]]] = {
        "Python": lambda: audit_python(pins, arguments.osv_url)
    }
    if not arguments.locks:
        audits["npm"] = audit_npm
    vulnerabilities = set()
    problems = []
    for kind, audit in audits.items():
        try:
            vulnerabilities |= audit()
        except AuditError as error:
            problems.append(f"of {kind} packages ({error})")
    print(*sorted(vulnerabilities), sep="\n", end="\n" if vulnerabilities else "")
    if problems:
        print(
            f"Not audited, the vulnerability database cannot be reached: {' and '.join(problems)}.",
            file=sys.stderr,
        )
    else:
        print(f"{len(pins)} packages, {len(vulnerabilities)} known vulnerabilities")
    if vulnerabilities:
        return VULNERABLE
    return UNREACHABLE if problems else CLEAN


def format_pin(package: LockedPackage) -> str:
    """Return `name==version`, without a build's local label: databases know the public version."""
    return f"{package.name}=={package.version.partition('+')[0]}"


def audit_python(pins: Iterable[str], osv_url: str | None = None) -> set[str]:
    """Return a line for each known vulnerability of packages, whatever their markers.

    Raises:
        AuditError: pip-audit got no answer, or none for some packages.
    """
    lines: set[str] = set()
    for batch in split_versions(pins):
        lines.update(run_pip_audit(batch, osv_url))
    return lines


def split_versions(pins: Iterable[str]) -> Iterator[list[str]]:
    """Split pins into lists with each package once: pip-audit takes no second version."""
    rest = set(pins)
    while rest:
        batch = {pin.partition("==")[0]: pin for pin in sorted(rest)}
        yield sorted(batch.values())
        rest -= set(batch.values())


def run_pip_audit(pins: Sequence[str], osv_url: str | None) -> Iterator[str]:
    """Yield the vulnerabilities that the database knows of these pins.

    Raises:
        AuditError: pip-audit ended without its JSON, or has no answer for a package.
    """
    service = ["osv", "--osv-url", osv_url] if osv_url else ["pypi"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(pins) + "\n")
        file.flush()
        options = [
            "--requirement",
            file.name,
            "--no-deps",
            "--disable-pip",
            "--progress-spinner",
            "off",
        ]
        command = [
            str(PIP_AUDIT),
            *options,
            "--format",
            "json",
            "--vulnerability-service",
            *service,
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answers = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError):
        raise AuditError(quote_last_line(result.stderr)) from None
    silent = [answer["name"] for answer in answers if "skip_reason" in answer]
    if silent:
        raise AuditError(f"no answer for {', '.join(silent)}")
    for answer in answers:
        for vulnerability in answer["vulns"]:
            fix = ", ".join(vulnerability["fix_versions"]) or "no known version"
            yield f"{answer['name']}=={answer['version']}: {vulnerability['id']}, fixed in {fix}"


def audit_npm() -> set[str]:
    """Return a line per known vulnerability of what `npm install` installs today for package.json.

    Raises:
        AuditError: npm got no answer.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise AuditError("there is no npm; run `make setup`")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(PACKAGE_JSON, Path(folder) / PACKAGE_JSON.name)
        for options in (
            ("install", "--package-lock-only", "--no-audit", "--no-fund", "--silent"),
            ("audit", "--json"),
        ):
            result = subprocess.run(
                [npm, *options], cwd=folder, capture_output=True, text=True, check=False
            )
    try:
        vulnerabilities = json.loads(result.stdout)["vulnerabilities"]
    except (ValueError, KeyError):
        raise AuditError(quote_last_line(result.stderr or result.stdout)) from None
    lines = set()
    for name, entry in vulnerabilities.items():
        url = next(
            (via["url"] for via in entry["via"] if isinstance(via, dict)), f"by {entry['via'][0]}"
        )
        lines.add(
            f"{name}@{entry['range']}: {url}, fix available: {json.dumps(entry['fixAvailable'])}"
        )
    return lines


def quote_last_line(text: str) -> str:
    """Return why no answer came: the last line of a program's output."""
    return (text.strip() or "no output").splitlines()[-1].rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
