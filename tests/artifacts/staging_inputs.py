"""Hubs that are none, and snapshots on disk, shared by the tests of staging."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager

import pytest
from doubles.loopback import answer_requests

from rehearsal.checkpoint import RandomCheckpoint

MODEL = "acme/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40
TOKEN = "hf_" + "Z9" * 17
EXTRAS = {
    "README.md": b"# a model\n",
    "pytorch_model.bin": b"\x80\x04pickle",
    "model.onnx": b"onnx",
    "picture.png": b"png",
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "modeling_tiny.py": b"print('code')\n",
    "original/consolidated.safetensors": b"0" * 64,
}


def snapshot(folder, *, extras=True, **shape):
    """A checkpoint of real format, with files beside it that no server reads."""
    RandomCheckpoint(**shape).write(folder)
    for name, body in EXTRAS.items() if extras else ():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return folder


def listing(siblings, sha=COMMIT, **more):
    """What a hub answers when it is asked for a model."""
    return json.dumps(
        {"id": MODEL, "sha": sha, "gated": False, "siblings": siblings, **more}
    ).encode()


@contextmanager
def plain_hub(answer):
    """A hub, at HF_ENDPOINT, that answers as it is told: called with the path and how often it was
    asked for."""
    counts = Counter()

    def reply(question):
        path = question.path.partition("?")[0]
        counts[path] += 1
        return answer(path, counts[path])

    with answer_requests(reply) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", url)
        yield
