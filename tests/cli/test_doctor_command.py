"""`tandem doctor` as it is typed."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from artifact_fixtures import variables
from bucket_specs import folders
from local_endpoint import ACCOUNT

from tandem.cli.program import main
from tandem.ops.doctor.context import RegistryError

ROOT = Path(__file__).resolve().parents[2]
POST = "post-us-east-2"


@dataclass(frozen=True)
class Ran:
    """One run of the command."""

    code: int
    out: str


def silent(reference: str, *_: object) -> str:
    raise RegistryError(f"{reference}: no route")


@pytest.fixture(scope="module")
def session():
    """A session for all: its clients take seconds to be made first, and moments after."""
    return boto3.Session(aws_access_key_id=ACCOUNT, aws_secret_access_key="local")  # noqa: S106 - any will do


@pytest.fixture(autouse=True)
def alone(monkeypatch, session):
    monkeypatch.setattr("tandem.cli.image_digests.resolve_digest", silent)
    monkeypatch.setattr("tandem.ops.account.create_session", lambda: session)


def run(specs: Path, *more: str) -> int:
    return main(["doctor", *folders(specs), *more])


@pytest.fixture(scope="module")
def ran(endpoint, session, tmp_path_factory):
    """A committed environment examined, as text and as JSON."""
    results = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables(
            endpoint, endpoint.url, tmp_path_factory.mktemp("home")
        ).items():
            patch.setenv(name, value)
        patch.setattr("tandem.cli.image_digests.resolve_digest", silent)
        patch.setattr("tandem.ops.account.create_session", lambda: session)
        for key, arguments in {
            "json": (POST, "--json"),
            "brief": (POST,),
            POST: (POST, "--verbose"),
        }.items():
            with contextlib.redirect_stdout(io.StringIO()) as out:
                results[key] = Ran(run(ROOT, "--env", *arguments), out.getvalue())
    return results


def test_a_committed_example_fails_as_bad_input(ran):
    assert ran[POST].code == 2
    assert "account is 111122223333, a placeholder" in ran[POST].out


def test_what_is_ok_stands_behind_verbose(ran):
    assert "  ok  " in ran[POST].out
    assert "  ok  " not in ran["brief"].out


def test_the_first_line_has_the_counts_and_the_exit_code(ran):
    first = ran["brief"].out.splitlines()[0]
    assert first.startswith("post-us-east-2: ")
    counts = json.loads(ran["json"].out)["counts"]
    assert first.endswith(f" {counts['fail']} fail, {counts['unknown']} unknown; exit code 2")


def test_json_has_the_same_facts(ran):
    text = " ".join(ran[POST].out.split())
    document = json.loads(ran["json"].out)
    assert document["exit_code"] == ran[POST].code
    assert [line["message"] for line in document["lines"] if line["message"] not in text] == []
    assert (
        sum(document["counts"].values()) == len(document["lines"]) + document["counts"]["skipped"]
    )


def test_without_credentials_the_other_checks_are_skipped(specs, monkeypatch, capsys):
    monkeypatch.setattr("tandem.ops.account.create_session", boto3.Session)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    file = specs / "environments/post-us-east-2.yaml"
    ours = (
        file.read_text()
        .replace("111122223333", "222233334444")
        .replace("cr-00000000000000000", "null")
    )
    file.write_text(ours)

    assert run(specs, "--env", "post-us-east-2") == 3
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith(
        " checks skipped: no credentials for account 222233334444; set AWS_PROFILE"
    )


def test_the_policy_is_printed_without_asking_anybody(specs, monkeypatch, capsys):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert run(specs, "--env", "post-us-east-2", "--policy") == 0
    assert json.loads(capsys.readouterr().out)["Version"] == "2012-10-17"
