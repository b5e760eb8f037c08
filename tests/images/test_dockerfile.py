"""The Dockerfile: linted, pinned, without rights at run time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from recipe import DOCKERFILE, INSIDE, REQUIREMENTS, ROOT, environment, instructions, last_stage, text

from charts.tools import USER
from tandem.spec import tools_image
from tandem.spec.names import WORK_MOUNT


def lint(path: Path) -> set[str]:
    """Return the codes of what hadolint says, matters of style included."""
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [str(hadolint), "--no-fail", "--format", "json", str(path)], cwd="/", capture_output=True, text=True, check=True
    )
    return {found["code"] for found in json.loads(done.stdout)}


def test_the_linter_finds_nothing() -> None:
    assert lint(DOCKERFILE) == set()


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("FROM ${BASE_IMAGE} AS build", "FROM python AS build", "DL3006"),
        ('ENTRYPOINT ["python", "-m", "tandem.artifacts"]', "ENTRYPOINT python -m tandem.artifacts", "DL3025"),
        ("USER 65532:65532", "USER root", "DL3002"),
    ],
)
def test_the_linter_finds_a_spoilt_line(tmp_path: Path, old: str, new: str, code: str) -> None:
    spoilt = tmp_path / "Dockerfile"
    content = DOCKERFILE.read_text()
    assert old in content
    spoilt.write_text(content.replace(old, new))

    assert code in lint(spoilt)


def test_every_stage_stands_on_the_one_base_that_an_argument_replaces() -> None:
    bases = {step.text.split()[0] for step in instructions() if step.word == "FROM"}

    assert bases == {"${BASE_IMAGE}"}


def test_the_base_is_pinned_to_a_patch_version_and_a_digest() -> None:
    base = tools_image.base_image()

    assert re.fullmatch(r"public\.ecr\.aws/docker/library/python:3\.13\.\d+-slim-[a-z]+", base.reference)
    assert base.digest is not None


def test_it_runs_as_a_number_that_is_not_roots() -> None:
    uid, gid = (int(part) for part in text("USER").split(":"))

    assert min(uid, gid) > 0
    assert {uid, gid} == {USER}  # as the pods say it


def test_it_starts_without_a_shell() -> None:
    assert json.loads(text("ENTRYPOINT")) == ["python", "-m", "tandem.artifacts"]


def test_nothing_is_run_or_copied_after_rights_are_given_up() -> None:
    words = [step.word for step in last_stage()]

    assert set(words[words.index("USER") :]) == {"USER", "ENTRYPOINT"}


def test_no_installer_is_left() -> None:
    (run,) = [step.text for step in last_stage() if step.word == "RUN"]

    assert re.search(r"pip uninstall --yes \S* ?pip\b", run)
    assert "/ensurepip" in run


def test_what_it_writes_by_habit_goes_to_the_volume_that_pods_mount() -> None:
    variables = environment(Path(INSIDE))

    assert {variables["HOME"], variables["TMPDIR"]} == {WORK_MOUNT}
    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"


def test_nothing_is_imported_from_the_working_directory() -> None:
    assert environment(Path(INSIDE))["PYTHONSAFEPATH"] == "1"


def pins(file: str) -> dict[str, str]:
    lines = [line for line in (ROOT / file).read_text().splitlines() if not line.startswith(("#", "-c"))]
    return dict(line.split("==") for line in lines)


def test_every_package_is_pinned_as_the_repository_pins_it() -> None:
    constraints = pins("constraints.txt")

    assert {name: version for name, version in pins(REQUIREMENTS).items() if constraints.get(name) != version} == {}


@pytest.mark.parametrize("name", ["boto3", "huggingface_hub", "pydantic", "PyYAML"])
def test_a_package_is_the_one_that_the_tests_use(name: str) -> None:
    assert pins(REQUIREMENTS)[name] == pins("requirements.txt")[name]
