"""The app as the CDK CLI runs it: context in, an assembly or plain faults out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from assemblies import ROOT
from shipped import copy_shipped

pytestmark = pytest.mark.cdk


def run(out: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "CDK_", "JSII_"))
    }
    environment = {**kept, "CDK_OUTDIR": str(out), "CDK_VALIDATION": "false", **variables}
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py"), *arguments],
        cwd=out.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def spoil(specs: Path, old: str, new: str) -> Path:
    path = specs / "environments" / "dev-trn2-3xlarge.yaml"
    path.write_text(path.read_text().replace(old, new))
    return specs


def folders(specs: Path) -> list[str]:
    return ["-c", f"environments={specs}/environments", "-c", f"experiments={specs}/experiments"]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One environment, chosen as the CLI hands context over, beside a broken one; no Node of the
    machine's own."""
    base = tmp_path_factory.mktemp("app")
    specs = base / "specs"
    copy_shipped(specs)
    broken = specs / "environments" / "native-us-east-2.yaml"
    broken.write_text(broken.read_text().replace("nodes: 1", "nodes: none"))
    context = {
        "env": "dev-trn2-3xlarge",
        "environments": f"{specs}/environments",
        "experiments": f"{specs}/experiments",
    }
    done = run(base / "out", CDK_CONTEXT_JSON=json.dumps(context), PATH="/nonexistent")
    return base / "out", done


def test_one_environment_is_built_when_one_is_named(
    one: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, done = one
    assert done.returncode == 0, done.stderr
    assert [path.name for path in out.glob("assembly-*")] == ["assembly-dev-trn2-3xlarge"]
    assert "warnings: `tandem check` lists them" in done.stderr


def test_cdk_json_has_each_flag_that_the_cli_asks_for_and_no_other(
    one: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """The CLI warns of a flag that is not set and whose default is not what the CDK recommends, and
    of a key `aws:`."""
    out, _ = one
    artifacts = json.loads((out / "manifest.json").read_text())["artifacts"].values()
    (report,) = [
        artifact for artifact in artifacts if artifact["type"] == "cdk:feature-flag-report"
    ]
    defaults = {
        name: flag.get("unconfiguredBehavesLike", {}).get("v2", False)
        for name, flag in report["properties"]["flags"].items()
    }
    asked = {
        name
        for name, flag in report["properties"]["flags"].items()
        if defaults[name] != flag["recommendedValue"]
    }

    assert set(json.loads((ROOT / "cdk.json").read_text())["context"]) == asked


def test_bad_input_is_refused_in_plain_words(specs: Path) -> None:
    done = run(specs / "out", *folders(spoil(specs, "nodes: 1", "nodes: none")))
    assert done.returncode == 2
    assert "capacity.nodes" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_environment_is_refused(specs: Path) -> None:
    done = run(specs / "out", *folders(specs), "-c", "env=nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
