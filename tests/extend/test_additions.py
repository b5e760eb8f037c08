"""Each addition of docs/extend*.md is at most three files, and all together leave the suite green."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tracked_files import list_tracked

ROOT = Path(__file__).resolve().parents[2]
PAGES = "".join(page.read_text() for page in sorted((ROOT / "docs").glob("extend*.md")))
SECTIONS = re.findall(r"^## (.+?)$.*?^```diff\n(.*?)^```", PAGES, re.DOTALL | re.MULTILINE)
PATCHES = dict(SECTIONS)
KINDS = {
    "A model",
    "A runtime version",
    "A rule",
    "A field of the environment",
    "A variable and a volume of the servers",
    "A sidecar of the servers",
    "A metric of the bench",
    "A widget",
    "An alarm",
    "A resource of a stack",
    "A command",
    "A suite",
    "A metric shown in a chart",
    "An experiment of an environment",
    "An environment",
}
SIDECAR = "A sidecar of the servers"  # a rehearsal has no program for it
SHORT = {
    "A model": ["tests/declarations/test_catalogue.py"],
    "A rule": ["tests/rules/test_examples.py"],
    "A suite": [
        "tests/bench/suites/test_suite_load.py",
        "tests/simulator/test_variant_settings.py",
    ],
    "A metric shown in a chart": [
        "tests/monitoring/test_cost.py",
        "tests/monitoring/test_dashboards.py",
        "tests/report/test_page.py",
    ],
    "An experiment of an environment": [
        "tests/rules/test_judge.py",
        "tests/monitoring/test_cost.py",
        "tests/monitoring/test_alarms.py",
    ],
    "An environment": ["tests/rules/test_judge.py", "tests/monitoring/test_alarms.py"],
    "An alarm": ["tests/monitoring/test_guard_alarms.py"],
    "A variable and a volume of the servers": [
        "tests/charts/test_serve.py",
        "tests/charts/test_variants.py",
    ],
    SIDECAR: [
        "tests/charts/test_serve.py",
        "tests/charts/test_variants.py",
        "tests/charts/test_pod_security.py",
    ],
}


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def make_interpreter(folder: Path) -> None:
    """Give a copy a Python whose `tandem` is its own, in every process that it starts, and whose
    packages are ours."""
    venv.create(folder / ".venv", symlinks=True)
    own_packages = next((folder / ".venv/lib").glob("python3*")) / "site-packages"
    (own_packages / "copy.pth").write_text(f"{folder}\n{sysconfig.get_path('purelib')}\n")
    for program in Path(sys.executable).parent.iterdir():
        if (
            not program.name.startswith(("python", "tandem"))
            and not (folder / ".venv/bin" / program.name).exists()
        ):
            (folder / ".venv/bin" / program.name).symlink_to(program)
    script = folder / ".venv/bin/tandem"
    script.write_text(
        f"#!{folder}/.venv/bin/python\nimport sys\nfrom tandem.cli.program import"
        " main\nsys.exit(main())\n"
    )
    script.chmod(0o755)


def run_python(folder: Path, *arguments: str) -> None:
    result = run(folder, str(folder / ".venv/bin/python"), *arguments)
    assert result.returncode == 0, result.stdout[-4000:]


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its time, by which Python knows what it has compiled."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


@pytest.fixture
def copy(tmp_path):
    """The committed files, and what is changed of them, as a repository of its own."""
    folder = tmp_path / "copy"
    for name in list_tracked():
        copy_file(ROOT / name, folder / name)
        compiled = Path(importlib.util.cache_from_source(name))
        if name.endswith(".py") and (ROOT / compiled).exists():
            copy_file(ROOT / compiled, folder / compiled)
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    make_interpreter(folder)
    run(folder, "git", "init", "--quiet")
    run(folder, "git", "add", "--all")
    return folder


def apply_patch(folder: Path, kind: str) -> None:
    (folder.parent / "addition.patch").write_text(PATCHES[kind])
    result = run(folder, "git", "apply", "../addition.patch")
    assert result.returncode == 0, result.stdout
    run(folder, "git", "add", "--all")


def test_the_pages_have_every_kind_of_addition():
    assert set(PATCHES) == KINDS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_addition_is_at_most_three_files_by_hand(kind):
    files = {
        *re.findall(r"^\+\+\+ b/(.+)$", PATCHES[kind], re.MULTILINE),
        *re.findall(r"^diff .* b/(.+)$", PATCHES[kind], re.MULTILINE),
    }
    assert 1 <= len(files) <= 3


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_patch_fits_the_repository(kind):
    result = subprocess.run(
        ["git", "apply", "--check"],
        input=PATCHES[kind],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_additions_together_leave_their_tests_green(copy):
    for kind in SHORT:
        apply_patch(copy, kind)
    paths = sorted(set(itertools.chain.from_iterable(SHORT.values())))
    run_python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths)


@pytest.mark.proof
@pytest.mark.parametrize("kind", sorted(SHORT))
def test_an_addition_alone_leaves_its_tests_green(kind, copy):
    apply_patch(copy, kind)
    run_python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SHORT[kind])


@pytest.mark.proof
def test_a_rule_without_its_example_is_caught(copy, monkeypatch):
    rule, example, _ = PATCHES["A rule"].partition("--- a/tests/rules/examples.py\n")
    assert example
    monkeypatch.setitem(PATCHES, "A rule", rule)
    with pytest.raises(AssertionError):
        test_an_addition_alone_leaves_its_tests_green("A rule", copy)


@pytest.mark.proof
def test_additions_together_leave_the_whole_suite_green(copy, monkeypatch):
    for kind in sorted(KINDS - {SIDECAR}):
        apply_patch(copy, kind)
    run_python(copy, "docs/write_pages.py")
    run_python(copy, "-m", "tandem", "render")
    run_python(copy, "tests/frozen/freeze.py", "--write")
    golden = ("tests/cli/test_first_screens.py", "tests/publish/test_publish_measured.py")
    monkeypatch.setenv("TANDEM_GOLDEN", "write")
    run_python(copy, "-m", "pytest", "-q", *golden)
    monkeypatch.delenv("TANDEM_GOLDEN")
    run_python(copy, "tests/images/recipe.py", "tools")  # as `make test` does first
    run(copy, "git", "add", "--all")
    run_python(
        copy,
        "-m",
        "pytest",
        "-q",
        "-n",
        "3",
        "--dist",
        "loadgroup",
        "--no-loadscope-reorder",
        "--deselect",
        "tests/extend",
    )
