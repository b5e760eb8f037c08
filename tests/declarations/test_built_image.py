"""An image's tag is a digest of its source, and its name needs no look-up."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from committed import environment, experiment

from tandem.declarations.names import repository_name
from tandem.declarations.project_image import (
    LLMPERF,
    LM_EVAL,
    PROJECT_IMAGES,
    ROOT,
    RUN,
    TOOLS,
    ProjectImage,
    has_llmperf,
    registry_host,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the build's source and its allow list, free to be changed; a new path each time, so
    never cached."""
    for file in (TOOLS.allow_list, *TOOLS.source_files()):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


@pytest.mark.parametrize("image", [TOOLS, LLMPERF, LM_EVAL], ids=lambda image: image.name)
def test_a_byte_of_any_file_of_the_source_changes_the_tag(
    tmp_path: Path, image: ProjectImage
) -> None:
    copied = tmp_path / "source"
    for each in (image.allow_list, *image.source_files()):
        (copied / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / each, copied / each)

    tags = {}
    for number, file in enumerate(image.source_files()):
        another = tmp_path / f"source-{number}"  # a path of its own, so never cached
        another.symlink_to(copied)
        content = (copied / file).read_bytes()
        (copied / file).write_bytes(content + b"\n")
        tags[file] = image.tag(another)
        (copied / file).write_bytes(content)

    assert [file for file, tag in tags.items() if tag == image.tag()] == []
    assert len(set(tags.values())) == len(tags)


def test_llmperf_runs_where_the_posts_suite_is_measured_and_beside_no_sweep() -> None:
    assert has_llmperf(experiment("post"))
    assert not has_llmperf(experiment("post").model_copy(update={"suites": ("real",)}))
    assert not has_llmperf(experiment("post-drafts-windows"))


def test_bytes_that_move_from_one_file_to_the_next_change_the_tag(source: Path) -> None:
    first, second = (source / file for file in TOOLS.source_files()[:2])
    moved = first.read_bytes()
    first.write_bytes(moved[:-1])
    second.write_bytes(moved[-1:] + second.read_bytes())

    assert TOOLS.tag(source) != TOOLS.tag()


def test_the_same_bytes_under_another_name_change_the_tag(source: Path) -> None:
    (source / "tandem/artifacts/retry.py").rename(source / "tandem/artifacts/retries.py")
    allow_list = source / TOOLS.allow_list
    renamed = allow_list.read_text().replace(
        "!tandem/artifacts/retry.py", "!tandem/artifacts/retries.py"
    )
    allow_list.write_text(renamed)

    assert TOOLS.tag(source) != TOOLS.tag()


def test_a_pattern_admits_every_file_that_it_fits(source: Path) -> None:
    (source / TOOLS.allow_list).write_text("*\n!tandem/artifacts/l*.py\n")
    assert TOOLS.source_files(source) == tuple(
        file for file in TOOLS.source_files() if file.startswith("tandem/artifacts/l")
    )


@pytest.mark.parametrize(
    "file",
    [
        "README.md",
        "tandem/cli/program.py",
        "tandem/artifacts/__pycache__/log.cpython-313.pyc",
        "tandem/artifacts/x.yaml",
    ],
)
def test_what_the_image_does_not_hold_changes_no_tag(source: Path, file: str) -> None:
    (source / file).parent.mkdir(parents=True, exist_ok=True)
    (source / file).write_bytes(b"anything")
    assert TOOLS.tag(source) == TOOLS.tag()


@pytest.mark.parametrize(
    "file",
    ["tandem/run/new.py", "tandem/run/steps/new.py", "tandem/declarations/data/models/new.yaml"],
)
def test_a_new_module_or_data_file_is_in_the_run_image_at_once(tmp_path: Path, file: str) -> None:
    for each in (RUN.allow_list, *RUN.source_files(), file):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).write_bytes((ROOT / each).read_bytes() if each != file else b"new")

    assert set(RUN.source_files(tmp_path)) - set(RUN.source_files()) == {file}
    assert RUN.tag(tmp_path) != RUN.tag()


def test_dates_and_modes_change_no_tag(source: Path) -> None:
    for file in TOOLS.source_files():
        os.utime(source / file, (0, 0))
        (source / file).chmod(0o600)
    assert TOOLS.tag(source) == TOOLS.tag()


def test_a_line_that_admits_no_file_is_an_error_that_names_it(source: Path) -> None:
    (source / TOOLS.allow_list).write_text("*\n!tandem/declarations/gone.py\n")
    with pytest.raises(FileNotFoundError, match=r"tandem/declarations/gone\.py is no file"):
        TOOLS.source_files(source)


def test_a_pod_pulls_16_hexadecimal_digits_from_the_accounts_own_registry_behind_no_mirror() -> (
    None
):
    place = environment("post-us-east-2")
    host = "111122223333.dkr.ecr.us-east-2.amazonaws.com"
    mirrored = place.model_copy(update={"registry_mirrors": {host: "m.dev"}})

    assert len(TOOLS.tag()) == 16
    assert set(TOOLS.tag()) <= set("0123456789abcdef")
    assert TOOLS.reference(place) == f"{host}/{repository_name(place)}:{TOOLS.tag()}"
    assert TOOLS.reference(mirrored) == TOOLS.reference(place)


def test_a_region_in_china_has_chinas_suffix() -> None:
    place = environment("post-us-east-2").model_copy(update={"region": "cn-north-1"})
    assert registry_host(place) == "111122223333.dkr.ecr.cn-north-1.amazonaws.com.cn"


def test_each_environment_has_a_repository_for_each_image() -> None:
    places = [
        environment("post-us-east-2").model_copy(update={"name": name}) for name in ("one", "other")
    ]
    repositories = {
        image.reference(place).rpartition(":")[0] for image in PROJECT_IMAGES for place in places
    }
    assert len(repositories) == 2 * len(PROJECT_IMAGES)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ARG BASE_IMAGE=r.dev/python:3.13.1", ("r.dev/python:3.13.1", None)),
        (
            f"ARG BASE_IMAGE=r.dev/python:3.13.1@sha256:{'0a' * 32}",
            ("r.dev/python:3.13.1", f"sha256:{'0a' * 32}"),
        ),
    ],
    ids=["by tag", "by digest"],
)
def test_the_base_is_the_one_the_dockerfile_names(
    source: Path, line: str, found: tuple[str, str | None]
) -> None:
    (source / TOOLS.dockerfile).write_text(f"# first\n{line}\nFROM ${{BASE_IMAGE}}\n")
    base = TOOLS.base(source)
    assert (base.reference, base.digest) == found
