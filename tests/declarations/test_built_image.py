"""An image's tag is a digest of its source, and its name needs no look-up."""

from __future__ import annotations

import shutil

import pytest
from committed import environment, experiment

from tandem.declarations.names import repository_name
from tandem.declarations.project_image import (
    ROOT,
    TOOLS,
    has_llmperf,
)


@pytest.fixture
def source(tmp_path):
    """A copy of the build's source and its allow list, free to be changed; a new path each time, so
    never cached."""
    for file in (TOOLS.allow_list, *TOOLS.source_files()):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_llmperf_runs_for_the_posts_suite_without_a_sweep():
    assert has_llmperf(experiment("post"))
    assert not has_llmperf(experiment("post").model_copy(update={"suites": ("real",)}))
    assert not has_llmperf(experiment("post-drafts-windows"))


def test_a_byte_more_changes_the_tag(source):
    file = source / TOOLS.source_files()[-1]
    file.write_bytes(file.read_bytes() + b"\n")
    assert TOOLS.tag(source) != TOOLS.tag()


def test_the_same_bytes_under_another_name_change_the_tag(source):
    (source / "tandem/artifacts/retry.py").rename(source / "tandem/artifacts/retries.py")
    allow_list = source / TOOLS.allow_list
    text = allow_list.read_text().replace(
        "!tandem/artifacts/retry.py", "!tandem/artifacts/retries.py"
    )
    allow_list.write_text(text)

    assert TOOLS.tag(source) != TOOLS.tag()


@pytest.mark.parametrize(
    "file",
    ["README.md", "tandem/artifacts/x.yaml"],
)
def test_what_the_image_does_not_hold_changes_no_tag(source, file):
    (source / file).parent.mkdir(parents=True, exist_ok=True)
    (source / file).write_bytes(b"anything")
    assert TOOLS.tag(source) == TOOLS.tag()


def test_line_that_admits_no_file_is_named(source):
    (source / TOOLS.allow_list).write_text("*\n!tandem/declarations/gone.py\n")
    with pytest.raises(FileNotFoundError, match=r"tandem/declarations/gone\.py is no file"):
        TOOLS.source_files(source)


def test_pod_pulls_a_tag_from_the_accounts_registry():
    place = environment("post-us-east-2")
    host = "111122223333.dkr.ecr.us-east-2.amazonaws.com"
    environment_ = place.model_copy(update={"registry_mirrors": {host: "m.dev"}})

    assert len(TOOLS.tag()) == 16
    assert set(TOOLS.tag()) <= set("0123456789abcdef")
    assert TOOLS.reference(place) == f"{host}/{repository_name(place)}:{TOOLS.tag()}"
    assert TOOLS.reference(environment_) == TOOLS.reference(place)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ARG BASE_IMAGE=r.dev/python:3.13.1", ("r.dev/python:3.13.1", None)),
        (
            f"ARG BASE_IMAGE=r.dev/python:3.13.1@sha256:{'0a' * 32}",
            ("r.dev/python:3.13.1", f"sha256:{'0a' * 32}"),
        ),
    ],
    ids=["by tag", "by digest"],
)
def test_the_base_is_the_one_the_dockerfile_names(source, line, expected):
    (source / TOOLS.dockerfile).write_text(f"# first\n{line}\nFROM ${{BASE_IMAGE}}\n")
    base = TOOLS.base(source)
    assert (base.reference, base.digest) == expected
