import sys
from pathlib import Path

import pytest
from lone_variant import lone

from tandem.cli.program import main

ROOT = Path(__file__).parent.parent.parent
ASK = (
    "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1] + '/health').status,"
    " sys.argv[2])"
)


@pytest.fixture
def then(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)

    def run(*command: str) -> int:
        return main(["simulate", "--experiment", "post", "--log", str(tmp_path), "--", *command])

    return run


@pytest.fixture
def alone(tmp_path):
    """The same of one server."""
    flags = lone(tmp_path)

    def run(*command: str) -> int:
        return main(["simulate", *flags, "--log", str(tmp_path / "logs"), "--", *command])

    return run


def test_a_command_gets_the_url_of_a_ready_server(then, capfd):
    assert then(sys.executable, "-c", ASK, "{qwen-sd-vllm}", "{other}") == 0
    assert capfd.readouterr().out.splitlines()[-1] == "200 {other}"


def test_the_exit_code_is_that_of_the_command(alone, tmp_path):
    note = tmp_path / "url"
    code = alone("sh", "-c", f'printf %s "$1" > {note}; exit 4', "sh", "{qwen-vllm}")
    assert code == 4
    assert (
        main(
            [
                "bench",
                "run",
                "--baseline",
                note.read_text(),
                "--model",
                "m",
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 3
    )
