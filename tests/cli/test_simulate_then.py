import json
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

WHOLE = {0, 4}  # of a measurement: 4 where this machine is too busy for a verdict


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


def test_a_command_is_given_the_address_of_a_server_that_is_ready(then, capfd):
    assert then(sys.executable, "-c", ASK, "{qwen-sd-vllm}", "{other}") == 0
    assert capfd.readouterr().out.splitlines()[-1] == "200 {other}"


def test_it_ends_with_the_commands_own_exit_code_and_its_servers(alone, tmp_path):
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


def test_an_exit_code_of_no_meaning_here_says_that_the_world_failed(alone):
    assert alone("sh", "-c", "exit 77") == 3


@pytest.mark.proof
def test_a_measurement_of_the_pair_stands_beside_their_logs(then, tmp_path, capfd):
    run = tmp_path / "run"
    assert (
        then(
            sys.executable,
            "-m",
            "tandem",
            "bench",
            "run",
            "--baseline",
            "qwen-vllm={qwen-vllm}",
            "--variant",
            "qwen-sd-vllm={qwen-sd-vllm}",
            "--model",
            "Qwen/Qwen3-32B",
            "--suite",
            "real",
            "--mixed",
            "--prompts-per-class",
            "1",
            "--concurrency",
            "16",
            "--max-tokens",
            "2",
            "--rounds",
            "1",
            "--warm-up",
            "0",
            "--out",
            str(run),
        )
        in WHOLE
    )
    capfd.readouterr()

    logs = [str(tmp_path / f"{name}.jsonl") for name in ("qwen-vllm", "qwen-sd-vllm")]
    assert main(["bench", "verify", str(run), "--log", *logs, "--json"]) == 0

    found = json.loads(capfd.readouterr().out)
    assert found["left_out"] == 0
    assert {row["arm"] for row in found["rows"] if row["class_"] == "all"} == {
        "qwen-vllm",
        "qwen-sd-vllm",
    }


@pytest.mark.proof
def test_a_log_of_another_server_leaves_nothing_to_compare(then, tmp_path, capfd):
    log = tmp_path / "other.jsonl"
    run = tmp_path / "run"
    log.write_text('{"request_id": "other", "accepted_s": 1.0, "bursts": [[2.0, 1]]}\n')
    assert (
        then(
            sys.executable,
            "-m",
            "tandem",
            "bench",
            "run",
            "--baseline",
            "{qwen-vllm}",
            "--model",
            "Qwen/Qwen3-32B",
            "--mixed",
            "--prompts-per-class",
            "1",
            "--concurrency",
            "1,4",
            "--max-tokens",
            "2",
            "--rounds",
            "1",
            "--warm-up",
            "0",
            "--out",
            str(run),
        )
        in WHOLE
    )

    assert main(["bench", "verify", str(run), "--log", str(log)]) == 3
    assert "left out: 28 requests" in capfd.readouterr().out
