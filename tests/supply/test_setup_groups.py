"""What only tests and checks need is a group of its own: `make demo` does not install it, and no
program imports it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from closure import imported

from supply.lock_file import ROOT, normalize_name, read_lock

PROGRAM_FOLDERS = (
    "benchmarks",
    "charts",
    "docs",
    "images",
    "lambdas",
    "rehearsal",
    "stacks",
    "supply",
    "tandem",
)


def list_packages(*locks: str) -> set[str]:
    return {package.name for lock in locks for package in read_lock(ROOT / lock)}


def list_programs() -> list[Path]:
    """Every Python file that a target outside the tests may run."""
    folders = [path for folder in PROGRAM_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return [*ROOT.glob("*.py"), *folders]


def print_recipes(target: str) -> str:
    """Return what make would run for a target on a fresh clone."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_no_program_imports_a_package_that_only_checks_have():
    checks = list_packages("requirements-test.txt") - list_packages(
        "requirements.txt", "requirements-build.txt"
    )
    owners = importlib.metadata.packages_distributions()
    faults = {}
    for path in list_programs():
        modules = {name.partition(".")[0] for name in imported(path)} - sys.stdlib_module_names
        if needed_names := {
            name
            for module in modules
            for name in map(normalize_name, owners.get(module, ()))
            if name in checks
        }:
            faults[str(path.relative_to(ROOT))] = needed_names

    assert "pandas" in checks
    assert faults == {}


@pytest.mark.parametrize(
    "target",
    ["demo", "setup", "check", "render", "deploy-local", "docs", "look", "figures", "bench"],
)
def test_a_target_without_checks_installs_none(target):
    recipes = print_recipes(target)

    assert (
        "install -qq --no-compile --require-hashes --no-build-isolation -r requirements.txt"
        in recipes
    )
    assert "requirements-test.txt" not in recipes
    assert "--omit=dev" in recipes


@pytest.mark.parametrize("target", ["test", "proof", "conform", "golden", "audit"])
def test_a_target_with_checks_installs_them(target):
    assert "-r requirements-test.txt" in print_recipes(target)


def test_the_site_needs_nothing_of_the_demo():
    assert "requirements.txt" not in print_recipes("site").replace(
        "supply/site/requirements.txt", ""
    )
