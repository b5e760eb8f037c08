"""The launcher refuses a MiniStack that the additions were not tested with."""

from __future__ import annotations

import ast
import json
import sys
import types

import pytest

from rehearsal.aws.installation import PACKAGE_FOLDER
from rehearsal.aws.launcher import (
    START_ERROR,
    _remove_work_folder,
    find_refusals,
    list_used_names,
    main,
    read_pinned_version,
)

ADDITIONS = sorted((PACKAGE_FOLDER / "additions").glob("*.py"))
MODULE = types.ModuleType("ministack.services.somewhere")
MODULE._known = 1
OWN_MODULES = {"build_behavior", "fleet_behavior"}  # next to the launcher


@pytest.mark.parametrize("path", ADDITIONS, ids=lambda path: path.stem)
def test_an_addition_imports_only_what_the_endpoint_environment_has(path):
    tree = ast.parse(path.read_text())
    roots = {
        node.module.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level
    }
    assert roots <= {*sys.stdlib_module_names, *OWN_MODULES, "botocore", "ministack"}


def test_the_names_that_an_addition_uses_are_read_from_its_source(tmp_path):
    addition = types.ModuleType("addition")
    addition.__file__ = str(tmp_path / "addition.py")
    addition.somewhere = MODULE
    addition.json = json
    (tmp_path / "addition.py").write_text("somewhere._known = json.dumps(somewhere._moved)\n")
    assert list_used_names(addition) == [(MODULE, "_known"), (MODULE, "_moved")]


def test_the_pinned_version_with_all_names_is_taken():
    assert find_refusals(read_pinned_version(), read_pinned_version(), [(MODULE, "_known")]) == []


def test_rejects_a_missing_name():
    assert find_refusals("1.5.33", "1.5.33", [(MODULE, "_known"), (MODULE, "_moved")]) == [
        "ministack.services.somewhere has no _moved in ministack 1.5.33"
    ]


@pytest.mark.parametrize("name", ["", "home", "tandem"])
def test_no_directory_but_its_own_is_ever_removed(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    _remove_work_folder(str(folder) if name else "")
    assert folder.exists()


def test_a_refusal_is_one_line_and_ends_the_start(monkeypatch, capsys):
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.0.1")
    assert main() == START_ERROR
    refusal = f"ministack 0.0.1 is installed, the additions are tested with {read_pinned_version()}"
    assert capsys.readouterr().err == f"the local AWS endpoint does not start: {refusal}\n"
