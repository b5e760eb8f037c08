"""The commands of the bucket as real processes: each bad input ends with a code, a last line, and no traceback."""

from __future__ import annotations

import json

import pytest
from compiled import KEY, variables, write_artifact, write_outcome

pytestmark = pytest.mark.endpoint


@pytest.fixture
def said(module):
    """Run a command; its code, and its last line, after which nothing stands."""

    def act(*arguments, **environment):
        done = module(*arguments, **environment)
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    return act


def test_a_bucket_that_does_not_exist_is_told(said):
    code, line = said("verify", "--model", "o/n", "--revision", "main", "--bucket", "never-made")
    assert (code, line["exit_code"], line["event"][:25]) == (2, 2, "the bucket does not exist")


def test_an_upload_to_a_bucket_that_does_not_exist_is_told(said, tmp_path):
    folder, work = write_artifact(tmp_path / "artifact"), write_outcome(tmp_path / "work")
    asked = ("upload", "--bucket", "never-made", "--artifact", str(folder), "--work", str(work))
    code, line = said(*asked, **variables())
    assert (code, line["event"][:25]) == (2, "the bucket does not exist")


def test_an_upload_without_a_key_or_a_holder_is_told(said, bucket, tmp_path):
    asked = ("upload", "--bucket", bucket, "--artifact", str(tmp_path), "--work", str(tmp_path))
    nobody = {**variables(), "TANDEM_HOLDER": ""}
    assert said(*asked)[1]["event"] == "TANDEM_ARTIFACT_KEY is not set"
    assert said(*asked, **nobody)[1]["event"] == "TANDEM_HOLDER is not set"


@pytest.mark.parametrize(
    ("body", "event"),
    [(b'{"schema_version": 1, "k', "the manifest is cut off"), (b'{"schema_version": 7}', "the manifest has schema 7")],
    ids=["truncated", "newer"],
)
def test_a_manifest_that_cannot_be_read_is_told(said, store, body, event):
    store.create(f"{KEY.prefix}/tandem-manifest.json", body)
    code, line = said("verify", "--bucket", store.bucket, "--artifact", KEY.name)
    assert (code, line["event"].startswith(event)) == (2, True)
    assert line["where"] == f"s3://{store.bucket}/{KEY.prefix}/tandem-manifest.json"


def test_no_credentials_are_told(said, bucket):
    without = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}
    code, line = said("list", "--bucket", bucket, **without)
    assert (code, line["event"].startswith("there are no AWS credentials")) == (3, True)
    assert "Pod Identity association" in line["change"]
