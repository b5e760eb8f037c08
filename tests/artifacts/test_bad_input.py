"""The commands of the bucket as real processes: each bad input ends with a code, a last line, and
no traceback."""

from __future__ import annotations

import json

import pytest

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


def test_no_credentials_are_told(said, bucket):
    without = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    code, line = said("collect", "--used", "a", "--bucket", bucket, **without)
    assert (code, line["event"].startswith("there are no AWS credentials")) == (3, True)
    assert "Pod Identity association" in line["change"]
