"""What an image installs, carried out from its own lines, runs every command without rights and
without a shell.

The interpreter is this machine's; the image's own is another minor version of it.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from closure import closure, libraries
from recipe import FOLDER, FOLDERS, built, closed_off, environment, text

from tandem.artifacts.__main__ import COMMANDS, MODULES
from tandem.declarations.project_image import LM_EVAL, RUN

pytestmark = pytest.mark.xdist_group("tools-image")


@pytest.fixture(scope="module")
def image():
    """The folder that the image has at /opt/tandem."""
    return built()


def run(image: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the image as a pod does: its variables alone, its user, nothing to write
    to."""
    return subprocess.run(
        [*closed_off(text("USER")), *words],
        cwd="/",
        env=environment(image),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def start(image: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program, *rest = json.loads(text("ENTRYPOINT"))
    return run(image, str(image / "packages" / "bin" / program), *rest, *arguments)


def python(image: Path, code: str) -> str:
    done = run(image, str(image / "packages" / "bin" / "python"), "-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def list_imports(files: set[str]) -> set[str]:
    """Return the modules of these files, and all that they import."""
    modules = {
        file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files
    }
    return modules | libraries(files) - {"__future__"}


def test_without_a_command_it_lists_every_command(image):
    done = start(image, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert [
        name for name in COMMANDS if not re.search(rf"^ +{name}\b", done.stdout, re.MULTILINE)
    ] == []


def test_every_module_and_library_can_be_imported(image):
    """Commands import some of them only when they come to it."""
    files = closure(
        [
            "tandem.artifacts.__main__",
            *(f"tandem.artifacts.{MODULES.get(name, name)}" for name in COMMANDS),
        ]
    )
    names = list_imports(files) - {"tandem.artifacts.__main__"}

    assert python(
        image, f"import importlib; print(len([importlib.import_module(n) for n in {names!r}]))"
    ) == str(len(names))


def test_everything_comes_from_the_image(image):
    where = python(image, "import boto3, tandem; print(boto3.__file__, tandem.__file__)")
    assert all(path.startswith(str(FOLDER)) for path in where.split())


def test_a_module_in_the_working_directory_is_not_imported(image, tmp_path):
    (tmp_path / "tandem.py").write_text("raise SystemExit('a stranger ran')")

    done = subprocess.run(
        [str(image / "packages" / "bin" / "python"), "-m", "tandem.artifacts", "--help"],
        cwd=tmp_path,
        env=environment(image),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.proof
@pytest.mark.xdist_group("run-image")
def test_every_module_and_file_of_the_run_image_can_be_read():
    """Its packages take a minute to be installed."""
    folder = built(RUN)
    files = closure(["tandem.run.__main__"])
    names = list_imports(files) - {"tokenizers", "tandem.run.__main__"}
    code = f"import importlib; [importlib.import_module(n) for n in {names!r}]"
    code += "; from tandem.declarations.catalogue import load_catalogue; print(len(load_catalogue().models))"

    assert int(python(folder, code)) > 0
    assert all(
        path.startswith(str(FOLDERS[RUN]))
        for path in python(folder, "import tandem; print(tandem.__file__)").split()
    )


@pytest.mark.proof
@pytest.mark.xdist_group("lm-eval-image")
@pytest.mark.parametrize("module", ["tandem.bench.lm_eval", "lm_eval"])
def test_the_lm_eval_image_starts_a_program(module):
    """Its packages take a minute to be installed."""
    folder = built(LM_EVAL)
    words = [
        *closed_off(text("USER", LM_EVAL)),
        str(folder / "packages" / "bin" / "python"),
        "-m",
        module,
        "--help",
    ]
    done = subprocess.run(
        words,
        cwd="/",
        env=environment(folder, LM_EVAL),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
