"""The three exits of `make audit`: the real pip-audit asks a server of this machine, npm is played
on PATH."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.loopback import Question, answer_requests

from supply import audit
from supply.lock_file import ROOT, LockedPackage, write_lock

KNOWN = {
    "id": "PYSEC-2026-1",
    "summary": "a flaw",
    "aliases": [],
    "affected": [
        {
            "package": {"name": "urllib3", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.8.0"}]}],
        }
    ],
}


def answer(question: Question) -> tuple[int, dict[str, str], bytes]:
    """Answer as OSV's query API, where urllib3 2.7.0 has a flaw and `broken` makes the server
    fail."""
    query = json.loads(question.body)
    is_flawed = (query["package"]["name"], query["version"]) == ("urllib3", "2.7.0")
    body = json.dumps({"vulns": [KNOWN]} if is_flawed else {}).encode()
    return 500 if query["package"]["name"] == "broken" else 200, {}, body


@pytest.fixture(scope="module")
def database():
    with answer_requests(answer) as url:
        yield f"{url}/v1/query"


def run(lock: Path, *words: str, proxy: str = "") -> subprocess.CompletedProcess[str]:
    variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(lock.parent),
        "NO_PROXY": "127.0.0.1",
        "HTTPS_PROXY": proxy,
    }
    return subprocess.run(
        [sys.executable, "-m", "supply.audit", str(lock), *words],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def lock(folder: Path, *pins: str) -> Path:
    path = folder / "requirements.txt"
    parts = [pin.split("==") for pin in pins]
    hashes = (f"sha256:{64 * 'a'}",)
    write_lock(
        path,
        "of a test",
        [LockedPackage(name=n, version=v, marker="", hashes=hashes) for n, v in parts],
    )
    return path


def test_zero_where_no_vulnerability_is_known(tmp_path, database):
    done = run(lock(tmp_path, "six==1.17.0", "urllib3==2.8.0"), "--osv-url", database)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "2 packages, 0 known vulnerabilities\n",
        "",
    )


def test_one_and_each_package_where_one_is_known(tmp_path, database):
    """Both versions of a package are asked for, and a local build by its public version."""
    done = run(
        lock(tmp_path, "six==1.17.0", "urllib3==2.8.0", "urllib3==2.7.0+cpu"), "--osv-url", database
    )
    assert (done.returncode, done.stdout.splitlines()) == (
        1,
        ["urllib3==2.7.0: PYSEC-2026-1, fixed in 2.8.0", "3 packages, 1 known vulnerabilities"],
    )


def test_three_and_a_sentence_where_the_index_does_not_answer(tmp_path):
    done = run(lock(tmp_path, "six==1.17.0"), proxy="http://127.0.0.1:9")
    [sentence] = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (3, "")
    assert sentence.startswith(
        "Not audited, the vulnerability database cannot be reached: of Python packages ("
    )


def test_three_where_the_index_has_no_answer_for_a_package(tmp_path, monkeypatch, capsys):
    """pip-audit ends with 0 there, as an index without its JSON API makes it do."""
    answer = {
        "dependencies": [{"name": name, "skip_reason": "not found"} for name in ("p", "q")],
        "fixes": [],
    }
    monkeypatch.setattr(audit, "PIP_AUDIT", program(tmp_path, "pip-audit", json.dumps(answer), 0))

    assert audit.main([str(lock(tmp_path, "six==1.17.0"))]) == audit.UNREACHABLE
    assert "(no answer for p, q)" in capsys.readouterr().err


def program(folder: Path, name: str, output: str, code: int) -> Path:
    """Write an executable that prints and ends."""
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return path


MINIMIST = {"range": "<1.2.6", "via": [{"url": "GHSA-xvch-5gv4-984h"}], "fixAvailable": True}


@pytest.mark.parametrize(
    ("output", "code", "lines"),
    [
        ({"vulnerabilities": {}}, 0, set()),
        (
            {"vulnerabilities": {"minimist": MINIMIST}},
            1,
            {"minimist@<1.2.6: GHSA-xvch-5gv4-984h, fix available: true"},
        ),
    ],
    ids=["none", "one"],
)
def test_what_npm_knows_is_told(tmp_path, monkeypatch, output, code, lines):
    monkeypatch.setenv(
        "PATH", str(program(tmp_path, "npm", json.dumps(output), code).parent), prepend=":"
    )
    assert audit.audit_npm() == lines


def test_an_answer_of_npm_without_a_list_is_no_answer(tmp_path, monkeypatch):
    npm = program(
        tmp_path, "npm", json.dumps({"message": "405 Method Not Allowed", "statusCode": 405}), 1
    )
    monkeypatch.setenv("PATH", str(npm.parent), prepend=":")
    with pytest.raises(audit.AuditError, match="405 Method Not Allowed"):
        audit.audit_npm()
