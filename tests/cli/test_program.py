"""The command line itself: help, version, completion, colours, closed pipes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from bucket_specs import folders

from tandem.cli import program
from tandem.cli.program import COMMANDS, main

ROOT = Path(__file__).parents[2]
TANDEM = [sys.executable, "-m", "tandem"]


def test_help_has_each_command_on_one_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    assert (main(["help"]), main(["--help"])) == (0, 0)

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for title, commands in COMMANDS.items():
        assert sum(f" {title} " in line for line in lines) == 2
        for name, (text, _) in commands.items():
            assert sum(line.startswith(f"│ {name} ") and text in line for line in lines) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["chek"],
        ["check", "--nope"],
        ["bench"],
        ["stop", "--env", "nowhere"],
    ],
)
def test_what_is_refused_is_one_document_and_one_sentence(words, capsys):
    assert main([*words, "--json"]) == 2

    output = capsys.readouterr()
    document = json.loads(output.out)
    assert (document["exit_code"], output.err.startswith("error: ")) == (2, True)
    assert {"problem", "where", "change"} <= set(document["error"])


@pytest.mark.parametrize(
    ("variables", "is_coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False)],
)
def test_colours_are_of_a_terminal_alone(variables, is_coloured):
    reader, writer = pty.openpty()
    environment = {
        key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS"}
    }
    environment |= {"TERM": "xterm-256color", **variables}
    subprocess.run(
        [*TANDEM, "check", "nowhere"], cwd=ROOT, env=environment, stderr=writer, check=False
    )
    os.close(writer)

    screen = os.read(reader, 10_000)
    os.close(reader)

    assert (b"nowhere" in screen, b"\x1b[1;31m" in screen) == (True, is_coloured)


def test_settings_that_boto3_refuses_end_a_stop_in_a_sentence(capsys, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "garbage")
    assert main(["stop", "--env", "post-us-east-2", *folders(ROOT)]) == 2
    assert "change   correct AWS_ENDPOINT_URL" in capsys.readouterr().err


def test_a_pipe_that_is_closed_early_is_no_traceback():
    with subprocess.Popen(
        [*TANDEM, "show", "post-us-east-2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        screen = process.stderr.read()

    assert (process.returncode, b"Error" in screen) == (0, False)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("show", 0),
        ("bench run --help", 0),
        ("bench run", 3),
    ],
)
def test_a_closed_pipe_before_an_act_gives_3(words, code, monkeypatch):
    monkeypatch.setattr(program, "_run_command", Mock(side_effect=BrokenPipeError))
    assert main(words.split()) == code


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [(["stop", "--env", "nobody"], 2, b"file not found")],
)
def test_json_on_a_full_disk_keeps_the_exit_code(words, code, text):
    with Path("/dev/full").open("wb") as full_disk:
        command = [*TANDEM, *words, "--json"]
        process = subprocess.run(
            command, cwd=ROOT, stdout=full_disk, stderr=subprocess.PIPE, check=False
        )
        silent_process = subprocess.run(
            command, cwd=ROOT, stdout=full_disk, stderr=full_disk, check=False
        )

    assert (process.returncode, silent_process.returncode) == (code, code)
    assert (text in process.stderr, b"Traceback" in process.stderr) == (True, False)
