"""A disk that is full, truly: a limit of the process, and a small file system where this user may
mount one."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
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


@pytest.fixture(params=["limit", "mount"])
def small_disk(request, tmp_path):
    """A folder with room for 4 MiB, and what a process that is to feel it calls first.

    A limit on the size of a process's files works for everybody; a file system of that size takes
    the right to mount.
    """
    folder = tmp_path / "small"
    folder.mkdir()
    if request.param == "limit":
        yield folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))
        return
    mount = [shutil.which("mount") or "mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", folder]
    if (
        shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("this user may not mount; the limit shows the same")
    yield folder, None
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("size", [MIB, ROOM + MIB])
def test_what_fits_is_received_and_a_full_disk_is_told_with_the_file_and_leaves_none(
    store, aws, small_disk, size
):
    folder, limit = small_disk
    body = random.Random(0).randbytes(size)  # noqa: S311 - no secret
    store.client.put_object(Bucket=store.bucket, Key="k", Body=body)

    done = subprocess.run(
        [
            sys.executable,
            "-B",
            "-c",
            RECEIVE,
            store.bucket,
            str(folder / "w"),
            str(size),
            hashlib.sha256(body).hexdigest(),
        ],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **aws},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )

    last = json.loads(done.stdout.splitlines()[-1])
    if size == MIB:
        assert (done.returncode, (folder / "w").read_bytes() == body) == (0, True)
    else:
        assert (done.returncode, done.stderr, list(folder.iterdir())) == (3, "", [])
        assert (last["where"], last["event"].startswith("the disk is full")) == (
            str(folder / "w"),
            True,
        )
