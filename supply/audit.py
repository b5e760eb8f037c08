"""Ask for the known vulnerabilities of everything that this project installs: `make audit`.

Exit 0: none is known. 1: some are, each named with the versions that mend it. 3: a database could not be asked, in one
sentence, and none is known of the rest. pip-audit asks the JSON API of the Python package index, or OSV; `npm audit`
asks the npm registry. pip-audit ends with 0 where the index has no such API: a package without an answer is no package
without vulnerabilities, so here it is a 3.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from supply.lock_file import ROOT, LockedPackage, find_inputs, lock_path, read_lock

CLEAN, VULNERABLE, UNREACHABLE = 0, 1, 3
PIP_AUDIT = Path(sys.executable).parent / "pip-audit"
PACKAGE_JSON = ROOT / "package.json"
MAX_NAMES = 5  # packages in a sentence
_HOST = re.compile(r"host='([^']+)'")
_CAUSE = re.compile(r"\[Errno -?\d+\] ([^'\")]+)|(timed out)")


class AuditError(Exception):
    """A database could not be asked."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Vulnerability:
    """A known vulnerability of an installed package.

    Args:
        package: `name==version`; of npm `name@range`.
        identifier: of the database, e.g. PYSEC-2026-1.
        fixed_in: versions without it; empty: none is known.
    """

    package: str
    identifier: str
    fixed_in: tuple[str, ...]

    def describe(self) -> str:
        """Return a line for operators."""
        change = f"fixed in {', '.join(self.fixed_in)}" if self.fixed_in else "no version without it is known"
        return f"{self.package}: {self.identifier}, {change}"


def main(argv: Sequence[str] | None = None) -> int:
    """Audit the locks and package.json and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m supply.audit", description=__doc__)
    parser.add_argument("locks", nargs="*", type=Path, help="locks; default: all of this repository, and package.json")
    parser.add_argument("--osv-url", help="ask this OSV API, e.g. a mirror, and not the package index")
    arguments = parser.parse_args(argv)
    locks = arguments.locks or [lock_path(source) for source in find_inputs()]
    packages = [package for lock in locks for package in read_lock(lock)]
    vulnerabilities, problems = set(), []
    try:
        vulnerabilities |= audit_python(packages, arguments.osv_url)
    except AuditError as error:
        problems.append(f"of Python packages ({error})")
    if not arguments.locks:
        try:
            vulnerabilities |= audit_npm()
        except AuditError as error:
            problems.append(f"of npm packages ({error})")
    for vulnerability in sorted(vulnerabilities):
        print(vulnerability.describe())
    if problems:
        print(f"Not audited, the vulnerability database cannot be reached: {' and '.join(problems)}.", file=sys.stderr)
    else:
        print(
            f"{len({format_pin(package) for package in packages})} packages, {len(vulnerabilities)} known "
            "vulnerabilities"
        )
    return VULNERABLE if vulnerabilities else UNREACHABLE if problems else CLEAN


def format_pin(package: LockedPackage) -> str:
    """Return `name==version`, without a build's local label: databases know the public version."""
    return f"{package.name}=={package.version.partition('+')[0]}"


def audit_python(packages: Iterable[LockedPackage], osv_url: str | None = None) -> set[Vulnerability]:
    """Return the known vulnerabilities of `packages`, whatever their markers.

    Raises:
        AuditError: pip-audit got no answer, or none for some of them.
    """
    pins = {format_pin(package) for package in packages}
    return {vulnerability for batch in split_versions(pins) for vulnerability in run_pip_audit(batch, osv_url)}


def split_versions(pins: Iterable[str]) -> Iterator[list[str]]:
    """Split pins into lists with one version of a package each: pip-audit takes no second one."""
    rest = set(pins)
    while rest:
        batch = {pin.partition("==")[0]: pin for pin in sorted(rest)}
        yield sorted(batch.values())
        rest -= set(batch.values())


def run_pip_audit(pins: Sequence[str], osv_url: str | None) -> list[Vulnerability]:
    """Return what the database knows of these pins.

    Raises:
        AuditError: pip-audit ended without its JSON, or has no answer for a package.
    """
    service = ["osv", "--osv-url", osv_url] if osv_url else ["pypi"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(pins) + "\n")
        file.flush()
        options = ["--requirement", file.name, "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        command = [str(PIP_AUDIT), *options, "--format", "json", "--vulnerability-service", *service]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answers = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError):
        raise AuditError(explain_failure(result.stderr)) from None
    silent = [answer["name"] for answer in answers if "skip_reason" in answer]
    if silent:
        suffix = f" and {len(silent) - MAX_NAMES} more" if len(silent) > MAX_NAMES else ""
        raise AuditError(f"no answer for {', '.join(silent[:MAX_NAMES])}{suffix}")
    return [
        Vulnerability(
            package=f"{answer['name']}=={answer['version']}",
            identifier=vulnerability["id"],
            fixed_in=tuple(vulnerability["fix_versions"]),
        )
        for answer in answers
        for vulnerability in answer["vulns"]
    ]


def audit_npm() -> set[Vulnerability]:
    """Return the known vulnerabilities of what `npm install` installs today for package.json.

    Raises:
        AuditError: npm got no answer.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise AuditError("there is no npm; run `make setup`")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(PACKAGE_JSON, Path(folder) / PACKAGE_JSON.name)
        for options in (("install", "--package-lock-only", "--no-audit", "--no-fund", "--silent"), ("audit", "--json")):
            result = subprocess.run([npm, *options], cwd=folder, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(result.stdout)
        vulnerabilities = answer["vulnerabilities"]
    except ValueError:
        raise AuditError(explain_failure(result.stderr)) from None
    except KeyError:
        raise AuditError(str(answer.get("message") or answer.get("error"))) from None
    return {
        Vulnerability(
            package=f"{name}@{entry['range']}",
            identifier=next((via["url"] for via in entry["via"] if isinstance(via, dict)), f"by {entry['via'][0]}"),
            fixed_in=describe_npm_fix(entry["fixAvailable"]),
        )
        for name, entry in vulnerabilities.items()
    }


def describe_npm_fix(fix: bool | dict[str, str]) -> tuple[str, ...]:
    """Return what npm says of a fix: none, one in the range that is asked for, or another version of ours."""
    if isinstance(fix, dict):
        return (f"{fix['name']} {fix['version']}",)
    return ("a newer version of the same range",) if fix else ()


def explain_failure(stderr: str) -> str:
    """Return in a few words why no answer came, from the last line that a program wrote."""
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "no output")
    host, cause = _HOST.search(last), _CAUSE.search(last)
    if host is None or cause is None:
        return last.rstrip(".")
    return f"{host[1]}: {(cause[1] or cause[2]).lower()}"


if __name__ == "__main__":
    sys.exit(main())
