"""The public surface of tandem.bench and tandem.judge: its names, its examples and its page."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import example_verdict
import pytest
from doubles.simulator_thread import SimulatorThread

import tandem.bench
import tandem.judge
from tandem.bench import RunOptions
from tandem.cli.bench_flags import RunFlags
from tandem.simulator.settings import SimulatorSettings

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "library.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
PACKAGES = (tandem.bench, tandem.judge)
ERRORS = {
    f"tandem.errors.{name}"
    for name in ("TandemError", "InputError", "SchemaError", "ExternalError")
}
SLOW_MODULES = ("aiohttp", "numpy", "scipy", "uvloop")
MODEL = "Qwen/Qwen3-32B"
CLASSES = {"repeat": 3.1, "open": 1.0}
TUESDAY_CLASSES = {"repeat": 4.0, "open": 1.0}
# parameters of the function, or of servers inside a cluster, or of the command alone
FLAGS_WITHOUT_OPTION = {
    "--out",
    "--resume",
    "--env",
    "--experiment",
    "--variants",
    "--publish",
    "--simulated",
    "--recorded",
}


def list_public_objects() -> list[tuple[str, Any]]:
    return [
        (f"{package.__name__}.{name}", getattr(package, name))
        for package in PACKAGES
        for name in package.__all__
    ]


@pytest.fixture(scope="module")
def urls():
    """Two simulated servers, the second twice as fast."""
    settings = SimulatorSettings(
        model=MODEL, step_ms=(0.4,), prefill_base_ms=2.0, prefill_ms_per_token=0.0
    )
    with SimulatorThread(settings) as plain, SimulatorThread(settings.scale_time(2)) as draft:
        yield {"plain_url": plain.url, "draft_url": draft.url}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, with the runs of two days."""
    example_verdict.run(tmp_path / "monday", classes=CLASSES)
    tuesday = example_verdict.run(tmp_path / "tuesday", classes=TUESDAY_CLASSES)
    manifest = json.loads((tuesday / "manifest.json").read_text())
    (tuesday / "manifest.json").write_text(
        json.dumps(manifest | {"created_utc": "2026-11-24T08:00:00.000+00:00"})
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


PUBLIC_OBJECTS = list_public_objects()
NAMES = [name for name, _ in PUBLIC_OBJECTS]


@pytest.mark.parametrize(("name", "value"), PUBLIC_OBJECTS, ids=NAMES)
@pytest.mark.usefixtures("folder")
def test_the_examples_of_a_public_name_print_what_they_say(name, value, urls):
    module = importlib.import_module(value.__module__)
    options = RunOptions(
        servers={"plain": urls["plain_url"]},
        model=MODEL,
        classes=("chat",),
        max_tokens=4,
        rounds=1,
        control_rounds=0,
    )
    runner = doctest.DocTestRunner()

    for example in doctest.DocTestFinder().find(
        value, name, module=module, extraglobs={**urls, "options": options}
    ):
        runner.run(example)

    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_a_package_has_its_public_names_and_no_other(package):
    assert dir(package) == package.__all__
    with pytest.raises(
        AttributeError, match=f"module '{package.__name__}' has no attribute 'judge_all'"
    ):
        _ = package.judge_all


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_the_import_of_a_package_loads_nothing_that_is_slow(package):
    code = (
        f"import sys, {package.__name__}; print([name for name in {SLOW_MODULES} if name in"
        " sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_page_has_each_public_name_once():
    rows = re.findall(r"^\| (`tandem\..*?) \|", PAGE, flags=re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert sorted(names) == sorted([*NAMES, *ERRORS])


def test_the_page_has_the_flag_of_each_option():
    rows = re.findall(r"^\| `(\w+)` \| (`--.*?) \|$", PAGE, flags=re.MULTILINE)
    flags = {flag for _, cell in rows for flag in re.findall(r"`([\w-]+)`", cell)}

    options = {entry.name for entry in fields(RunOptions)}
    assert {option for option, _ in rows} == options
    assert flags | FLAGS_WITHOUT_OPTION == {
        f"--{entry.name.replace('_', '-')}" for entry in fields(RunFlags)
    }


def test_a_user_runs_every_snippet_of_the_page(tmp_path):
    program = tmp_path / "page.py"
    # the page's run takes half a minute even of simulated servers, and this test holds no figure
    program.write_text(
        "\n".join(SNIPPETS).replace(
            'size="quick"', 'size="quick", prompts_per_class=1, max_tokens=32'
        )
    )
    home = tmp_path / "home"
    home.mkdir()
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    simulate = [
        sys.executable,
        "-m",
        "tandem",
        "simulate",
        "--experiment",
        "post",
        "--time-scale",
        "100",
        "--",
    ]
    measure = [sys.executable, str(program), "{qwen-vllm}", "{qwen-sd-vllm}"]

    done = subprocess.run(
        [*simulate, *measure],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    *_, fault = done.stdout.splitlines()
    assert fault.startswith("it exists already")
    assert "repetition  draft" in done.stdout
