"""The SBOM that the tools image's own lines write, and what llmperf's add."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recipe import built, instructions

from supply.lock_file import normalize_name, read_lock
from tandem.bench.llmperf import source
from tandem.declarations.project_image import LLMPERF, ROOT, TOOLS

pytestmark = pytest.mark.xdist_group("tools-image")
EMPTY = {"metadata": {}, "components": []}
# as dpkg-query 1.21 prints them: installed, held, removed but for its configuration, and of all
# architectures
DEBIAN_PACKAGES = """\
ii  libc6 2.41-12 amd64
hi  libssl3t64 3.5.1-1+deb13u1 amd64
rc  nano 8.4-1 amd64
ii  tzdata 2025b-4 all
"""


@pytest.fixture(scope="module")
def sbom():
    return json.loads((built() / "sbom.cdx.json").read_text())


def versions(sbom: dict[str, Any], kind: str) -> dict[str, str]:
    """The components of a package URL's kind: name to version."""
    return {
        normalize_name(component["name"]): component["version"]
        for component in sbom["components"]
        if component["purl"].startswith(f"pkg:{kind}/")
    }


def write_dpkg_query(file: Path) -> None:
    """Write a dpkg-query that answers with DEBIAN_PACKAGES, and fails for any other words than the
    recorded call."""
    form = "${db:Status-Abbrev} ${Package} ${Version} ${Architecture}\n"
    call = shlex.quote(f"--show --showformat={form}")
    file.write_text(f'#!/bin/sh\n[ "$*" = {call} ] || exit 2\ncat <<END\n{DEBIAN_PACKAGES}END\n')
    file.chmod(0o755)


def write(folder: Path, *words: str, path: str = os.defpath) -> dict[str, Any]:
    """Return what images/sbom.py makes of a list without packages, with `path` as the place of
    programs."""
    (folder / "packages.json").write_text(json.dumps(EMPTY))
    program = [
        sys.executable,
        str(ROOT / "images" / "sbom.py"),
        "packages.json",
        "--name",
        "image",
        "--out",
        "out.json",
    ]
    subprocess.run([*program, *words], cwd=folder, env={**os.environ, "PATH": path}, check=True)
    return json.loads((folder / "out.json").read_text())


def test_it_names_each_package_of_the_lock_with_its_version(sbom):
    assert versions(sbom, "pypi") == {
        package.name: package.version
        for package in read_lock(ROOT / f"{TOOLS.folder}/requirements.txt")
    }


def test_it_names_every_debian_package_that_is_installed(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    write_dpkg_query(programs / "dpkg-query")

    document = write(tmp_path, "--base", "python:3", path=f"{programs}:{os.defpath}")

    assert versions(document, "deb") == {
        "libc6": "2.41-12",
        "libssl3t64": "3.5.1-1+deb13u1",
        "tzdata": "2025b-4",
    }


def test_llmperfs_recipe_names_the_commit_and_tokenizer_that_it_takes():
    [line] = [
        step.text for step in instructions(LLMPERF) if "sbom.py" in step.text and step.word == "RUN"
    ]

    assert re.findall(r"--component (\S+)", line) == [
        f"pkg:github/{source.REPOSITORY.removeprefix('https://github.com/')}@{source.COMMIT}",
        f"pkg:npm/{source.PACKAGE.replace('@', '%40', 1)}",
    ]


def test_a_component_is_told_by_its_package_url(tmp_path):
    document = write(tmp_path, "--base", "python:3", "--component", "pkg:npm/%40scope/name@1.2")
    [component] = [item for item in document["components"] if item["purl"].startswith("pkg:npm/")]
    assert (component["name"], component["version"]) == ("@scope/name", "1.2")


def test_the_same_build_writes_the_same_bytes(tmp_path):
    contents = []
    for _ in range(2):
        write(tmp_path, "--base", "mirror.acme.dev:5000/python:3@sha256:" + 64 * "a")
        contents.append((tmp_path / "out.json").read_bytes())

    assert contents[0] == contents[1]
    assert b"mirror.acme.dev:5000/python" in contents[0]
