"""The Dockerfiles: linted, pinned, without rights at run time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from recipe import environment, instructions, last_stage, text

from charts.pod import USER
from supply.lock_file import read_lock
from tandem.declarations.names import WORK_MOUNT
from tandem.declarations.project_image import LLMPERF, LM_EVAL, ROOT, RUN, TOOLS, ProjectImage

PROGRAMS = {
    TOOLS: "tandem.artifacts",
    LLMPERF: "tandem.bench.llmperf",
    RUN: "tandem.run",
    LM_EVAL: "tandem.bench.lm_eval",
}
each_image = pytest.mark.parametrize("image", PROGRAMS, ids=lambda image: image.name)


def lint(path: Path) -> set[str]:
    """Return the codes of what hadolint says, matters of style included."""
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [str(hadolint), "--no-fail", "--format", "json", str(path)],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return {document["code"] for document in json.loads(done.stdout)}


@each_image
def test_the_linter_finds_nothing(image):
    assert lint(ROOT / image.dockerfile) == set()


@each_image
def test_the_base_is_pinned_to_a_patch_version_and_a_digest(image):
    base = image.base()
    assert re.fullmatch(
        r"public\.ecr\.aws/docker/library/python:3\.13\.\d+-slim-[a-z]+", base.reference
    )
    assert base.digest is not None


@each_image
def test_it_runs_as_a_number_that_is_not_roots(image):
    uid, gid = (int(part) for part in text("USER", image).split(":"))
    assert min(uid, gid) > 0
    assert {uid, gid} == {USER}  # as the pods say it


@each_image
def test_nothing_is_run_or_copied_after_rights_are_given_up(image):
    words = [step.word for step in last_stage(image)]
    assert set(words[words.index("USER") :]) == {"USER", "ENTRYPOINT"}


@each_image
def test_no_installer_is_left(image):
    (run,) = [step.text for step in last_stage(image) if step.word == "RUN"]
    assert re.search(r"pip uninstall --yes \S* ?pip\b", run)
    assert "/ensurepip" in run


@each_image
def test_what_it_writes_by_habit_goes_to_the_volume_that_pods_mount(image):
    variables = environment(Path("/"), image)
    assert {variables["HOME"], variables["TMPDIR"]} == {WORK_MOUNT}
    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"


def list_installs(image: ProjectImage) -> list[str]:
    """Return the commands of the build that install packages."""
    commands = [
        command
        for step in instructions(image)
        if step.word == "RUN"
        for command in step.text.split(" && ")
    ]
    return [command for command in commands if " install " in command]


@each_image
def test_only_wheels_are_installed_and_nothing_that_is_not_listed(image):
    installs = list_installs(image)
    assert installs
    assert all(
        "--only-binary=:all: --no-deps --require-hashes --requirement" in install
        for install in installs
    )


@each_image
def test_a_source_is_built_by_the_setuptools_of_the_lock(image):
    sources = [install for install in list_installs(image) if "--no-binary" in install]
    assert len(sources) == (1 if image is LM_EVAL else 0)
    assert all("--no-build-isolation" in install for install in sources)


def test_setuptools_has_one_hash_in_the_lm_eval_lock():
    """The recipe takes the line of its version and the next."""
    packages = read_lock(ROOT / LM_EVAL.folder / "requirements.txt")
    assert [len(package.hashes) for package in packages if package.name == "setuptools"] == [1]


def pins(file: str) -> dict[str, str]:
    return {package.name: package.version for package in read_lock(ROOT / file)}


@pytest.mark.parametrize(
    "file",
    [
        *(f"{image.folder}/requirements.txt" for image in (TOOLS, RUN)),
        "images/llmperf/npm-requirements.txt",
    ],
)
def test_every_package_is_the_one_that_the_tests_use(file):
    tested_pins = pins("requirements.txt")
    assert {
        name: version for name, version in pins(file).items() if tested_pins.get(name) != version
    } == {}
