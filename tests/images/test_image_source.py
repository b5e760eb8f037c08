"""An allow list is the import closure of what its image runs: nothing is missing, and nothing else moves the tag."""

from __future__ import annotations

import importlib.metadata
import sys
from functools import cache

import pytest
from closure import closure, libraries
from packaging.requirements import Requirement
from recipe import admitted, instructions

from supply.lock_file import normalize_name, read_lock
from tandem.artifacts.__main__ import COMMANDS, MODULES
from tandem.spec.project_image import LLMPERF, ROOT, TOOLS, ProjectImage

# the program imports its commands by name
ENTRIES = {
    TOOLS: ["tandem.artifacts.__main__", *(f"tandem.artifacts.{MODULES.get(name, name)}" for name in COMMANDS)],
    LLMPERF: ["tandem.bench.llmperf.__main__", "tandem.bench.llmperf.source"],  # the last runs while it is built
}
SBOM = {"images/sbom.py", "images/sbom-requirements.txt"}
RECIPES = {
    TOOLS: {TOOLS.dockerfile, f"{TOOLS.folder}/requirements.txt", *SBOM},
    LLMPERF: {LLMPERF.dockerfile, f"{LLMPERF.folder}/requirements.txt", "images/llmperf/npm-requirements.txt", *SBOM},
}
each_image = pytest.mark.parametrize("image", ENTRIES, ids=lambda image: image.name)


@each_image
def test_the_allow_list_admits_every_module_that_is_imported(image: ProjectImage) -> None:
    missing = closure(ENTRIES[image]) - set(image.source_files())
    assert missing == set(), f"add to {image.allow_list}: {sorted(f'!{file}' for file in missing)}"


@each_image
def test_the_allow_list_admits_no_other_module(image: ProjectImage) -> None:
    needless = set(image.source_files()) - closure(ENTRIES[image]) - RECIPES[image]
    assert needless == set(), f"take out of {image.allow_list}: {sorted(f'!{file}' for file in needless)}"


@each_image
def test_the_allow_list_admits_the_recipe(image: ProjectImage) -> None:
    assert set(image.source_files()) >= RECIPES[image]


@each_image
def test_the_allow_list_begins_by_refusing_everything(image: ProjectImage) -> None:
    rules = [line for line in (ROOT / image.allow_list).read_text().splitlines() if not line.startswith("#")]
    assert rules[0] == "*"
    assert [rule for rule in rules[1:] if not rule.startswith("!")] == []


def test_no_list_at_the_root_stands_before_those_of_the_images() -> None:
    """BuildKit takes `<Dockerfile>.dockerignore` where it exists; another builder would take the root's for both."""
    assert not (ROOT / ".dockerignore").exists()


@each_image
def test_the_dockerfile_copies_all_that_is_admitted(image: ProjectImage) -> None:
    copied = {
        file
        for step in instructions(image)
        if step.word == "COPY" and not step.text.startswith("--from")
        for source in step.text.split()[:-1]
        for file in admitted(source, image)
    }

    assert set(image.source_files()) - copied == {image.dockerfile}


@each_image
def test_two_images_share_no_tag(image: ProjectImage) -> None:
    assert [other.name for other in ENTRIES if other.tag() == image.tag()] == [image.name]


def pinned(image: ProjectImage = TOOLS) -> set[str]:
    return {package.name for package in read_lock(ROOT / f"{image.folder}/requirements.txt")}


@cache
def imported() -> set[str]:
    """The distributions of which a command imports something."""
    distributions = importlib.metadata.packages_distributions()
    names = libraries(closure(ENTRIES[TOOLS])) - set(sys.stdlib_module_names)
    return {normalize_name(found) for name in names for found in distributions[name]}


def required(by: set[str]) -> set[str]:
    """All that these distributions bring along, under the Python of the image or this one."""
    found, waiting = set(by), list(by)
    while waiting:
        for line in importlib.metadata.requires(waiting.pop()) or []:
            requirement = Requirement(line)
            asked = requirement.marker is None or any(
                requirement.marker.evaluate(
                    {"extra": "", "python_version": python, "python_full_version": f"{python}.0"}
                )
                for python in ("3.11", "3.13")
            )
            name = normalize_name(requirement.name)
            if asked and name not in found and (name in pinned() or requirement.marker is None):
                found.add(name)
                waiting.append(name)
    return found


def test_every_library_that_a_command_imports_is_installed() -> None:
    assert imported() - pinned() == set()


def test_nothing_is_installed_that_no_command_needs() -> None:
    assert pinned() - required(imported()) == set()


def test_llmperfs_packages_are_those_that_its_source_and_our_driver_import() -> None:
    """By what a checkout imports (its commit is fixed); ray and transformers bring the rest."""
    assert {"ray", "transformers", "pandas", "requests", "boto3", "tqdm", "pydantic"} <= pinned(LLMPERF)
    assert libraries(closure(ENTRIES[LLMPERF])) - set(sys.stdlib_module_names) <= pinned(LLMPERF)
