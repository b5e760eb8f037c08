"""What an import linter cannot say: which libraries a packed file needs, and what no committed file
holds."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from closure import imported
from tracked_files import list_tracked

ROOT = Path(__file__).parent.parent
THIS = "tests/test_architecture.py"


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def belongs(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("path", modules("lambdas"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_lambda_imports_only_what_its_runtime_brings(path):
    libraries = {name.partition(".")[0] for name in imported(path)}
    assert libraries - set(sys.stdlib_module_names) <= {"boto3", "botocore", "tandem"}


@pytest.mark.parametrize("path", modules("tandem/guard"), ids=lambda path: path.name)
def test_what_stops_and_starts_needs_the_standard_library_and_boto3(path):
    names = {
        name for name in imported(path) if name.partition(".")[0] not in sys.stdlib_module_names
    }
    libraries = {
        "boto3",
        "botocore",
        "tandem.guard",
        "tandem.errors",
        "tandem.aws.client_config",
        "tandem.aws.faults",
        "tandem.shell_command",
    }
    strangers = {name for name in names if not any(belongs(name, package) for package in libraries)}
    assert strangers == set()


@pytest.mark.parametrize("module", ["errors.py", "metrics.py", "shell_command.py"])
def test_faults_figures_and_shell_commands_need_the_standard_library_alone(module):
    libraries = {name.partition(".")[0] for name in imported(ROOT / "tandem" / module)}
    assert libraries <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a path of a machine", r"(?<![\w.])/(?:home|Users|root)/\w"),
        ("a registry's address", r"https?://[\w.-]*(?:pypi|pythonhosted|npmjs)\.\w+"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_no_committed_file_holds(what, pattern):
    expression = re.compile(pattern)

    holders = [
        name
        for name in list_tracked()
        if name != THIS and expression.search((ROOT / name).read_text(errors="replace"))
    ]

    assert holders == [], what


def test_every_npm_dependency_is_pinned_exactly():
    package = json.loads((ROOT / "package.json").read_text())
    versions = package["dependencies"] | package["devDependencies"]
    assert [
        version for version in versions.values() if not re.fullmatch(r"\d+\.\d+\.\d+", version)
    ] == []
