"""The app as the CDK CLI runs it: context in, an assembly or plain faults out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from assemblies import ROOT

pytestmark = pytest.mark.cdk


def run(out: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_", "JSII_"))}
    environment = {**kept, "CDK_OUTDIR": str(out), "CDK_VALIDATION": "false", **variables}
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py"), *arguments], cwd=out.parent, env=environment, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip


def spoil(specs: Path, old: str, new: str) -> Path:
    path = specs / "environments" / "dev-trn2-3xlarge.yaml"
    path.write_text(path.read_text().replace(old, new))
    return specs


def folders(specs: Path) -> list[str]:
    return ["-c", f"environments={specs}/environments", "-c", f"experiments={specs}/experiments"]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One environment, chosen as the CLI hands context over; no Node or credentials of the machine's own."""
    base = tmp_path_factory.mktemp("app")
    specs = base / "specs"
    shutil.copytree(ROOT / "environments", specs / "environments")
    shutil.copytree(ROOT / "experiments", specs / "experiments")
    context = {
        "env": "dev-trn2-3xlarge",
        "environments": f"{specs}/environments",
        "experiments": f"{specs}/experiments",
    }
    done = run(base / "out", CDK_CONTEXT_JSON=json.dumps(context), PATH="/nonexistent")
    return base / "out", done


def test_one_environment_is_built_when_one_is_named(one: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, done = one

    assert done.returncode == 0, done.stderr
    assert [path.name for path in out.glob("assembly-*")] == ["assembly-dev-trn2-3xlarge"]


def test_no_node_of_the_system_is_needed(one: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """The fixture runs without PATH."""
    assert (one[0] / "manifest.json").is_file()


def test_warnings_are_told(one: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    assert "warnings: `tandem check` lists them" in one[1].stderr


def test_bad_input_is_refused_in_plain_words(specs: Path) -> None:
    done = run(specs / "out", *folders(spoil(specs, "nodes: 1", "nodes: none")))

    assert done.returncode == 2
    assert "capacity.nodes" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_fault_is_told_at_once(specs: Path) -> None:
    spoil(specs, "nodes: 1", "nodes: none")

    done = run(specs / "out", *folders(spoil(specs, "max_hours: 4", "max_hours: 0")))

    assert all(path in done.stderr for path in ("capacity.nodes", "guard.max_hours"))


def test_a_broken_rule_is_refused_before_anything_is_built(specs: Path) -> None:
    done = run(specs / "out", *folders(spoil(specs, "zone: apse4-az3", "zone: use2-az3")))

    assert done.returncode == 2
    assert not (specs / "out").exists()


def test_an_unknown_environment_is_refused(specs: Path) -> None:
    done = run(specs / "out", *folders(specs), "-c", "env=nowhere")

    assert done.returncode == 2
    assert "nowhere" in done.stderr


def test_a_broken_file_beside_the_named_environment_does_not_matter(specs: Path) -> None:
    spoil(specs, "nodes: 1", "nodes: none")

    done = run(specs / "out", *folders(specs), "-c", "env=native-us-east-2")

    assert done.returncode == 0, done.stderr


def test_a_node_of_the_users_own_choice_is_kept() -> None:
    code = "import _node, os; print(os.environ['JSII_NODE'])"
    chosen = {**os.environ, "JSII_NODE": "/opt/node"}

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=chosen, capture_output=True, text=True, check=True
    )

    assert done.stdout == "/opt/node\n"
