"""One byte is flipped in a stored file, at a random place; `verify` reads every byte and names that
file alone."""

from __future__ import annotations

import json

import pytest
from compiled import KEY, variables, write_artifact, write_outcome

from tandem.artifacts.__main__ import main
from tandem.artifacts.manifest import read_stored_manifest

pytestmark = pytest.mark.proof
MIB = 1 << 20

FLIPS = 20


@pytest.fixture
def stored(store, tmp_path, monkeypatch, capsys):
    for name, value in variables().items():
        monkeypatch.setenv(name, value)
    write_artifact(tmp_path / "artifact", rank_bytes=20 * MIB)
    work = write_outcome(tmp_path / "work")
    requests = [
        "upload",
        "--bucket",
        store.bucket,
        "--artifact",
        str(tmp_path / "artifact"),
        "--work",
        str(work),
    ]
    assert main(requests) == 0
    capsys.readouterr()
    manifest = read_stored_manifest(store, KEY.prefix)
    return [f"{KEY.prefix}/{manifest.folder}/{file.path}" for file in manifest.files]


def test_a_flipped_byte_is_found_wherever_it_is(store, stored, chance, report, capsys):
    flips = 0
    for key in stored:
        body = store.read(key).body
        head = store.head(key)
        marks = {"sha256": head.sha256}
        for _ in range(FLIPS):
            spoilt = bytearray(body)
            spoilt[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
            store.client.put_object(
                Bucket=store.bucket, Key=key, Body=bytes(spoilt), Metadata=marks
            )
            code = main(["verify", "--bucket", store.bucket, "--artifact", KEY.name])
            lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            wrong = [
                line["where"] for line in lines if line["level"] == "error" and "where" in line
            ]
            assert (code, wrong) == (1, [store.url(key)])
            flips += 1
        store.client.put_object(Bucket=store.bucket, Key=key, Body=body, Metadata=marks)

    report(files=len(stored), flips=flips, found=flips)
