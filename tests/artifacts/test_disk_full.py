"""A disk that is full, by a limit on the size of a process's files."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.endpoint
MIB = 1 << 20
ROOM = 4 * MIB
ROOT = Path(__file__).resolve().parents[2]
RECEIVE = """
import sys
from pathlib import Path
from tandem.errors import TandemError
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.manifest import ManifestFile
from tandem.artifacts.s3_transfer import download_object
from tandem.artifacts.store import open_store

bucket, path, size, sha256 = sys.argv[1:]
try:
    download_object(open_store(bucket), "k", Path(path), ManifestFile(path="w", size=int(size), sha256=sha256))
except TandemError as error:
    log_event(error.problem, where=error.where)
    sys.exit(error.exit_code)
"""


def test_full_disk_leaves_no_file(store, aws, tmp_path):
    body = random.Random(0).randbytes(ROOM + MIB)  # noqa: S311 - no secret
    store.client.put_object(Bucket=store.bucket, Key="k", Body=body)
    path = tmp_path / "small" / "w"
    arguments = [store.bucket, str(path), str(len(body)), hashlib.sha256(body).hexdigest()]

    done = subprocess.run(
        [sys.executable, "-B", "-c", RECEIVE, *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **aws},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM)),
    )

    last = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, done.stderr, list(path.parent.iterdir())) == (3, "", [])
    assert last["where"] == str(path)
    assert last["event"].startswith("the disk is full")
