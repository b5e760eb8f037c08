"""The distribution: what is in it, and what its commands do where nothing else of the checkout is
installed."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from declared_environments import NAMES
from light_installation import (
    WITH_NEW,
    build_distribution,
    build_variables,
    create_environment,
)
from tracked_files import list_tracked

from supply.lock_file import DISTRIBUTION, ROOT, normalize_name
from tandem.cli.program import EXTRAS
from tandem.declarations.checkout import (
    BUILT_IN_EXPERIMENT,
    CHECKOUT_EXPERIMENT,
    PACKAGE_EXPERIMENT,
    PACKAGE_IMAGES,
)
from tandem.declarations.project_image import PROJECT_IMAGES

Run = Callable[..., "subprocess.CompletedProcess[str]"]
HEAVY_MODULES = (
    "aws_cdk",
    "boto3",
    "botocore",
    "cdk8s",
    "cdk8s_plus_36",
    "charts",
    "constructs",
    "jsii",
    "rehearsal",
    "stacks",
)
SLOW_MODULES = ("aiohttp", "jsii", "numpy", "scipy")
FOLDERS = (
    "--environments",
    str(ROOT / "tests/environments"),
    "--experiments",
    str(ROOT / "experiments"),
)


@pytest.fixture(scope="module")
def distribution(tmp_path_factory):
    return build_distribution(tmp_path_factory.mktemp("distribution"))


@pytest.fixture(scope="module")
def programs(distribution, tmp_path_factory):
    return create_environment(tmp_path_factory.mktemp("light") / "venv", distribution.wheel)


@pytest.fixture
def run(programs, tmp_path):
    """A program of the light installation, called in an empty folder with an empty home."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        program = [str(programs / words[0]), *words[1:]]
        variables = build_variables(programs, home)
        return subprocess.run(
            program, cwd=work, env=variables, capture_output=True, text=True, check=False
        )

    return call


def list_package_files() -> set[str]:
    """The tracked files of the package, and what the build adds."""
    return {*list_tracked(*WITH_NEW, "tandem"), PACKAGE_EXPERIMENT, PACKAGE_IMAGES}


def read_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name
        }


def test_the_wheel_has_the_package_with_its_data_and_nothing_else(distribution):
    assert set(read_wheel(distribution.wheel)) == list_package_files()


def test_a_wheel_of_the_sdist_has_the_same_bytes(distribution):
    assert read_wheel(distribution.second_wheel) == read_wheel(distribution.wheel)


def test_the_wheel_knows_the_images_of_its_checkout(distribution):
    images = json.loads(read_wheel(distribution.wheel)[PACKAGE_IMAGES])
    assert {name: image["tag"] for name, image in images.items()} == {
        image.name: image.tag() for image in PROJECT_IMAGES
    }


def test_the_wheel_has_the_experiment_of_its_checkout(distribution):
    assert (
        read_wheel(distribution.wheel)[PACKAGE_EXPERIMENT]
        == (ROOT / CHECKOUT_EXPERIMENT).read_bytes()
    )
    assert Path(CHECKOUT_EXPERIMENT).stem == BUILT_IN_EXPERIMENT


def test_the_light_installation_has_no_client_of_aws_and_no_node(run):
    code = (
        "from importlib.util import find_spec; import tandem; "
        f"print([name for name in {('tandem', *HEAVY_MODULES)} if find_spec(name)])"
    )
    assert run("python", "-c", code).stdout == "['tandem']\n"


def test_help_loads_nothing_that_is_slow(run):
    code = (
        "import sys; from tandem.cli.program import main; main(['--help']); "
        f"print([name for name in {SLOW_MODULES} if name in sys.modules])"
    )
    assert run("python", "-c", code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "exit_code", "answer"),
    [
        (("--help",), 0, "Measure any server"),
        (("--version",), 0, "0.1.0"),
        (("simulate", "--experiment", "post", "--write", "knobs"), 0, "knobs/qwen-sd-vllm.yaml"),
        (("simulate", "--experiment", "pots"), 2, "allowed post"),
        (
            ("plan", "post"),
            0,
            "price unknown: no environment is named, so the node is taken to be a trn2.48xlarge",
        ),
        (("plan", "post", "--page", "plan.html"), 0, "plan.html"),
        (
            ("migrate", "post", "--runtime", "native", "--write"),
            0,
            "wrote experiments/post-native.yaml",
        ),
        (("new", "mine"), 0, "wrote environments/mine.yaml"),
        (("check", *NAMES, *FOLDERS), 0, "2 environments"),
        (("show", "customer-keys", *FOLDERS), 0, "tandem-customer-keys-tools:"),
        (("images", "customer-keys", *FOLDERS), 0, "docker/library/python:"),
        (("bench", "report", "gone"), 2, "gone/manifest.json"),
        (("bench", "verify", "gone", "--log", "gone"), 2, "gone"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_a_light_command_answers(words, exit_code, answer, run):
    done = run("tandem", *words)
    assert (done.returncode, "Traceback" in done.stderr) == (exit_code, False), done.stderr
    assert answer in " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    "words",
    [
        ("artifacts", "list", "--env", "mine"),
        ("help", "status"),
        ("run", "mine", "--env", "mine", "--hours", "1"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_that_calls_an_account_names_its_extra_in_one_line(words, run):
    done = run("tandem", *words)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: this command needs ")
    assert line.endswith(", of the extra aws: in the checkout, pip install '.[aws]'")


@pytest.mark.parametrize("words", [("render",), ("images", "--resolve")], ids=" ".join)
def test_a_command_that_needs_the_checkout_says_so(words, run):
    done = run("tandem", *words)
    assert (done.returncode, done.stdout) == (2, "")
    problem = f"error: `tandem {' '.join(words)}` needs a checkout of the repository"
    assert done.stderr.splitlines()[0] == problem


def test_two_urls_become_a_verdict_and_a_report(run, tmp_path):
    measure = (
        "tandem",
        "bench",
        "run",
        "--quick",
        "--baseline",
        "{qwen-vllm}",
        "--variant",
        "{qwen-sd-vllm}",
    )
    size = ("--prompts-per-class", "1", "--max-tokens", "32")
    options = ("--model", "Qwen/Qwen3-32B", "--classes", "repetition", *size, "--out", "try")

    measured_process = run(
        "tandem",
        "simulate",
        "--experiment",
        "post",
        "--time-scale",
        "100",
        "--",
        *measure,
        *options,
    )
    reported_process = run("tandem", "bench", "report", "try")

    # 4: a control failed, as on a busy machine
    assert measured_process.returncode in {0, 4}, measured_process.stderr
    assert reported_process.returncode == measured_process.returncode
    assert reported_process.stdout.splitlines()[-1] == "try/report.html"
    verdict = json.loads((tmp_path / "work/try/verdict.json").read_text())
    assert len(verdict["headlines"]) == 1
    assert "<svg" in (tmp_path / "work/try/report.html").read_text()


def test_each_package_of_an_extra_that_a_command_needs_is_known_by_its_module():
    extras = tomllib.loads((ROOT / DISTRIBUTION).read_text())["project"]["optional-dependencies"]
    modules = importlib.metadata.packages_distributions()
    for module, extra in EXTRAS.items():
        brought_by = {normalize_name(name) for name in modules[module]}
        declared_normalize_names = {
            normalize_name(requirement.partition(">")[0]) for requirement in extras[extra]
        }
        if "boto3" in declared_normalize_names:
            declared_normalize_names |= {"botocore", "s3transfer"}
        assert brought_by & declared_normalize_names, module
