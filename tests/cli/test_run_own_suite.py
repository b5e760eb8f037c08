"""`tandem run` of an experiment that asks a file of prompts, which the bucket has."""

from __future__ import annotations

import hashlib
import json

import pytest
import yaml
from run_records import fill_bucket, tandem

from tandem.artifacts.store import ObjectStore
from tandem.artifacts.suite_store import store_suite

pytestmark = [pytest.mark.endpoint, pytest.mark.usefixtures("quick")]
PLAN = ("--hours", "6", "--dry-run", "--json")


@pytest.fixture
def support(fleet, tmp_path, monkeypatch):
    """A fleet whose bucket has all but the one file that its experiment asks; return the file."""
    monkeypatch.setattr("tandem.cli.run_draft.RUN_CHECKS", frozenset({"suites"}))
    file = tmp_path / "support.txt"
    file.write_text("Why is the sky blue?\nHow deep is the sea?\n")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    path = fleet.specs / "experiments" / "post.yaml"
    experiment = yaml.safe_load(path.read_text()) | {"claims": "none"}
    experiment["suites"] = [{"file": "prompts/support.txt", "sha256": sha256}]
    path.write_text(yaml.safe_dump(experiment))
    fill_bucket(fleet)
    return file


@pytest.mark.usefixtures("support")
def test_a_file_that_is_not_stored_refuses_the_run(fleet, capsys):
    assert tandem(fleet, "run post", *PLAN) == 2
    document = json.loads(capsys.readouterr().out)
    (refusal, *_) = document["refusals"]
    assert refusal["where"] == "doctor: suites"
    assert "the bucket has no file of this digest" in refusal["problem"]


def test_a_stored_file_is_planned_as_it_is(fleet, support, capsys):
    store = ObjectStore(fleet.guarded.bucket, fleet.client("s3"))
    store_suite(store, support.name, support.read_bytes())
    assert tandem(fleet, "run post", *PLAN) == 0
    document = json.loads(capsys.readouterr().out)
    (step,) = [step for step in document["steps"] if step["step"] == "round-00001"]
    assert (document["uncounted"], step["minutes"] > 3) == ([], True)
