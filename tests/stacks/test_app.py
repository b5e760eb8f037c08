"""The app as the CDK CLI runs it: context in, an assembly or plain faults out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from assemblies import ROOT
from shipped import copy_examples

import app

pytestmark = pytest.mark.cdk


def spoil(specs: Path, environment: str) -> None:
    path = specs / "environments" / f"{environment}.yaml"
    path.write_text(path.read_text().replace("nodes: 1", "nodes: none"))


def write_context(specs: Path, environment: str) -> str:
    return json.dumps(
        {
            "env": environment,
            "environments": f"{specs}/environments",
            "experiments": f"{specs}/experiments",
        }
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of an assembly of one environment, beside a broken one; Node is not on the
    PATH."""
    base = tmp_path_factory.mktemp("app")
    copy_examples(base)
    spoil(base, "native-us-east-2")
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "CDK_", "JSII_"))
    } | {
        "CDK_OUTDIR": "out",
        "CDK_VALIDATION": "false",
        "CDK_CONTEXT_JSON": write_context(base, "dev-trn2-3xlarge"),
        "PATH": "/nonexistent",
    }

    subprocess.run([sys.executable, str(ROOT / "app.py")], cwd=base, env=variables, check=True)

    return base / "out"


def test_named_environment_alone_is_built(built):
    assert [path.name for path in built.glob("assembly-*")] == ["assembly-dev-trn2-3xlarge"]


@pytest.mark.parametrize(
    ("environment", "fault"), [("dev-trn2-3xlarge", "capacity.nodes"), ("nowhere", "nowhere")]
)
def test_bad_input_is_refused_in_plain_words(specs, monkeypatch, capsys, environment, fault):
    spoil(specs, "dev-trn2-3xlarge")
    monkeypatch.setenv("CDK_CONTEXT_JSON", write_context(specs, environment))
    assert app.main([]) == 2
    assert fault in capsys.readouterr().err
