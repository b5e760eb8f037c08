"""What each server of `tandem bench run` is sent of its own, over HTTP: keys, headers, fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_cli import without_page
from independent_server import Schedule

from tandem.cli.program import main

KEY_A = "key-of-server-a-0001"
KEY_B = "key-of-server-b-0002"
LONG_KEY = "hf_QwErTyUiOpAsDfGhJkLzXcVbNm123456"


@pytest.fixture(autouse=True)
def _keys(monkeypatch, servers):
    """Two keys, a page that costs nothing, and servers that remember nothing."""
    monkeypatch.setenv("KEY_A", KEY_A)
    monkeypatch.setenv("KEY_B", f"{KEY_B}\n")
    for server in servers.servers:
        server.truths.clear()
    with without_page():
        yield


def measure(servers, tmp_path, *flags: str, out: str = "out") -> int:
    command = servers.flags(tmp_path, {"code": ["a", "b"]}, *flags)
    return main([*command, "--out", str(tmp_path / out)])


def list_values(server, header: str) -> set[str | None]:
    """The values of a header in all requests of a server."""
    return {truth["headers"].get(header) for truth in server.posted}


def read_files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_each_server_gets_its_own_key_and_no_other(servers, tmp_path, capsys):
    code = measure(servers, tmp_path, "--api-key-env", "a=KEY_A", "b=KEY_B")
    screen = "".join(capsys.readouterr())

    first, second = servers.servers
    assert code == 0
    assert list_values(first, "authorization") == {f"Bearer {KEY_A}"}
    assert list_values(second, "authorization") == {f"Bearer {KEY_B}"}
    written = read_files(tmp_path / "out") + screen.encode()
    assert not [key for key in (KEY_A, KEY_B) if key.encode() in written]


def test_two_keys_of_one_server_are_refused(servers, tmp_path, capsys):
    code = measure(servers, tmp_path, "--api-key-env", "a=KEY_A", "a=KEY_B")
    assert (code, "two --api-key-env of a" in capsys.readouterr().err) == (2, True)


def test_a_header_for_all_goes_to_two_addresses_with_a_note(servers, tmp_path, capsys):
    assert measure(servers, tmp_path, "--header", "X-Api-Key:env:KEY_A", "x-app:mine") == 0
    assert [list_values(server, "x-api-key") for server in servers.servers] == [{KEY_A}] * 2
    notes = [line for line in capsys.readouterr().err.splitlines() if "several addresses" in line]
    assert [note.partition(":")[2].split(":")[0].split()[-1] for note in notes] == ["x-api-key"]


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--api-key-env", LONG_KEY),
        ("--api-key-env", "sk-ant-0123-abcdef"),
        ("--api-key-env", "a=sk_live_abcdef"),
        ("--api-key-env", f"{LONG_KEY}=KEY_A"),
        ("--header", LONG_KEY),
        ("--header", f"x-api-key:env:{LONG_KEY}"),
        ("--header", f"x-api-key:{LONG_KEY}\x01"),
    ],
)
def test_what_may_be_a_key_is_not_echoed(servers, tmp_path, capsys, flag, text):
    code = measure(servers, tmp_path, flag, text)
    screen = "".join(capsys.readouterr())
    parts = (LONG_KEY, "sk-ant-0123", "sk_live")
    assert (code, [part for part in parts if part in screen]) == (2, [])


def test_a_header_of_one_server_is_recorded_by_name_alone(servers, tmp_path, capsys):
    flags = ("--header", "b=api-key:env:KEY_B", "a=Authorization:Basic dXNlcjpwYXNz==")
    assert measure(servers, tmp_path, *flags) == 0

    first, second = servers.servers
    assert list_values(first, "authorization") == {"Basic dXNlcjpwYXNz=="}
    assert list_values(second, "api-key") == {KEY_B}
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [arm["headers"] for arm in manifest["arms"]] == [["Authorization"], ["api-key"]]
    written = read_files(tmp_path / "out") + "".join(capsys.readouterr()).encode()
    assert not [text for text in (KEY_B, "dXNlcjpwYXNz") if text.encode() in written]


def test_a_resumed_run_reads_the_headers_again(servers, tmp_path, monkeypatch, capsys):
    assert measure(servers, tmp_path, "--header", "a=api-key:env:KEY_A", "b=x-app:mine") == 0
    records = tmp_path / "out" / "records.jsonl"
    records.write_bytes(b"".join(records.read_bytes().splitlines(keepends=True)[:2]))
    servers.forget()
    monkeypatch.setenv("KEY_A", "another-key-of-a")
    resume = ["bench", "run", "--resume", str(tmp_path / "out")]

    assert main(resume) == 2
    error = capsys.readouterr().err
    assert (
        "no value of b=x-app\n  change   give each --header again: --header b=x-app:VALUE" in error
    )
    assert main([*resume, "--header", "a=api-key:env:KEY_A", "b=x-app:mine"]) == 0
    assert list_values(servers.servers[0], "api-key") == {"another-key-of-a"}


def test_a_key_that_a_server_repeats_in_two_reads_is_hidden(servers, tmp_path, capsys):
    first, second = servers.servers
    pieces = (f'data: {{"error": {{"message": "bad key {KEY_A[:7]}', f'{KEY_A[7:]}"}}}}\n\n')
    first.default = Schedule(raw=tuple(piece.encode().hex() for piece in pieces), pause_ms=20)
    code = measure(servers, tmp_path, "--api-key-env", "a=KEY_A")
    first.default = second.default
    error = capsys.readouterr().err
    assert (code, KEY_A in error, "bad key [hidden]" in error) == (3, False, True)


def test_each_server_gets_its_own_fields(servers, tmp_path):
    flags = ("--extra-body", '{"top_p": 0.9}', 'b={"top_p": 0.5}', "--leave-out", "a=seed")
    assert measure(servers, tmp_path, *flags) == 0

    bodies = [
        [truth["body"] for truth in server.posted if not truth["request_id"].startswith("probe-")]
        for server in servers.servers
    ]
    assert {body["top_p"] for body in bodies[0]} == {0.9}
    assert {body["top_p"] for body in bodies[1]} == {0.5}
    assert not any("seed" in body for body in bodies[0])
    assert all("seed" in body for body in bodies[1])
    notes = json.loads((tmp_path / "out" / "manifest.json").read_text())["notes"]
    assert "the arms are not sent the same top_p (--extra-body): their requests differ" in notes
    assert "a is not sent seed: its server's defaults count" in notes


def test_quality_takes_keys_too_and_sends_the_runs_fields(servers, tmp_path):
    assert measure(servers, tmp_path, "--extra-body", '{"top_p": 0.9}', "--ignore-eos") == 0
    servers.forget()
    items = tmp_path / "sums.jsonl"
    items.write_text('{"item": "sum", "prompt": "What is 1 + 1?", "answer": "2"}')
    command = ["bench", "quality", str(tmp_path / "out"), "--items", str(items)]

    assert main([*command, "--api-key-env", "a=KEY_A", "--header", "b=x-key:env:KEY_B"]) == 0
    first, second = servers.servers
    assert list_values(first, "authorization") == {f"Bearer {KEY_A}"}
    assert list_values(second, "x-key") == {KEY_B}
    [body] = [truth["body"] for truth in first.posted]
    assert (body["top_p"], "ignore_eos" in body) == (0.9, False)


@pytest.mark.parametrize(
    ("flag", "text", "answer"),
    [
        ("--extra-body", '{"temperature": 1}', "set it with --temperature"),
        ("--extra-body", '{"stream": false}', "drop it from --extra-body"),
        ("--extra-body", "top_p=0.9", "'0.9'; allowed: a JSON object"),
        ("--extra-body", '{"top_p": 0.9', "is not JSON"),
        ("--extra-body", '{"stop": "\\ud800"}', "not JSON: "),
        ("--leave-out", "messages", "'messages'; allowed: max_tokens"),
        ("--leave-out", "c=seed", "--leave-out names no arm of this run; allowed: a, b"),
        ("--header", "content-type:text/plain", "content-type is set by Tandem itself"),
        ("--speculates", "b=0", "'b=0'; allowed: NAME, or NAME=K"),
        ("--api-key-env", "TANDEM_NO_SUCH_KEY", "without NAME="),
        ("--api-key-env", "a=TANDEM_NO_SUCH_KEY", "export TANDEM_NO_SUCH_KEY=KEY"),
    ],
    ids=lambda value: value[:30],
)
def test_a_flag_that_cannot_be_kept_is_refused(servers, tmp_path, capsys, flag, text, answer):
    code = measure(servers, tmp_path, flag, text)
    assert (code, answer in capsys.readouterr().err) == (2, True)
    assert not (tmp_path / "out").exists()
