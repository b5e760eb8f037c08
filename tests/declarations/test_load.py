"""Folders of files: every fault told, good files kept, names held against what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from complete import ENVIRONMENT, EXPERIMENT

from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.workspace import Workspace, load_workspace


@pytest.fixture
def folders(tmp_path):
    """One good environment that hosts one good experiment."""
    for name in ("environments", "experiments"):
        (tmp_path / name).mkdir()
    put(tmp_path / "environments" / "home.yaml", ENVIRONMENT)
    put(tmp_path / "experiments" / "pair.yaml", EXPERIMENT)
    return tmp_path


def put(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1))


def loaded(folders: Path, *names: str) -> Workspace:
    return load_workspace(folders / "environments", folders / "experiments", names)


def refused(folders: Path, *names: str) -> tuple[SpecFault, ...]:
    with pytest.raises(SpecError) as caught:
        loaded(folders, *names)
    return caught.value.faults


def test_the_shipped_files_are_of_good_form(specs):
    assert load_workspace(specs / "environments", specs / "experiments").faults == ()


def test_hosted_experiment_without_a_file_is_refused(folders):
    put(folders / "environments" / "home.yaml", {**ENVIRONMENT, "experiments": ["pair", "gone"]})
    (fault,) = loaded(folders).faults
    assert (fault.path, fault.got, fault.allowed) == ("experiments[1]", "'gone'", "pair")
    assert fault.line


def test_a_broken_file_hides_neither_its_neighbours_nor_their_faults(folders):
    (folders / "environments" / "broken.yaml").write_text("a: [1")
    put(folders / "environments" / "other.yaml", {**ENVIRONMENT, "region": 1, "account": 1})
    put(folders / "experiments" / "bad.yaml", {**EXPERIMENT, "runtime": None})

    workspace = loaded(folders)

    assert sorted((Path(fault.file).name, fault.path) for fault in workspace.faults) == [
        ("bad.yaml", "runtime"),
        ("broken.yaml", ""),
        ("other.yaml", "account"),
        ("other.yaml", "region"),
    ]
    assert (list(workspace.environments), list(workspace.experiments)) == (["home"], ["pair"])


@pytest.mark.parametrize("stem", ["Upper", "a.b", "-dash", "x" * 64])
def test_rejects_a_file_name_that_is_no_label(folders, stem):
    put(folders / "environments" / f"{stem}.yaml", ENVIRONMENT)
    (fault,) = loaded(folders).faults
    assert fault.path == "name"
    assert "the file's name" in fault.change


def test_a_directory_that_ends_like_a_file_is_told(folders):
    (folders / "experiments" / "deep.yaml").mkdir()
    assert [fault.got for fault in loaded(folders).faults] == ["is a directory"]


@pytest.mark.parametrize("folder", ["environments", "experiments"])
def test_file_of_another_ending_is_refused(folders, folder):
    (folders / folder / "home.yml").write_text("a: 1")
    (fault,) = loaded(folders).faults
    assert (Path(fault.file).name, fault.change) == ("home.yml", "rename it to home.yaml")


@pytest.mark.parametrize("folder", ["environments", "experiments"])
def test_rejects_a_folder_that_is_not_there(folders, folder):
    (folders / folder).rename(folders / "moved")
    (fault,) = refused(folders)
    assert fault.got == "folder not found"
    assert f"--{folder}" in fault.change


def test_rejects_every_named_environment_that_is_not_there(folders):
    assert [
        (Path(fault.file).name, fault.allowed)
        for fault in refused(folders, "nowhere", "home", "gone")
    ] == [
        ("nowhere.yaml", "home"),
        ("gone.yaml", "home"),
    ]


@pytest.mark.parametrize("name", ["../home", "", "home.yaml"])
def test_rejects_a_name_that_is_a_path(folders, name):
    assert [fault.got for fault in refused(folders, name)] == ["file not found"]


def test_a_named_environment_brings_only_what_it_hosts(folders):
    put(folders / "environments" / "other.yaml", ENVIRONMENT)
    put(folders / "experiments" / "unused.yaml", {**EXPERIMENT, "runtime": None})

    workspace = loaded(folders, "home")

    assert (list(workspace.environments), list(workspace.experiments)) == (["home"], ["pair"])
    assert workspace.faults == ()


@pytest.mark.parametrize(("folder", "name"), [("environments", "home"), ("experiments", "pair")])
def test_ending_of_an_unnamed_file_is_ignored(folders, folder, name):
    for stem in (name, "strange"):
        (folders / folder / f"{stem}.yml").touch()

    assert [Path(fault.file).name for fault in loaded(folders, "home").faults] == [f"{name}.yml"]


def test_two_empty_folders_are_no_success(tmp_path):
    for name in ("environments", "experiments"):
        (tmp_path / name).mkdir()
    (fault,) = loaded(tmp_path).faults
    assert fault.got.startswith("no .yaml file here")
