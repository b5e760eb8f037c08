"""The launcher refuses a MiniStack that the additions were not tested with."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
from pathlib import Path

import pytest

from rehearsal.aws.installation import PACKAGE_FOLDER, ensure_python
from rehearsal.aws.launcher import (
    START_ERROR,
    _remove_work_folder,
    find_refusals,
    read_pinned_version,
)

ADDITIONS = sorted((PACKAGE_FOLDER / "additions").glob("*.py"))
MODULE = types.ModuleType("ministack.services.somewhere")
MODULE._known = 1


def private_names(path: Path) -> set[tuple[str, str]]:
    """Every `module._name` of MiniStack that an addition touches."""
    tree = ast.parse(path.read_text())
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ministack")
        for alias in node.names
    }
    return {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in imported
    }


def needed(path: Path) -> set[tuple[str, str]]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "NEEDS":
            return {
                (key.id, name.value)
                for key, names in zip(node.value.keys, node.value.values, strict=True)
                for name in names.elts
            }
    return set()


@pytest.mark.parametrize("path", ADDITIONS, ids=lambda path: path.stem)
def test_an_addition_names_what_it_touches(path):
    assert private_names(path) - needed(path) == set()


@pytest.mark.parametrize("path", ADDITIONS, ids=lambda path: path.stem)
def test_an_addition_imports_only_what_the_endpoint_environment_has(path):
    tree = ast.parse(path.read_text())
    roots = {
        node.module.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level
    }
    assert roots <= {*sys.stdlib_module_names, "botocore", "ministack"}


def test_the_pinned_version_with_all_names_is_taken():
    assert (
        find_refusals(read_pinned_version(), read_pinned_version(), [(MODULE, ("_known",))]) == []
    )


def test_rejects_another_version():
    assert find_refusals("1.5.34", "1.5.33", []) == [
        "ministack 1.5.34 is installed, the additions are tested with 1.5.33"
    ]


def test_rejects_a_missing_name():
    assert find_refusals("1.5.33", "1.5.33", [(MODULE, ("_known", "_moved"))]) == [
        "ministack.services.somewhere has no _moved in ministack 1.5.33"
    ]


@pytest.mark.parametrize("name", ["", "home", "tandem"])
def test_no_directory_but_its_own_is_ever_removed(tmp_path, name):
    kept = tmp_path / name
    kept.mkdir(exist_ok=True)
    _remove_work_folder(str(kept) if name else "")
    assert kept.exists()


@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
def test_a_refusal_is_one_line_and_ends_the_start(tmp_path):
    """In the real environment, with one name gone."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from ministack.services import eks; del eks._create_nodegroup\n"
        "import launcher; sys.exit(launcher.main())"
    )

    refused = subprocess.run(
        [str(ensure_python()), "-c", script, str(PACKAGE_FOLDER)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )

    (line,) = [
        line for line in refused.stderr.splitlines() if line.startswith("the local AWS endpoint")
    ]
    assert refused.returncode == START_ERROR
    reason = f"ministack.services.eks has no _create_nodegroup in ministack {read_pinned_version()}"
    assert line == f"the local AWS endpoint does not start: {reason}"
