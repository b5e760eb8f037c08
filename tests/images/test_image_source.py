"""An allow list is the import closure of what its image runs: nothing is missing, and nothing else
moves the tag.

That of the run image is whole packages, of each of which something is needed.
"""

from __future__ import annotations

import importlib.metadata
import sys
from functools import cache
from pathlib import PurePath

import pytest
from closure import closure, libraries
from recipe import admitted, instructions
from test_locks import choices
from tracked_files import list_tracked

from supply.lock_file import normalize_name, read_lock
from tandem.artifacts.__main__ import COMMANDS, MODULES
from tandem.bench.suites.task_items import OWN_TASK
from tandem.declarations.project_image import LLMPERF, LM_EVAL, ROOT, RUN, TOOLS, ProjectImage

# the program imports its commands by name
ENTRIES = {
    TOOLS: [
        "tandem.artifacts.__main__",
        "tandem.artifacts.driver.attempts",  # `fetch` packs it for the runtime's container
        *(f"tandem.artifacts.{MODULES.get(name, name)}" for name in COMMANDS),
    ],
    # the last runs while it is built
    LLMPERF: ["tandem.bench.llmperf.__main__", "tandem.bench.llmperf.source"],
    RUN: ["tandem.run.__main__"],
    LM_EVAL: ["tandem.bench.lm_eval.__main__"],
}
SBOM = {"images/sbom.py", "images/sbom-requirements.txt"}
RECIPES = {
    TOOLS: {TOOLS.dockerfile, f"{TOOLS.folder}/requirements.txt", *SBOM},
    LLMPERF: {
        LLMPERF.dockerfile,
        f"{LLMPERF.folder}/requirements.txt",
        "images/llmperf/npm-requirements.txt",
        *SBOM,
    },
    RUN: {RUN.dockerfile, f"{RUN.folder}/requirements.txt", *SBOM},
    LM_EVAL: {LM_EVAL.dockerfile, f"{LM_EVAL.folder}/requirements.txt", *SBOM},
}
DATA = {LM_EVAL: {str(OWN_TASK.relative_to(ROOT))}}
# file by file
EACH_IMAGE = pytest.mark.parametrize(
    "image", [TOOLS, LLMPERF, LM_EVAL], ids=lambda image: image.name
)
# the judge imports it where `bench report` names a tokenizer's file, and no Job does
FROM_A_FLAG = {"tokenizers"}
each_image = pytest.mark.parametrize("image", ENTRIES, ids=lambda image: image.name)


@each_image
def test_the_allow_list_admits_every_module_that_is_imported(image):
    missing = closure(ENTRIES[image]) - set(image.source_files())
    assert missing == set(), f"add to {image.allow_list}: {sorted(f'!{file}' for file in missing)}"


@EACH_IMAGE
def test_the_allow_list_admits_no_other_module(image):
    needless = (
        set(image.source_files())
        - closure(ENTRIES[image])
        - RECIPES[image]
        - DATA.get(image, set())
    )
    assert needless == set(), (
        f"take out of {image.allow_list}: {sorted(f'!{file}' for file in needless)}"
    )


def patterns(image: ProjectImage) -> list[str]:
    """What an allow list admits beside the recipe."""
    lines = (ROOT / image.allow_list).read_text().splitlines()
    return [line[1:] for line in lines if line.startswith("!") and line[1:] not in RECIPES[image]]


def test_each_package_of_the_run_image_has_a_module_that_is_imported():
    needed_closure = closure(ENTRIES[RUN])
    modules = [pattern for pattern in patterns(RUN) if pattern.endswith(".py")]
    idle = [
        pattern
        for pattern in modules
        if not needed_closure & {str(path.relative_to(ROOT)) for path in ROOT.glob(pattern)}
    ]
    assert idle == []
    assert "tandem/run/**/*.py" in modules


def test_the_run_image_has_every_other_file_of_its_packages():
    """What is read at run time: declared data, prompts, claims, the report's templates."""
    packages = {str(PurePath(file).parent) for file in closure(ENTRIES[RUN])} - {"tandem"}
    data = {
        file
        for file in list_tracked(*packages)
        if PurePath(file).suffix != ".py" and "requirements" not in file
    }
    assert data - set(RUN.source_files()) == set()
    assert any(file.startswith("tandem/declarations/data/runtimes/") for file in data)


@each_image
def test_the_allow_list_admits_the_recipe(image):
    assert set(image.source_files()) >= RECIPES[image]


@each_image
def test_the_allow_list_begins_by_refusing_everything(image):
    rules = [
        line
        for line in (ROOT / image.allow_list).read_text().splitlines()
        if not line.startswith("#")
    ]
    assert rules[0] == "*"
    assert [rule for rule in rules[1:] if not rule.startswith("!")] == []


@each_image
def test_the_dockerfile_copies_all_that_is_admitted(image):
    copied_files = {
        file
        for step in instructions(image)
        if step.word == "COPY" and not step.text.startswith("--from")
        for source in step.text.split()[:-1]
        for file in admitted(source, image)
    }

    assert set(image.source_files()) - copied_files == {image.dockerfile}


def pinned(image: ProjectImage) -> set[str]:
    return {package.name for package in read_lock(ROOT / f"{image.folder}/requirements.txt")}


@cache
def imported(image: ProjectImage) -> set[str]:
    """The distributions of which a command imports something."""
    distributions = importlib.metadata.packages_distributions()
    names = libraries(closure(ENTRIES[image])) - set(sys.stdlib_module_names) - FROM_A_FLAG
    return {normalize_name(distribution) for name in names for distribution in distributions[name]}


each_tested_image = pytest.mark.parametrize("image", [TOOLS, RUN], ids=lambda image: image.name)


@each_tested_image
def test_every_library_that_a_command_imports_is_installed(image):
    assert imported(image) - pinned(image) == set()


@each_tested_image
def test_nothing_is_chosen_that_no_command_imports(image):
    """What a choice brings along is held by tests/supply/test_locks.py."""
    names = {
        normalize_name(choice.name) for choice in choices(ROOT / image.folder / "requirements.in")
    }
    assert names - imported(image) == set()


def test_llmperfs_packages_are_those_that_its_source_and_our_driver_import():
    """By what a checkout imports (its commit is fixed); ray and transformers bring the rest."""
    assert {"ray", "transformers", "pandas", "requests", "boto3", "tqdm", "pydantic"} <= pinned(
        LLMPERF
    )
    assert libraries(closure(ENTRIES[LLMPERF])) - set(sys.stdlib_module_names) <= pinned(LLMPERF)


def test_the_lm_eval_image_installs_all_that_its_program_imports():
    """lm-eval brings the rest: `pip check` of the build."""
    assert {"lm-eval", *libraries(closure(ENTRIES[LM_EVAL]))} - set(
        sys.stdlib_module_names
    ) <= pinned(LM_EVAL)
