"""Every lock: exact versions, hashes, no address, all that its input brings along."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from light_installation import list_dependencies
from packaging.requirements import Requirement
from tracked_files import list_tracked

from supply.lock_file import (
    DISTRIBUTION,
    ROOT,
    find_inputs,
    lock_path,
    normalize_name,
    read_lock,
)

INPUTS = find_inputs()
FOLDERS = ("images/tandem", "images/run")  # of locks whose packages .venv has too
CLOSED = (
    "requirements.txt",
    "requirements-test.txt",
    *(f"{folder}/requirements.txt" for folder in FOLDERS),
)
INSTALLERS = (
    "Makefile",
    "images/tandem/Dockerfile",
    "images/llmperf/Dockerfile",
    "images/run/Dockerfile",
    "images/lm-eval/Dockerfile",
    "rehearsal/aws/installation.py",
    "rehearsal/vllm_cpu/installation.py",
)
each_input = pytest.mark.parametrize("source", INPUTS, ids=lambda path: str(path.relative_to(ROOT)))


def choices(source: Path) -> list[Requirement]:
    """What an input names itself; of pyproject.toml, what the distribution and all its extras
    need."""
    if source.name == DISTRIBUTION:
        project = tomllib.loads(source.read_text())["project"]
        groups = [project["dependencies"], *project["optional-dependencies"].values()]
        requirements = [Requirement(line) for group in groups for line in group]
        return [requirement for requirement in requirements if requirement.name != project["name"]]
    lines = source.read_text().replace("\\\n", " ").splitlines()
    texts = [line.partition(" #")[0].partition("--hash")[0] for line in lines]
    return [
        Requirement(text)
        for text in texts
        if text.strip() and not text.strip().startswith(("#", "-"))
    ]


def all_choices(source: Path) -> list[Requirement]:
    """What an input names itself or by another file that it takes in whole."""
    files = re.findall(r"^-r (\S+)$", source.read_text(), flags=re.MULTILINE)
    return choices(source) + [item for name in files for item in all_choices(source.parent / name)]


def test_every_requirements_file_has_an_input():
    files = [
        ROOT / name
        for name in list_tracked()
        if re.search(r"requirements[\w-]*\.txt$|constraints\.txt$", name)
    ]
    assert set(files) == {lock_path(source) for source in INPUTS}


@each_input
def test_every_package_has_an_exact_version_and_a_hash(source):
    packages = read_lock(lock_path(source))
    digests = [digest for package in packages for digest in package.hashes]
    assert len({package.name for package in packages}) == len(packages) > 0
    assert [digest for digest in digests if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest)] == []


@each_input
def test_no_lock_and_no_input_names_an_address_or_an_index(source):
    for file in (source, lock_path(source)):
        assert not re.search(
            r"://|^-+(i|index-url|extra-index-url|find-links|f)\b", file.read_text(), re.MULTILINE
        )


@each_input
def test_the_lock_has_each_choice_in_a_version_that_its_input_allows(source):
    versions = {package.name: package.version for package in read_lock(lock_path(source))}
    assert [
        str(choice)
        for choice in all_choices(source)
        if versions[normalize_name(choice.name)] not in choice.specifier
    ] == []


@each_input
def test_every_choice_is_exact_but_those_of_the_distribution(source):
    operators = set()
    for choice in choices(source):
        operators |= {specifier.operator for specifier in choice.specifier}
    assert operators == ({">=", "<"} if source.name == DISTRIBUTION else {"=="})


@pytest.mark.parametrize("lock", CLOSED)
def test_a_lock_holds_what_its_choices_bring_along_and_no_more(lock):
    source = next(source for source in INPUTS if lock_path(source) == ROOT / lock)
    assert {package.name for package in read_lock(ROOT / lock)} == list_dependencies(
        all_choices(source)
    )


@pytest.mark.parametrize(
    "name", ["requirements.txt", "requirements-build.txt", "requirements-test.txt"]
)
def test_what_is_installed_is_what_is_locked(name):
    versions = {package.name: package.version for package in read_lock(ROOT / name)}
    assert {name: importlib.metadata.version(name) for name in versions} == versions


def test_the_build_backend_is_the_one_that_is_locked():
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    pins = [
        f"{package.name}=={package.version}"
        for package in read_lock(ROOT / "requirements-build.txt")
    ]
    assert set(requires) <= set(pins)


@pytest.mark.parametrize("file", INSTALLERS)
def test_every_installation_asks_for_hashes_or_takes_the_project_alone(file):
    text = (ROOT / file).read_text().replace("\\\n", " ")
    if file.endswith(".py"):
        assert '"--require-hashes"' in text
        return
    installs = re.findall(r"pip(?: --python \S+)? install ((?:(?!&&|`).)+)", text)

    assert installs
    for install in installs:
        assert "--require-hashes" in install or {"--no-index", "--no-build-isolation"} <= set(
            install.split()
        )


def test_nothing_else_installs_packages():
    expression = re.compile(r"pip(?: --python \S+)? install -|pip\",\s+\"install\"")
    texts = {
        name: (ROOT / name).read_text()
        for name in list_tracked()
        if Path(name).suffix in {"", ".py", ".md", ".yaml"}
    }
    result = {
        name
        for name, text in texts.items()
        if expression.search(text) and not name.startswith("tests/")
    }
    assert result - {"docs/decisions/0019-locks-carry-hashes.md"} == set(INSTALLERS)


def test_a_line_without_a_hash_is_refused(tmp_path):
    lock = tmp_path / "requirements.txt"
    lock.write_text("# a comment\nsix==1.17.0\n")
    with pytest.raises(
        ValueError, match=r"'six==1\.17\.0' has no exact version or no hash; run `make lock`"
    ):
        read_lock(lock)
